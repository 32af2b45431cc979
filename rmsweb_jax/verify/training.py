"""Training and rollouts on this machine: sharded against unsharded, what is learned, and how fast."""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import AxisType, Mesh

from rmsweb_jax.data.batching import Batch, Branch, Example, Tree, lay_out, on_mesh, round_up
from rmsweb_jax.data.packing import Packer, RowShape, useful_work
from rmsweb_jax.data.sft import VALUES, StepBatch
from rmsweb_jax.data.sizes import SampleSize
from rmsweb_jax.decoding.engine import Engine, LaneUse, generate
from rmsweb_jax.decoding.requests import Request, Responses, Sampling
from rmsweb_jax.decoding.sizes import device_memory, sizes_for, token_bytes
from rmsweb_jax.decoding.weights import choose_layout
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.flops import Work, forward_flops
from rmsweb_jax.qwen3_vl.inputs import Grid
from rmsweb_jax.qwen3_vl.lora import LoRAParam, count_parameters
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.sharding import axis_sizes
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.rl.dynamic_sampling import MiniBatch
from rmsweb_jax.rl.prompts import Prompt
from rmsweb_jax.rl.rollout import Group, make_group
from rmsweb_jax.rl.step import rl_steps, update_policy
from rmsweb_jax.sft.config import SftConfig
from rmsweb_jax.sft.loss import sft_loss
from rmsweb_jax.sft.step import init_state, sft_steps, split_model, with_remat
from rmsweb_jax.sft.train import load_policy, run_step, throughput
from rmsweb_jax.training.config import LoRAConfig
from rmsweb_jax.training.mesh import AXES, make_mesh, row_shards
from rmsweb_jax.training.optimizer import adamw
from rmsweb_jax.training.performance import compiler_options, peak_hbm_bytes
from rmsweb_jax.verify.checks import Check, at_least, at_most, skipped
from rmsweb_jax.verify.golden import num_text_tokens

