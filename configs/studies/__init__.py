"""Configs of the studies."""
