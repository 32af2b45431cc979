"""Time of attention by each back end of the platform, on rows in the shapes of an 8B run."""

import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from rmsweb_jax.qwen.attention import AttentionConfig
from rmsweb_jax.qwen.backends import make_attend

WIDTH = 20_480
# Prompts with their branches.
ROWS = {
    "12,288 + 8 x 1,024": [(12_288, *[1_024] * 8)],
    "2 x (7,000 + 8 x 280)": [(7_000, *[280] * 8)] * 2,
    "6 samples of 3,000": [(3_000,)] * 6,
    "one sample": [(WIDTH,)],
}
BACKENDS = {"cpu": ("dense", "blocks"), "gpu": ("cudnn", "triton"), "tpu": ("pallas",)}
REPETITIONS = 5


def until(trees: list[tuple[int, ...]], part: int) -> np.ndarray:
    """Ends of a row of trees whose lengths are divided by `part`; the rest is padding."""
    ends, at = np.arange(1, WIDTH // part + 1, dtype=np.int32), 0
    for prompt, *branches in trees:
        lengths = [length // part for length in (prompt, *branches)]
        ends[at : at + lengths[0]] = at + sum(lengths)
        at += lengths[0]
        for length in lengths[1:]:
            ends[at : at + length] = at + length
            at += length
    return ends[None]


def attention_seconds() -> dict[str, dict[str, float]]:
    """Seconds of a forward and backward pass by row and back end; compiled, the median of `REPETITIONS`.

    Accelerators compute the 8B's 32 heads and 8 key heads in bfloat16, CPUs 4 and 1 in float32 on a quarter
    of the tokens.
    """
    platform = jax.default_backend()
    part, heads, kv_heads, dtype = (4, 4, 1, jnp.float32) if platform == "cpu" else (1, 32, 8, jnp.bfloat16)
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = [(1, WIDTH // part, count, 128) for count in (heads, kv_heads, kv_heads, heads)]
    *qkv, grad = (jax.random.normal(key, shape, dtype) for key, shape in zip(keys, shapes, strict=True))

    def seconds(backend: str, ends: np.ndarray) -> float:
        @jax.jit
        def both(qkv: list[jax.Array], grad: jax.Array) -> object:
            out, pull = jax.vjp(make_attend(AttentionConfig(backend), ends), *qkv)
            return out, pull(grad)

        jax.block_until_ready(both(qkv, grad))
        found = []
        for _ in range(REPETITIONS):
            start = time.perf_counter()
            jax.block_until_ready(both(qkv, grad))
            found.append(time.perf_counter() - start)
        return float(f"{statistics.median(found):.3g}")

    return {
        name: {backend: seconds(backend, until(trees, part)) for backend in BACKENDS[platform]}
        for name, trees in ROWS.items()
    }
