"""A finished training as a folder that others can load."""
