"""Turns trajectories into SFT samples, with a reason for each one dropped."""
