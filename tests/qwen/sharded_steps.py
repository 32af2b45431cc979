"""One SFT and one RL micro-batch, and samples, by the real programs on any mesh and number of processes.

test_sharded.py runs this as `python -m tests.qwen.sharded_steps`, with virtual devices; figures are
printed as JSON. Without arguments, all devices are compared with one; with COORDINATOR, NUM_PROCESSES and
PROCESS, several processes make one step in each of two layouts.
"""

import dataclasses
import functools
import json
import sys
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from rmsweb_jax.data.batching import Branch, Example, Tree, lay_out, on_mesh
from rmsweb_jax.data.packing import Packer, RowShape
from rmsweb_jax.decoding.engine import Engine
from rmsweb_jax.decoding.requests import Request, Sampling
from rmsweb_jax.decoding.sizes import EngineSizes
from rmsweb_jax.decoding.weights import Layout
from rmsweb_jax.qwen.backends import choose_attention
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.sharding import param_shardings
from rmsweb_jax.rl.config import Objective
from rmsweb_jax.rl.rollout import MiniBatch, Turn
from rmsweb_jax.rl.step import micro_batches, rl_steps, trees_of
from rmsweb_jax.sft.data import VALUES
from rmsweb_jax.sft.step import init_state, sft_steps, split_model
from rmsweb_jax.training.config import LoRAConfig
from rmsweb_jax.training.mesh import AXES, make_mesh, process_rows
from rmsweb_jax.training.step import adamw
from tests.decoding.drawing import generate
from tests.prompts import as_prompt
from tests.qwen.random_models import random_model
from tests.qwen.rows import token_log_probs
from tests.tiny import IMAGE_TOKEN, TINY

# Every axis divides by two.
CONFIG = dataclasses.replace(
    TINY,
    text=dataclasses.replace(
        TINY.text,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        mrope_section=(2, 1, 1),
    ),
)
ROWS, SAMPLES, WINDOW = 8, 12, 8
# The shortest rows that are computed in blocks. Some hold two samples.
SHAPE = RowShape(width=64, rows=ROWS, images=2, window=WINDOW)
OPTIMIZER = adamw(1e-2, weight_decay=0.01, clip_norm=1.0)


class Result(NamedTuple):
    """Results of a micro-batch: log-probabilities of its rows, gradients of the adapters, and metrics."""

    log_probs: np.ndarray
    gradients: list[np.ndarray]
    metrics: dict[str, float]


def make_example(number: int) -> Example:
    """A random sample, most with an image of 4 x 2 patches."""
    rng = np.random.default_rng(number)
    prompt, targets = 8 + 3 * number, 3 + number % 4
    tokens = rng.integers(0, 50, prompt + targets).astype(np.int32)
    action_mask = np.arange(targets) >= targets // 2
    if number % 4 == 3:
        return Example(f"sample-{number}", tokens, prompt, action_mask)
    tokens[2:4] = IMAGE_TOKEN
    patches = rng.normal(size=(8, CONFIG.vision.patch_dim)).astype(np.float32)
    return Example(f"sample-{number}", tokens, prompt, action_mask, (patches,), ((1, 4, 2),))


def target_tree(example: Example) -> Tree:
    """A sample as `sft.data.sft_tree` makes it."""
    values = {"weight": 1 / example.num_targets, "action": example.action_mask}
    return Tree(example, (Branch(example.target, values),))


def make_turn(number: int, accepted: bool) -> Turn:
    """Four random responses to a prompt."""
    rng = np.random.default_rng(100 + number)
    example = make_example(number)
    responses = tuple(rng.integers(0, 50, rng.integers(1, 6)).astype(np.int32) for _ in range(4))
    log_probs = tuple(np.zeros(len(response), np.float32) for response in responses)
    advantages = rng.normal(size=4) if accepted else np.zeros(4)
    prompt = as_prompt(example, str(number))
    return Turn(prompt, responses, log_probs, np.zeros(4, bool), rng.random(4), advantages)


@functools.cache
def random_policy(config: LoRAConfig) -> Qwen3VL:
    """A random policy that has moved away from its reference."""
    return random_model(CONFIG, config)


def make_policy(config: LoRAConfig, mesh: Mesh) -> Qwen3VL:
    """A copy of the random policy for the given mesh."""
    model = nnx.clone(random_policy(config))
    # Steps take over the arrays of the policy that they train.
    nnx.update(model, jax.tree.map(np.array, nnx.state(model)))
    model.attention = choose_attention(CONFIG.text.head_dim, model.dtype, mesh)
    return model


