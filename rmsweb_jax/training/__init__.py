"""Shared parts of the training loops; none of them knows the model, the data or the stage."""
