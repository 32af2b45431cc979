"""What a run will need of a TPU slice, from the real compiler and no TPU: programs, memory, FLOPs."""