STEPS = 20
_LORA = LoRAConfig(rank=64, alpha=128.0)
# By the dtype of the computation: logits over their standard deviation and gradients over their norm, sharded
# against unsharded; and log-probabilities of the sampler against those of training, mean in nats.
_SHARDED = {"float32": (1e-3, 1e-3), "bfloat16": (0.1, 0.05)}
_SAMPLER = {"float32": 1e-3, "bfloat16": 0.05}


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Amounts of work with which everything takes about ten minutes.

    Attributes:
      sample, response: tokens of a training sample, and those of its target.
      samples: in a row.
      image_side: of the image of every sample and prompt, in tokens.
      row_multiple: of the width of rows.
      groups, group_samples: prompts of a rollout, at least, and responses to each.
      row_groups: groups that a row of the RL update holds.
      prompt, new_tokens: tokens of a prompt, and of a response.
      kernel_lengths: see `kernels.training_kernels`.
    """

    sample: int = 4096
    response: int = 512
    samples: int = 2
    image_side: int = 16
    row_multiple: int = 512
    groups: int = 8
    group_samples: int = 8
    row_groups: int = 1
    prompt: int = 2048
    new_tokens: int = 256
    kernel_lengths: tuple[int, int] = (2048, 8192)


ACCELERATOR = Sizes()
# Two cores compute 2B parameters. A row of 64 tokens takes as long as one of 16: weights must be read. So all
# groups share a row.
CPU = Sizes(
    sample=64,
    response=16,
    samples=1,
    image_side=2,
    row_multiple=64,
    groups=2,
    group_samples=2,
    row_groups=2,
    prompt=16,
    new_tokens=4,
    kernel_lengths=(512, 1024),
)


class Setup:
    """The devices and the model that are checked.

    Args:
      folder: the model.

    Raises:
      UserError: the folder holds no model, or the devices do not divide it.
    """

    def __init__(self, folder: Path):
        self.folder, self.config = folder, Qwen3VLConfig.from_hf(folder / "config.json")
        on_cpu = jax.default_backend() == "cpu"
        self.sizes = CPU if on_cpu else ACCELERATOR
        # CPUs are slow in bfloat16.
        self.dtype = "float32" if on_cpu else "bfloat16"
        count, heads = jax.device_count(), axis_sizes(self.config)["kv_heads"].count
        # Both kinds of sharding, as far as the devices allow.
        tensor = 2 if count % 2 == 0 and heads % 2 == 0 else 1
        self.mesh = make_mesh(fsdp=-1, tensor=tensor)
        settings: dict[str, Any] = {"dtype": self.dtype, "model": str(folder), "weight_decay": 0.0}
        self.sft = SftConfig(
            corpus="none", lora=_LORA, learning_rate=2e-4, param_dtype=self.dtype, **settings
        )
        self.rl = RlConfig(
            prompts="none",
            lora=_LORA.model_copy(update={"targets": "attention"}),
            # The sampler has weights of its own, next to which a CPU holds those of the file.
            param_dtype=_stored_dtype(folder) if on_cpu else self.dtype,
            **settings,
        )
        self._policy: tuple[SftConfig | RlConfig, Qwen3VL] | None = None

    def policy(self, config: SftConfig | RlConfig) -> Qwen3VL:
        """The model with fresh adapters for one of both stages; that for the other one is dropped."""
        if self._policy is None or self._policy[0] != config:
            self._policy = None
            gc.collect()
            self._policy = config, load_policy(config, self.folder, self.mesh, config.lora, seed=0)
        return self._policy[1]

    @property
    def options(self) -> dict[str, Any]:
        return compiler_options(self.mesh.devices.flat[0], ())

    @property
    def grid(self) -> Grid:
        side = self.sizes.image_side * self.config.vision.spatial_merge_size
        return 1, side, side


def _stored_dtype(folder: Path) -> Literal["bfloat16", "float32"]:
    content = json.loads((folder / "config.json").read_bytes())
    stored = content.get("dtype") or content.get("torch_dtype")
    return "bfloat16" if stored == "bfloat16" else "float32"


def random_examples(
    config: Qwen3VLConfig, grid: Grid, count: int, *, length: int, response: int, seed: int
) -> list[Example]:
    """Samples of an image, random text, and a random target; the length holds at least three tokens more."""
    most = num_text_tokens(config)
    image = math.prod(grid) // config.vision.merge_unit
    start = [config.vision_start_token_id, *[config.image_token_id] * image, config.vision_end_token_id]
    rng, examples = np.random.default_rng(seed), []
    for number in range(count):
        tokens = np.asarray([*start, *rng.integers(0, most, length - len(start))], np.int32)
        patches = rng.standard_normal((math.prod(grid), config.vision.patch_dim), np.float32)
        action_mask = np.ones(response, bool)
        examples.append(Example(str(number), tokens, length - response, action_mask, (patches,), (grid,)))
    return examples


def sft_batch(setup: Setup, samples: int) -> StepBatch:
    """A step's data: one full micro-batch, with `samples` in a row."""
    sizes, shards = setup.sizes, row_shards(setup.mesh)
    examples = random_examples(
        setup.config, setup.grid, samples * shards, length=sizes.sample, response=sizes.response, seed=0
    )
    values = {"weight": 1 / sizes.response, "action": 1.0}
    trees = [Tree(example, (Branch(example.target, values),)) for example in examples]
    width = round_up(samples * sizes.sample, sizes.row_multiple)
    packer = Packer(RowShape(width, shards, samples, math.prod(setup.grid)), setup.config)
    tree_sizes = [tree.size for tree in trees]
    (rows,) = packer.pack(tree_sizes)
    batch = lay_out(trees.__getitem__, rows, packer.shape, setup.config, names=VALUES)
    ids = tuple(example.sample_id for example in examples)
    return StepBatch(0, ids, [batch], useful_work(tree_sizes), packer.executed(rows, tree_sizes))


# --- Sharded against unsharded ---


def sharded(setup: Setup) -> Iterator[Check]:
    """Logits and gradients of the adapters on all devices, against the fewest that hold the model."""
    name, devices = "sharded against unsharded", jax.devices()
    if len(devices) == 1:
        yield skipped(name, "there is one device")
        return
    few = fewest_devices(setup)
    if few == len(devices):
        yield skipped(name, "fewer devices do not hold the model")
        return
    small = Mesh(np.asarray(devices[:few]).reshape(1, few, 1), AXES, axis_types=(AxisType.Auto,) * len(AXES))
    batch = sft_batch(setup, 1).micro_batches[0]
    model = load_policy(setup.sft, setup.folder, small, _LORA, seed=0)
    expected = _logits_and_gradients(model, batch, small)
    del model
    found = _logits_and_gradients(setup.policy(setup.sft), batch, setup.mesh)
    logits, gradients = _SHARDED[setup.dtype]
    shape = " x ".join(f"{axis} {size}" for axis, size in setup.mesh.shape.items() if size > 1)
    where = f"{shape} against {few} device{'s' * (few > 1)}"
    error = float(np.abs(found[0] - expected[0]).max() / expected[0].std())
    yield at_most(f"{where}: logits", error, logits, f"{setup.dtype}, of their standard deviation")
    errors = [_norm(a - b) / _norm(b) for a, b in zip(found[1], expected[1], strict=True)]
    note = f"{setup.dtype}, the worst of {len(errors)} arrays, of its norm"
    yield at_most(f"{where}: gradients of adapters", float(np.max(errors)), gradients, note)


