"""Decoding: caches, slots, attention kernels, and the sampler that rollouts and the server share."""
