"""Decoding: caches, slots, attention kernels, and the engine that rollouts and the server share."""
