"""Qwen3-VL in flax.nnx: model, inputs, adapters, checkpoints, sampling."""
