"""Sizes of the engine's compiled programs, and how many prompts and lanes fit a device."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from rmsweb_jax.data.batching import round_up
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.config import TextConfig

# Prompt slots over the prompts that fill all lanes: the next prompts wait in them, and stragglers hold some.
_SPARE = 1.75
# Lanes of a device beyond which a step is bound by its products, so that more lanes do not pay.
_MOST_LANES = 256
# Lanes where a device does not tell its memory.
_DEFAULT_LANES = 32


@dataclasses.dataclass(frozen=True)
class EngineSizes:
    """Shapes of the engine's arrays; lanes and prompts are those of all shards of the mesh's rows.

    Attributes:
      lanes: sequences that are decoded at once.
      prompts: prompts whose caches are held at once.
      prompt_width: tokens that a prompt may have, a multiple of the largest chunk.
      response_width: tokens that a response may have.
      samples: lanes that may decode one prompt at once; requests with more samples use them in turn.
      chunks: tokens that a prefill reads at once, ascending; the last is used while as much is left.
      images, window: images of a prompt, and patches of the largest one.
      steps: largest number of decoding steps between two reports.
    """

    lanes: int
    prompts: int
    prompt_width: int
    response_width: int
    samples: int = 1
    chunks: tuple[int, ...] = (128, 512)
    images: int = 0
    window: int = 0
    steps: int = 16

    def __post_init__(self) -> None:
        for name in ("lanes", "prompts", "prompt_width", "response_width", "samples", "steps"):
            if getattr(self, name) < 1:
                raise UserError(f"config.{name} is {getattr(self, name)}: make it 1 or more")
        if not self.chunks or list(self.chunks) != sorted(set(self.chunks)) or self.chunks[0] < 1:
            raise UserError(f"config.chunks is {self.chunks}: give positive numbers in ascending order")
        # A prompt's last chunk begins at a multiple of any of them, and must not reach beyond the slot.
        if any(self.prompt_width % chunk for chunk in self.chunks):
            raise UserError(
                f"config.chunks is {self.chunks}: make each divide the width of a prompt, {self.prompt_width}"
            )

    def chunk(self, left: int) -> int:
        """Returns the chunk to read with `left` tokens left: the smallest that holds them, or the last."""
        return next((chunk for chunk in self.chunks if chunk >= left), self.chunks[-1])


def choose_chunks(longest: int, platform: str) -> tuple[int, ...]:
    """Chooses the chunks of prefill: a large one, and a small one for what is left of a prompt.

    Args:
      longest: tokens of the longest prompt.
    """
    # Large products keep an accelerator busy; a core is busy with few rows, and padding costs it more.
    small, large = (64, 256) if platform == "cpu" else (128, 1024)
    if longest <= small:
        return (round_up(longest, 8),)
    return (small,) if longest <= 2 * small else (small, min(large, round_up(longest, small)))


def sizes_for(
    prompts: Iterable[tuple[int, Sequence[int]]],
    *,
    samples: int,
    response_tokens: int,
    lanes: int,
    shards: int = 1,
    steps: int = 16,
    platform: str = "",
) -> EngineSizes:
    """Chooses sizes for known prompts.

    Args:
      prompts: length of each prompt, and the patches of its images.
      lanes: lanes to decode with, rounded up to whole prompts on every shard.
      platform: that of the devices; by default of those that are there.
    """
    prompts = list(prompts)
    longest = max(length for length, _ in prompts)
    chunks = choose_chunks(longest, platform or jax.default_backend())
    each = round_up(-(-lanes // shards), samples)
    return EngineSizes(
        lanes=each * shards,
        prompts=spare_prompts(each, samples) * shards,
        prompt_width=round_up(longest, chunks[-1]),
        response_width=response_tokens,
        samples=samples,
        chunks=chunks,
        images=max(len(patches) for _, patches in prompts),
        window=max((count for _, patches in prompts for count in patches), default=0),
        steps=steps,
    )


def spare_prompts(lanes: int, samples: int) -> int:
    """Prompt slots of a shard: for those that fill its lanes, the next ones, and stragglers."""
    return max(2, math.ceil(lanes / samples * _SPARE) + 1)


def token_bytes(config: TextConfig, dtype: str, cache_dtype: str) -> int:
    """Bytes that a token's keys and values take in the caches of all layers."""
    entry = jnp.dtype(dtype).itemsize if cache_dtype == "model" else 1
    scale = 0 if cache_dtype == "model" else 4
    return 2 * config.num_attention_layers * config.num_key_value_heads * (config.head_dim * entry + scale)


def state_bytes(config: TextConfig, dtype: str) -> int:
    """Bytes that recurrences take of each prompt and each lane, whatever its length."""
    if (delta := config.delta) is None:
        return 0
    state = delta.linear_num_value_heads * delta.linear_key_head_dim * delta.linear_value_head_dim * 4
    tail = (delta.linear_conv_kernel_dim - 1) * delta.channels * jnp.dtype(dtype).itemsize
    return (config.num_hidden_layers - config.num_attention_layers) * (state + tail)


def device_memory(device: Any) -> int | None:
    """Bytes of a device's memory, or None if it does not tell."""
    # Only the devices of this process tell; the others are alike.
    device = device if device.process_index == jax.process_index() else jax.local_devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    return None if not stats else stats.get("bytes_limit")


def fit_sizes(
    sizes: EngineSizes,
    bytes_a_token: int,
    free: int | None,
    shards: int,
    tensor: int = 1,
    bytes_a_state: int = 0,
) -> EngineSizes:
    """Chooses lanes and prompts for the memory that a device has left for caches.

    Args:
      sizes: widths and samples; `lanes` and `prompts` are not read.
      bytes_a_token, bytes_a_state: see `token_bytes` and `state_bytes`.
      free: bytes of a device for caches; None if unknown, which takes 32 lanes a shard.
      shards, tensor: devices that split the rows, and the heads.

    Raises:
      UserError: not even one prompt and its lanes fit.
    """
    share, state = -(-bytes_a_token // tensor), -(-bytes_a_state // tensor)
    prompt, lane = sizes.prompt_width * share + state, sizes.response_width * share + state

    def needed(lanes: int) -> int:
        return spare_prompts(lanes, sizes.samples) * prompt + lanes * lane

    lanes = _DEFAULT_LANES if free is None else _MOST_LANES
    while free is not None and lanes > 1 and needed(lanes) > free:
        lanes -= 1
    if free is not None and needed(lanes) > free:
        raise UserError(
            f"a device has {free / 2**30:.1f} GiB left for caches, and two prompts of {sizes.prompt_width} "
            f"tokens with one response need {needed(1) / 2**30:.1f}: raise config.mesh.tensor, lower the "
            "limits of prompts and responses, or set config.cache_dtype=int8"
        )
    # Whole prompts fill the lanes.
    if lanes >= sizes.samples:
        lanes -= lanes % sizes.samples
    return dataclasses.replace(
        sizes, lanes=lanes * shards, prompts=spare_prompts(lanes, sizes.samples) * shards
    )
