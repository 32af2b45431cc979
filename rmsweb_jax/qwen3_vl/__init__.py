"""Qwen3-VL in flax.nnx: model, inputs, adapters, checkpoints, sampling.

Import from the modules: `config`, `inputs`, `model`, `logprobs`, `lora`, `checkpoint`, `processor`, `decode`.
"""