def to_numpy(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def sft_step(mesh: Mesh, *, whole: bool = True) -> Result:
    """An optimizer step over all samples, of which every process holds its share.

    Args:
      whole: log-probabilities and gradients come along; several processes only see parts of them.
    """
    model = make_policy(LoRAConfig(rank=4, alpha=8.0, dropout=0.1), mesh)
    graphdef, params, frozen = split_model(model, "lora")
    frozen = jax.device_put(frozen, param_shardings(frozen, mesh))
    state = init_state(params, OPTIMIZER, mesh)
    steps = sft_steps(graphdef, state, OPTIMIZER, SAMPLES, mesh)
    trees = [target_tree(make_example(number)) for number in range(SAMPLES)]
    (rows,) = Packer(SHAPE, CONFIG).pack([tree.size for tree in trees])
    held = process_rows(mesh, ROWS)
    batch = on_mesh(lay_out(trees.__getitem__, rows, SHAPE, CONFIG, held, VALUES), mesh)
    total = steps.add(steps.zero(state.params), state.params, frozen, batch, jax.random.key(3))
    log_probs, gradients = np.zeros(0), []
    if whole:
        score = jax.jit(lambda params: token_log_probs(nnx.merge(graphdef, params, frozen), batch.inputs))
        log_probs, gradients = np.asarray(score(state.params).log_probs), to_numpy(total.gradients)
    _, metrics = steps.update(state, total)
    return Result(log_probs, gradients, {name: float(value) for name, value in metrics.items()})


def rl_step(mesh: Mesh) -> Result:
    """One micro-batch of four accepted and four salvaged groups, off its old policy by a little."""
    model = make_policy(LoRAConfig(rank=4, alpha=8.0, targets="attention"), mesh)
    graphdef, params, frozen = split_model(model, "lora")
    frozen = jax.device_put(frozen, param_shardings(frozen, mesh))
    state = init_state(params, OPTIMIZER, mesh)
    steps = rl_steps(graphdef, state, OPTIMIZER, Objective(kl_coef=0.1), mesh)
    groups = [make_turn(number, number < 4) for number in range(ROWS)]
    trees = trees_of(MiniBatch(tuple(groups[:4]), tuple(groups[4:])), salvage=True)
    (micro,) = micro_batches(trees, Packer(SHAPE, CONFIG), CONFIG)
    batch = on_mesh(micro.batch, mesh)
    log_probs = steps.log_probs(state.params, frozen, batch)
    ref = steps.log_probs(steps.zero(state.params).gradients, frozen, batch)
    values = {"old_log_probs": 0.9 * log_probs - 0.05, "ref_log_probs": ref}
    scored = dataclasses.replace(batch.scored, values=batch.scored.values | values)
    batch = dataclasses.replace(batch, scored=scored)
    total = steps.add(steps.zero(state.params), state.params, frozen, batch)
    gradients = to_numpy(total.gradients)
    _, metrics = steps.update(state, total)
    values = {name: float(value) for name, value in metrics.items()}
    return Result(np.asarray(log_probs), gradients, values)


def samples(mesh: Mesh, split: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and log-probabilities of two responses to each of eight prompts."""
    model = make_policy(LoRAConfig(rank=4, alpha=8.0, targets="attention"), mesh)
    graphdef, state = nnx.split(model)
    model = nnx.merge(graphdef, jax.device_put(state, param_shardings(state, mesh)))
    examples = [make_example(number) for number in range(ROWS)]
    sizes = EngineSizes(
        lanes=16, prompts=8, prompt_width=32, response_width=6, samples=2, chunks=(8, 16), images=1, window=16
    )
    engine = Engine.for_policy(model, sizes, eos=-1, layout=Layout(model.attention, split))
    asked = [
        Request(example, Sampling(2, 6), 5, number, engine.policy) for number, example in enumerate(examples)
    ]
    drawn = generate(engine, asked)
    return np.stack([one.tokens for one in drawn]), np.stack([one.log_probs for one in drawn])


def difference(one: Result, other: Result) -> dict[str, float]:
    """Largest deviations: of log-probabilities, and of gradients relative to their array's norm."""
    return {
        "log_probs": float(np.abs(one.log_probs - other.log_probs).max()),
        "gradients": max(
            float(np.linalg.norm(a - b) / np.linalg.norm(a))
            for a, b in zip(one.gradients, other.gradients, strict=True)
        ),
        "metrics": max(abs(one.metrics[name] - other.metrics[name]) for name in one.metrics),
    }


def compare() -> dict[str, Any]:
    """All devices of this process against the first of them."""
    one = Mesh(np.asarray(jax.devices()[:1]).reshape(1, 1, 1), AXES)
    many = make_mesh(data=2, fsdp=2, tensor=2)
    sft = sft_step(one)
    (drawn, scored), (drawn_by_many, scored_by_many) = samples(one), samples(many)
    copied, scored_by_copies = samples(many, split=False)
    return {
        "sft": difference(sft, sft_step(many)),
        "rl": difference(rl_step(one), rl_step(many)),
        "samples": {
            "differing": int((drawn != drawn_by_many).sum() + (drawn != copied).sum()),
            "log_probs": float(
                max(np.abs(scored - other).max() for other in (scored_by_many, scored_by_copies))
            ),
            "distinct": len(np.unique(drawn)),
        },
        "one_device": sft.metrics,
    }


# data 2 x fsdp 2 x tensor 2, with the devices of two processes in the orders that pods have. Unturned, the
# processes would split the first axis, each with the rows of one half.
LAYOUTS = {"alternate rows": (1, 0, 2), "shared rows": (2, 1, 0)}


def join(coordinator: str, num_processes: str, process: str) -> dict[str, Any]:
    """This process's view of an SFT step that several processes make together, for each layout."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator, int(num_processes), int(process), initialization_timeout=1200)
    views: dict[str, Any] = {"processes": jax.process_count(), "devices": jax.local_device_count()}
    for name, axes in LAYOUTS.items():
        mesh = Mesh(make_mesh(data=2, fsdp=2, tensor=2).devices.transpose(axes), AXES)
        views[name] = {
            "rows": process_rows(mesh, ROWS),
            "metrics": sft_step(mesh, whole=False).metrics,
        }
    return views


if __name__ == "__main__":
    print(json.dumps(join(*sys.argv[1:]) if sys.argv[1:] else compare()))
