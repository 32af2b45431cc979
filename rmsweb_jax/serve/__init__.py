"""Serves a policy by the OpenAI API: chat completions."""