def fewest_devices(setup: Setup) -> int:
    """The smallest power of two of devices that hold the model and what a gradient needs."""
    memory, few = device_memory(jax.devices()[0]), 1
    shapes = nnx.eval_shape(lambda: Qwen3VL(setup.config, rngs=nnx.Rngs(0)))
    weights = count_parameters(shapes)["base"] * jnp.dtype(setup.dtype).itemsize
    # Next to it is a share of the model on all devices; the rest is for the rows.
    while memory is not None and few < jax.device_count() and 1.5 * weights / few > memory / 2:
        few *= 2
    return min(few, jax.device_count())


def _moved(params: Any) -> Any:
    """Adapters that do something: fresh ones add nothing, and half of their gradients are zero."""
    rng = np.random.default_rng(0)

    def move(x: jax.Array) -> jax.Array:
        noise = 0.01 * rng.standard_normal(x.shape, np.float32)
        return jax.device_put(np.asarray(x) + noise, x.sharding)

    return jax.tree.map(move, params)


def _norm(x: np.ndarray) -> float:
    return float(np.linalg.norm(x.ravel()))


def _logits_and_gradients(model: Qwen3VL, batch: Batch, mesh: Mesh) -> tuple[np.ndarray, list[np.ndarray]]:
    """Logits at the first scored places of each row, and the gradient of each array of the adapters."""
    graphdef, params, frozen = split_model(model, "lora")
    params = _moved(params)

    @jax.jit
    def compute(params: Any, frozen: Any, batch: Batch) -> Any:
        def loss(params: Any) -> Any:
            policy = nnx.merge(graphdef, params, frozen)
            policy.set_remat("full")
            return sft_loss(policy, batch, batch.inputs.tokens.shape[0])[0]

        policy = nnx.merge(graphdef, params, frozen)
        index = jnp.asarray(batch.scored.index)[:, :8, None]
        logits = policy.logits(jnp.take_along_axis(policy(batch.inputs), index, axis=1))
        return logits, jax.grad(loss)(params)

    logits, gradients = compute(params, frozen, on_mesh(batch, mesh))
    return np.asarray(logits), [np.asarray(leaf, np.float32) for leaf in jax.tree.leaves(gradients)]


# --- Supervised fine-tuning ---


def sft(setup: Setup) -> Iterator[Check]:
    """Twenty steps on one batch: the loss is finite and falls; tokens a second."""
    model, mesh, config = setup.policy(setup.sft), setup.mesh, setup.sft
    counts, batch = count_parameters(model), sft_batch(setup, setup.sizes.samples)
    optimizer = adamw(config.learning_rate, weight_decay=config.weight_decay, clip_norm=config.clip_norm)
    _, params, frozen = split_model(model, config.trainable)
    # Steps take over the arrays that they train; the model keeps its own.
    state = init_state(jax.tree.map(jnp.copy, params), optimizer, mesh)
    count = len(batch.sample_ids)

    def gradient(steps: Any) -> Any:
        rows = on_mesh(batch.micro_batches[0], mesh)
        return steps.run.lower(steps.zero(state.params), state.params, frozen, rows, None, jax.random.key(0))

    _, steps = with_remat(
        config.remat,
        model,
        config.trainable,
        lambda graphdef: sft_steps(graphdef, state, optimizer, count, mesh, setup.options),
        gradient,
        resident=state.opt_state,
    )
    losses, norms, seconds = [], [], []
    for number in range(STEPS):
        begin = time.monotonic()
        state, metrics = run_step(steps, state, frozen, batch, jax.random.key(number), mesh)
        seconds.append(time.monotonic() - begin)
        losses.append(metrics["loss/train"])
        norms.append(metrics["norm/gradient"])
        print(f"  step {number + 1}: loss {losses[-1]:.4f}, {seconds[-1]:.1f} s", flush=True)
    rows = batch.micro_batches[0].inputs.tokens.shape
    note = f"LoRA rank {_LORA.rank}, rows {rows[0]} x {rows[1]}, {setup.dtype}, remat {model.visual.remat}"
    finite = bool(np.isfinite(losses).all() and np.isfinite(norms).all())
    yield Check("SFT: losses and gradients are finite", "yes" if finite else "no", "yes", finite, note)
    fall = f"from {losses[0]:.4f} to {losses[-1]:.4f}"
    yield at_most("SFT: loss of the last step over the first's", losses[-1] / losses[0], 0.999, fall)
    median = float(np.median(seconds[1:]))
    speed = throughput(config, model, counts, batch, median, mesh)
    note = f"{median:.3g} s a step (median of {STEPS - 1}); the first, with compilation, {seconds[0]:.0f} s"
    yield Check("SFT: tokens a second", speed["tokens_per_second"], note=note)
    yield _mfu("SFT: MFU", speed.get("mfu"))


