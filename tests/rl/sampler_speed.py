"""Tokens a second of both samplers in turns, and what bounds them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from rmsweb_jax.data.batching import Example
from rmsweb_jax.decoding.sampler import SamplingParams
from rmsweb_jax.qwen3_vl.config import TextConfig
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from tests.rl.sampler_sides import (
    SAMPLES,
    Reference,
    Run,
    Timed,
    make_prompt,
    make_sampler,
    pool_bytes,
    special_tokens,
    timed_draw,
)

PROMPTS = 4


@dataclasses.dataclass
class Measured:
    """One prompt length and number of new tokens.

    Attributes:
      together: prompts a call of `generate`, the faster of all and one.
      compiling: seconds that our first call took longer than the second.
      ours, theirs: of every repetition, in turns.
      slower: their other way.
    """

    model: str
    config: TextConfig
    prompt: int
    new: int
    together: int
    compiling: float
    ours: list[Run]
    theirs: list[Run]
    slower: Run

    @property
    def tokens(self) -> int:
        return PROMPTS * SAMPLES * self.new

    def ratios(self, part: str) -> list[float]:
        """Their seconds over ours of every repetition; `part` is "seconds", "prefill" or "decode"."""
        pairs = zip(self.theirs, self.ours, strict=True)
        return [getattr(their, part) / getattr(own, part) for their, own in pairs]


def make_prompts(model: Qwen3VL, length: int) -> list[Example]:
    """Prompts of one length; the first shows a screenshot on a quarter of it."""
    image = int((length // 4) ** 0.5)
    return [make_prompt(model.config, number, length, image * (number == 0)) for number in range(PROMPTS)]


def no_end(model: Qwen3VL, new: int) -> SamplingParams:
    return SamplingParams(SAMPLES, new, 1.0, eos=-1, banned=special_tokens(model.config))


def measure(
    name: str, model: Qwen3VL, policy: Timed, reference: Reference, *, prompt: int, new: int, repeat: int
) -> Measured:
    """Compiles ours, then times both in turns."""
    prompts = make_prompts(model, prompt)
    sampler, sampling = make_sampler(model.config, prompts, PROMPTS), no_end(model, new)

    def own() -> Run:
        return timed_draw(policy, sampler, prompts, range(PROMPTS), sampling)

    first, ours = own(), [own()]
    ways = {count: reference.generate(prompts, new, count) for count in (PROMPTS, 1)}
    together = min(ways, key=lambda count: ways[count].seconds)
    theirs = [ways.pop(together)]
    for _ in range(1, repeat):
        ours.append(own())
        theirs.append(reference.generate(prompts, new, together))
    compiling = first.seconds - ours[0].seconds
    (slower,) = ways.values()
    return Measured(name, model.config.text, prompt, new, together, compiling, ours, theirs, slower)


def small_cache_bytes(model: Qwen3VL, prompts: Sequence[Example], new: int) -> int:
    """Of a pool that keeps its caches in 8 bits, after a real prefill."""
    policy, sampler = Timed(model, cache_dtype="int8"), make_sampler(model.config, prompts, PROMPTS)
    one = {"seeds": np.zeros(1, np.uint32), "prompt_ids": np.zeros(1, np.uint32)}
    width = sampler.shapes.widths[-1]
    asked = policy.prefill(sampler.inputs(prompts[:1], width), **one, temperature=np.ones(1, np.float32))
    return pool_bytes(
        policy.empty_pool(asked, slots=PROMPTS, width=width, num_samples=SAMPLES, max_new_tokens=new)
    )


class Peaks(NamedTuple):
    """What the machine can do: float32 GFLOP/s in products of 2,048 x 2,048, GB/s in reading."""

    ours: float
    theirs: float
    bandwidth: float


def best_seconds(function: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def machine_peaks() -> Peaks:
    side = 2048
    one = np.random.default_rng(0).standard_normal((side, side), np.float32)
    matrix, tensor, much = jnp.asarray(one), torch.from_numpy(one), torch.ones(2**27)
    flops = 2 * side**3 / 1e9
    product = jax.jit(jnp.matmul)
    return Peaks(
        ours=flops / best_seconds(lambda: jax.block_until_ready(product(matrix, matrix))),
        theirs=flops / best_seconds(lambda: tensor @ tensor),
        bandwidth=much.nbytes / 1e9 / best_seconds(much.sum),
    )


class Work(NamedTuple):
    """What a decoding step of `lanes` responses must do at least: GFLOP and GB."""

    flops: float
    bytes: float


def parameters(config: TextConfig) -> tuple[int, int]:
    """Of the decoder's matrices, and of the head."""
    heads, size = config.num_attention_heads + config.num_key_value_heads, config.head_dim
    layer = 2 * config.hidden_size * heads * size + 3 * config.hidden_size * config.intermediate_size
    return config.num_hidden_layers * layer, config.vocab_size * config.hidden_size


def decode_work(measured: Measured, lanes: int, cache_bytes: float, moves: int) -> Work:
    """Of one step half way through the responses.

    Args:
      lanes: responses that the step feeds.
      cache_bytes: of the keys and values it sees.
      moves: how often it moves them.
    """
    config = measured.config
    matrices = sum(parameters(config))
    context = measured.prompt + measured.new / 2
    attention = 4 * config.num_hidden_layers * config.num_attention_heads * config.head_dim * context
    return Work(lanes * (2 * matrices + attention) / 1e9, (4 * matrices + moves * cache_bytes) / 1e9)


def prefill_gflop(measured: Measured, rows: int) -> float:
    """Of the decoder, for `rows` prompts; attention is causal."""
    config, length = measured.config, measured.prompt
    layers, _ = parameters(config)
    attention = 2 * config.num_hidden_layers * config.num_attention_heads * config.head_dim * length
    return rows * length * (2 * layers + attention) / 1e9
