"""A finished training run as a folder that others can load."""
