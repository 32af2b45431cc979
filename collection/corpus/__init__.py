"""Turns trajectories into SFT samples, and says why any were dropped."""
