"""Serves a policy by a chat-completions API."""
