"""The policy behind a chat-completions API."""
