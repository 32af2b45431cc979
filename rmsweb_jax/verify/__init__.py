"""Checks of a model and of this machine's devices, for `experiments.verify`."""