def _mfu(name: str, value: float | None) -> Check:
    # A share above 1 means that time or operations are counted wrongly.
    return (
        skipped(name, "no peak rate of this device is known") if value is None else at_most(name, value, 1.0)
    )


# --- Rollout and update ---


def rl(setup: Setup) -> Iterator[Check]:
    """Draws responses, then updates on them: tokens a second, and the sampler against training."""
    config = setup.rl
    model = setup.policy(config)
    nnx.update(model, _moved(nnx.state(model, LoRAParam)))
    groups = max(setup.sizes.groups, row_shards(setup.mesh))
    examples = random_examples(
        setup.config,
        setup.grid,
        groups,
        length=setup.sizes.prompt + setup.sizes.new_tokens,
        response=setup.sizes.new_tokens,
        seed=1,
    )
    responses: list[Responses] = []
    yield from _rollout(setup, model, examples, responses)
    del model
    gc.collect()  # The sampler's weights and caches: gradients need the memory.
    training = config.model_copy(update={"param_dtype": setup.dtype})
    model = setup.policy(training)
    if training != config:  # Read again, on a CPU.
        nnx.update(model, _moved(nnx.state(model, LoRAParam)))
    drawn = [
        # Alternating rewards pass both gates; equal ones do not, and train the salvage anchor.
        make_group(_prompt(example), one, _rewards(number, groups, len(one.tokens)), config.gates)
        for number, (example, one) in enumerate(zip(examples, responses, strict=True))
    ]
    yield from _update(setup, model, drawn)


def _prompt(example: Example) -> Prompt:
    patches = tuple(len(part) for part in example.patches)
    size = SampleSize(example.sample_id, example.length, example.num_targets, patches)
    return Prompt(size, lambda: example, target="")


def _rewards(number: int, groups: int, samples: int) -> list[float]:
    accepted = number < (groups + 1) // 2
    return [float(sample % 2) if accepted else 0.0 for sample in range(samples)]


def _rollout(
    setup: Setup, model: Qwen3VL, examples: list[Example], responses: list[Responses]
) -> Iterator[Check]:
    sizes, config, mesh = setup.sizes, setup.config, setup.mesh
    sampling = Sampling(sizes.group_samples, sizes.new_tokens)
    engine_sizes = sizes_for(
        [(example.prompt_length, [len(part) for part in example.patches]) for example in examples],
        samples=sampling.num_samples,
        response_tokens=sampling.max_response_tokens,
        lanes=sampling.num_samples * len(examples),
        shards=row_shards(mesh),
    )
    special = (config.image_token_id, config.video_token_id, config.vision_start_token_id)
    end = config.vision_end_token_id  # Never drawn, so that every response has all of its tokens.
    engine = Engine.for_policy(
        model, engine_sizes, eos=end, banned=(*special, end), layout=choose_layout(model)
    )
    begin = time.monotonic()
    engine.warm_up()
    compiling, engine.use = time.monotonic() - begin, LaneUse()
    begin = time.monotonic()
    requests = [
        Request(example, sampling, prompt_id=number, adapter=engine.policy)
        for number, example in enumerate(examples)
    ]
    responses += generate(engine, requests)
    seconds = time.monotonic() - begin
    tokens = sum(len(part) for one in responses for part in one.tokens)
    finite = all(np.isfinite(part).all() for one in responses for part in one.log_probs)
    note = (
        f"{len(examples)} prompts of {sizes.prompt} tokens, {sampling.num_samples} responses of "
        f"{sizes.new_tokens} to each; {engine_sizes.lanes} lanes"
    )
    expected = len(examples) * sampling.num_samples * sizes.new_tokens
    right = finite and tokens == expected
    yield Check("rollout: tokens with finite log-probabilities", f"{tokens}", f"{expected}", right, note)
    note = (
        f"{seconds:.3g} s with prefill, {engine.use.steps} decoding steps; compiling took {compiling:.0f} s"
    )
    yield Check("rollout: tokens a second", tokens / seconds, note=note)
    rate = peak_hbm_bytes(mesh.devices.flat[0].device_kind)
    name = "rollout: HBM floor of its decoding steps over its time"
    if rate is None:
        yield skipped(name, "the memory's rate of this device is not known")
    else:
        floor = decode_bytes(setup, engine.use.steps, len(examples)) / (rate * mesh.size)
        yield at_most(name, floor / seconds, 1.0, f"floor {floor:.3g} s")


