"""Ahead-of-time compilation of a run for TPU slices, without a TPU: programs, memory, FLOPs."""
