"""Random checkpoints in the shape of released models: bfloat16 shards without a tokenizer."""

from __future__ import annotations

import zlib
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from flax import nnx

from rmsweb_jax.qwen.checkpoint import MAX_FILE_BYTES, hf_tensors, write_folder
from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.model import Qwen3VL

_BLOCK = 1 << 24


def random_tensor(name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Norms 1, biases 0, embeddings normal(0.02), matrices normal(1 / sqrt(fan-in)), seeded by the name."""
    if len(shape) == 1:
        return np.full(shape, 0 if name.endswith("bias") else 1, dtype)
    std = 0.02 if "embed" in name and len(shape) == 2 else float(np.prod(shape[1:])) ** -0.5
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    out = np.empty(int(np.prod(shape)), dtype)
    for start in range(0, out.size, _BLOCK):
        block = out[start : start + _BLOCK]
        block[...] = rng.standard_normal(block.size, np.float32) * std
    return out.reshape(shape)


def write_random_checkpoint(
    config: Qwen3VLConfig, folder: Path, max_file_bytes: int = MAX_FILE_BYTES
) -> None:
    """Writes a model folder in bfloat16 that `load_model` and transformers read."""
    dtype = np.dtype(jnp.bfloat16)
    model = nnx.eval_shape(lambda: Qwen3VL(config, rngs=nnx.Rngs(0)))
    shapes = {tensor.name: tensor.shape for tensor in hf_tensors(model)}
    write_folder(
        folder, config, shapes, lambda name: random_tensor(name, shapes[name], dtype), dtype, max_file_bytes
    )
