"""Judges decide whether an episode succeeded when its environment gives no reward."""