def _update(setup: Setup, model: Qwen3VL, groups: list[Group]) -> Iterator[Check]:
    config, mesh, sizes = setup.rl, setup.mesh, setup.sizes
    optimizer = adamw(config.learning_rate, weight_decay=config.weight_decay, clip_norm=config.clip_norm)
    _, params, frozen = split_model(model, "lora")
    state = init_state(jax.tree.map(jnp.copy, params), optimizer, mesh)
    # Of a group with its salvage target.
    longest = sizes.prompt + (sizes.group_samples + 1) * sizes.new_tokens
    width = round_up(sizes.row_groups * longest, sizes.row_multiple)
    shape = RowShape(width, row_shards(mesh), sizes.row_groups, math.prod(setup.grid))
    packer = Packer(shape, setup.config)
    accepted = tuple(group for group in groups if group.accepted)
    rejected = tuple(group for group in groups if not group.accepted)
    batches = [MiniBatch(accepted, rejected)]
    model.set_remat("full")  # Fits wherever training does; MFU counts no repeated operations.
    graphdef = split_model(model, "lora")[0]
    steps = rl_steps(graphdef, state, optimizer, config.objective, mesh, setup.options)
    found: list[dict[str, float]] = []
    for version in range(2):  # The first one compiles; the second one is timed.
        updated = update_policy(
            steps, state, frozen, batches, packer, setup.config, mesh, salvage=True, version=version
        )
        state = updated.state
        found.append(updated.metrics)
        if version == 0:
            gaps = [np.abs(one.old - one.sampled) for one in updated.responses]
            gap = float(np.concatenate(gaps).mean())
            name = "sampler against training: log-probabilities of the drawn tokens"
            yield at_most(name, gap, _SAMPLER[setup.dtype], f"{setup.dtype}, mean difference in nats")
    first, last = found
    note = f"{len(accepted)} accepted and {len(rejected)} rejected groups"
    stepped = first["optimizer_steps"] == 1 and last["optimizer_steps"] == 1
    finite = stepped and all(math.isfinite(value) for one in found for value in one.values())
    yield Check("RL: losses and gradients are finite", "yes" if finite else "no", "yes", finite, note)
    ratio = abs(first.get("ppo_kl", math.nan))
    yield at_most("RL: divergence from the old policy before the first update", ratio, 0.0, "exactly 0")
    yield at_least("RL: norm of the gradient", first.get("norm/gradient", math.nan), 1e-12)
    note = f"{last['time/update']:.3g} s an update; the first, with compilation, {first['time/update']:.0f} s"
    yield Check("RL: tokens a second of an update", last["tokens_per_second/update"], note=note)
    yield _mfu("RL: MFU of an update", last.get("mfu/update"))


# --- Floors ---


def decode_bytes(setup: Setup, steps: int, prompts: int) -> float:
    """Bytes that decoding steps must read on all devices: weights, and caches of prompts and responses."""
    sizes, config = setup.sizes, setup.config
    # A token multiplies each weight of the decoder and of the head once, which are two operations.
    weights = forward_flops(config, Work(tokens=1, pairs=0, scored=1)) // 2
    # Responses are half as long as at their end in the mean.
    cached = prompts * (sizes.prompt + sizes.group_samples * sizes.new_tokens / 2)
    itemsize = jnp.dtype(setup.dtype).itemsize
    return steps * (weights * itemsize + cached * token_bytes(config.text, setup.dtype, "model"))
