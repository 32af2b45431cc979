"""Serves a policy by the OpenAI API: chat and text completions."""
