"""Exports a finished training run as a folder for other libraries and servers."""
