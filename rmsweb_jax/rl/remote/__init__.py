"""Rollouts drawn at an OpenAI-compatible endpoint (vLLM, or our own server)."""
