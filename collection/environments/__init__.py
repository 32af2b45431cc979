"""Environments of an episode: live web pages and MiniWoB++."""
