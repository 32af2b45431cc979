"""Rollouts drawn at an OpenAI-compatible endpoint (vLLM, SGLang, our own server)."""
