"""Both layouts of one group, and a policy to take their gradients with: what `make proof-rows` measures."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from rmsweb_jax.data.batching import Batch, Example, on_mesh, round_up
from rmsweb_jax.data.packing import Packer, RowShape
from rmsweb_jax.qwen.backends import choose_attention
from rmsweb_jax.qwen.config import SIZES, Qwen3VLConfig
from rmsweb_jax.qwen.lora import add_lora
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.sharding import param_shardings
from rmsweb_jax.rl.config import Objective
from rmsweb_jax.rl.rollout import MiniBatch, Turn
from rmsweb_jax.rl.step import micro_batches, rl_steps, trees_of
from rmsweb_jax.sft.step import init_state, split_model
from rmsweb_jax.training.config import LoRAConfig
from rmsweb_jax.training.mesh import make_mesh
from rmsweb_jax.training.step import Accumulated, Steps, adamw
from tests.prompts import as_prompt
from tests.rl.eight_rows import plain_batches, plain_rows

SAMPLES = 8
Inputs = list[Batch]


@dataclasses.dataclass(frozen=True)
class Setting:
    """A model to measure with.

    Attributes:
      text: what it is, for the report.
      block: rows have a multiple of so many tokens, as the attention's blocks want.
      rank: of the adapters.
      tolerance: for gradients, relative to the largest of their matrix.
    """

    text: str
    config: Qwen3VLConfig
    dtype: Any
    block: int
    rank: int
    tolerance: float


def thin() -> Setting:
    """The 2B model at a quarter of its width, with two of its layers and one of its heads.

    Attention then takes about as large a part of the work as in the whole model (at 12,000 tokens 0.8 of the
    other matrices' against 0.7; four heads would make it 3), and the vocabulary's head the same part of a
    scored token's.
    """
    whole = SIZES["2b"]
    text = dataclasses.replace(
        whole.text,
        vocab_size=2_240,
        hidden_size=512,
        intermediate_size=1_536,
        num_hidden_layers=2,
        num_attention_heads=1,
        num_key_value_heads=1,
    )
    vision = dataclasses.replace(whole.vision, depth=1, deepstack_visual_indexes=(0,), out_hidden_size=512)
    config = dataclasses.replace(whole, text=text, vision=vision)
    words = "Qwen3-VL-2B at a quarter of its width with 2 layers, 1 head and 2,240 tokens, float32"
    return Setting(words, config, jnp.float32, block=256, rank=16, tolerance=1e-5)


def whole_8b() -> Setting:
    """The 8B model, for a GPU of 80 GB or more."""
    return Setting("Qwen3-VL-8B, bfloat16", SIZES["8b"], jnp.bfloat16, block=64, rank=64, tolerance=5e-2)


MODELS: dict[str, Callable[[], Setting]] = {"thin": thin, "8b": whole_8b}


class Policy:
    """A random policy whose adapters do something, and the compiled programs that train it."""

    def __init__(self, setting: Setting):
        self.setting, self.mesh = setting, make_mesh()
        graphdef, params, frozen = split_model(nnx.jit(self._make)(), "lora")
        keys = iter(jax.random.split(jax.random.key(5), len(jax.tree.leaves(params))))
        params = jax.tree.map(lambda x: x + 0.02 * jax.random.normal(next(keys), x.shape), params)
        self._params, self._frozen = (
            jax.device_put(part, param_shardings(part, self.mesh)) for part in (params, frozen)
        )
        optimizer = adamw(8e-6, weight_decay=0.01, clip_norm=1.0)
        # A large KL weight, so that both terms show in the gradient.
        self._steps: Steps = rl_steps(
            graphdef,
            init_state(jax.tree.map(jnp.copy, self._params), optimizer, self.mesh),
            optimizer,
            Objective(kl_coef=0.1),
            self.mesh,
        )

    def _make(self) -> Qwen3VL:
        config, dtype = self.setting.config, self.setting.dtype
        attention = choose_attention(config.text.head_dim, dtype, self.mesh)
        model = Qwen3VL(
            config, rngs=nnx.Rngs(0), dtype=dtype, param_dtype=dtype, remat="full", attention=attention
        )
        rank = self.setting.rank
        add_lora(model, LoRAConfig(rank=rank, alpha=2.0 * rank, targets="attention"), nnx.Rngs(1))
        return model

    def gradient(self, inputs: Inputs) -> Accumulated:
        """Of all micro-batches together, when it is done."""
        total = self._steps.zero(self._params)
        for batch in inputs:
            total = self._steps.add(total, self._params, self._frozen, batch)
        return jax.block_until_ready(total)

    def seconds(self, inputs: Inputs) -> tuple[float, Accumulated]:
        start = time.perf_counter()
        total = self.gradient(inputs)
        return time.perf_counter() - start, total


def make_batch(prompt: int, response: int, vocabulary: int) -> MiniBatch:
    """One accepted group of `SAMPLES` responses of equal length, without images."""
    rng = np.random.default_rng(prompt + response)
    tokens = rng.integers(0, vocabulary, prompt + 1).astype(np.int32)
    example = Example("prompt", tokens, prompt, np.ones(1, bool))
    responses = tuple(rng.integers(0, vocabulary, response).astype(np.int32) for _ in range(SAMPLES))
    none = tuple(np.zeros(response, np.float32) for _ in responses)
    group = Turn(
        prompt=as_prompt(example),
        responses=responses,
        log_probs=none,
        truncated=np.zeros(SAMPLES, bool),
        rewards=np.zeros(SAMPLES),
        advantages=rng.normal(size=SAMPLES),
    )
    return MiniBatch((group,), ())


def with_log_probs(policy: Policy, batch: Batch, places: dict[int, tuple[int, slice]]) -> Batch:
    """The batch on the device; old and reference log-probabilities are near the random policy's.

    Args:
      places: where the tokens of every sample are scored.
    """
    arrays = np.zeros((2, *batch.scored.tokens.shape), np.float32)
    for sample, place in places.items():
        size = place[1].stop - place[1].start
        noise = np.random.default_rng(sample).normal(0, 0.3, (2, size))
        arrays[0][place], arrays[1][place] = noise - np.log(policy.setting.config.text.vocab_size)
    values = batch.scored.values | {"old_log_probs": arrays[0], "ref_log_probs": arrays[1]}
    return on_mesh(
        dataclasses.replace(batch, scored=dataclasses.replace(batch.scored, values=values)), policy.mesh
    )


def shared_inputs(policy: Policy, batch: MiniBatch, prompt: int, response: int) -> Inputs:
    """The group as the update lays it out: one row."""
    config = policy.setting.config
    width = round_up(prompt + SAMPLES * response, policy.setting.block)
    made = []
    for micro in micro_batches(trees_of(batch, salvage=True), Packer(RowShape(width, 1), config), config):
        places = {at.branch: (at.row, slice(at.start, at.stop)) for at in micro.spans}
        made.append(with_log_probs(policy, micro.batch, places))
    return made


def plain_inputs(policy: Policy, batch: MiniBatch, length: int, response: int, count: int) -> Inputs:
    """The group with its prompt before every response, `count` rows a micro-batch."""
    rows = plain_rows(batch, salvage=True)
    width = round_up(length, policy.setting.block)
    made = plain_batches(rows, policy.setting.config, count=count, width=width)
    return [
        with_log_probs(policy, micro, {sample: place for (_, sample), place in places.items()})
        for micro, places in made
    ]


def num_places(inputs: Inputs) -> int:
    return sum(batch.inputs.tokens.size for batch in inputs)


def difference(ours: Accumulated, theirs: Accumulated) -> float:
    """The largest of a layer's adapter matrix, to its largest value, and of the loss."""
    pairs = [(np.atleast_3d(ours.sums.loss), np.atleast_3d(theirs.sums.loss))]
    for one, other in zip(jax.tree.leaves(ours.gradients), jax.tree.leaves(theirs.gradients), strict=True):
        shape = (-1, *one.shape[-2:])
        pairs += zip(np.asarray(one).reshape(shape), np.asarray(other).reshape(shape), strict=True)
    return max(float(np.abs(one - other).max() / np.abs(other).max()) for one, other in pairs)
