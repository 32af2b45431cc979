"""The programs of a training run, on abstract arrays."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from rmsweb_jax.aot.abstract import (
    AbstractRun,
    abstract_batch,
    abstract_run,
    image_window,
    on_mesh,
)
from rmsweb_jax.data.batching import Batch
from rmsweb_jax.data.packing import RowShape, TreeSize, useful_work
from rmsweb_jax.decoding.cache import LANE_SPECS, SLOT_SPECS
from rmsweb_jax.decoding.engine import empty_chunk, empty_table
from rmsweb_jax.decoding.forward import CHUNK_SPECS, Vision
from rmsweb_jax.decoding.memory import abstract_weights, fit_memory
from rmsweb_jax.decoding.programs import (
    allocate,
    decode,
    empty_adapters,
    prefill,
    prepare_weights,
    store,
)
from rmsweb_jax.decoding.sizes import sizes_for
from rmsweb_jax.decoding.weights import Layout, adapter_specs
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.flops import (
    Work,
    decode_flops,
    forward_flops,
    training_flops,
)
from rmsweb_jax.qwen.sharding import param_shardings
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.rl.step import VALUES as RL_VALUES
from rmsweb_jax.rl.step import rl_steps
from rmsweb_jax.sft.config import SftConfig
from rmsweb_jax.sft.data import VALUES as SFT_VALUES
from rmsweb_jax.sft.step import sft_steps
from rmsweb_jax.training.mesh import device_bytes, row_shards, tree_shardings
from rmsweb_jax.training.performance import compiler_options

NO_WORK = Work(0, 0, 0)


@dataclasses.dataclass(frozen=True)
class Program:
    """A program to compile.

    Attributes:
      name: row of the table.
      lower: makes its lowering.
      arguments: its arguments by part ("weights", "adapters", "optimizer", "cache", "batch").
      useful_flops, executed_flops: of one call over all devices; 0 where matrix products are negligible.
      resident: by part, arrays that stay on the devices meanwhile without being its arguments.
    """

    name: str
    lower: Callable[[], Any]
    arguments: dict[str, Any]
    useful_flops: int = 0
    executed_flops: int = 0
    resident: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def _accumulated(run: AbstractRun, steps: Any) -> Any:
    total = jax.eval_shape(steps.zero, run.state.params)
    gradients = on_mesh(total.gradients, param_shardings(total.gradients, run.mesh))
    return total.replace(gradients=gradients, sums=run.everywhere(total.sums))


def full_rows(
    settings: SftConfig | RlConfig, config: Qwen3VLConfig, mesh: Mesh, tree: TreeSize, images: int
) -> tuple[RowShape, Work]:
    """Makes the shape of the widest rows, and the work of a micro-batch full of such trees.

    Args:
      images: screenshots of a tree, of the largest size; a row has room for as many as it can hold trees.

    Raises:
      UserError: a row does not hold the prompt with one of its branches.
    """
    rows = row_shards(mesh)
    width = settings.row_tokens // settings.row_multiple * settings.row_multiple
    if tree.prompt + tree.branches[0] > width:
        raise UserError(
            f"a prompt of {tree.prompt:,} tokens and a response of {tree.branches[0]:,} exceed "
            f"config.row_tokens={settings.row_tokens:,}: raise it"
        )
    whole, left = divmod(width, tree.tokens)
    part = tree.part(range(max(0, (left - tree.prompt) // tree.branches[0])))
    held = whole * [tree] + ([part] if part.branches else [])
    window = image_window(config, settings.max_pixels)
    shape = RowShape(width, rows, len(held) * images, window)
    work, patches = useful_work(held), rows * shape.images * window
    return shape, Work(rows * width, rows * work.pairs, rows * work.scored, patches, patches * window)


def sft_programs(
    settings: SftConfig, config: Qwen3VLConfig, mesh: Mesh, shape: RowShape, work: Work = NO_WORK
) -> list[Program]:
    """Makes the gradient of a micro-batch of rows of this shape, and the optimizer step.

    Args:
      work: of the micro-batch, to count operations.
    """
    # The programs of training itself, lowered with abstract arguments: what compiles here compiles there.
    run = abstract_run(config, mesh, settings, settings.lora, settings.trainable)
    options = compiler_options(mesh.devices.flat[0], settings.compiler_options)
    steps = sft_steps(run.graphdef, run.state, run.optimizer, settings.batch_size, mesh, options)
    batch = abstract_batch(run, shape, SFT_VALUES)
    total, key = _accumulated(run, steps), run.everywhere(jax.eval_shape(lambda: jax.random.key(0)))
    flops = training_flops(config, work, run.adapters, settings.remat, settings.trainable)
    arguments = (total, run.state.params, run.frozen, batch, None, key)
    return [
        Program(
            f"sft gradient, {_shape(batch)}, remat {settings.remat}",
            lambda: steps.run.lower(*arguments),
            {"weights": run.frozen, "adapters": run.state.params, "gradients": total, "batch": batch},
            flops.useful,
            flops.executed,
            resident={"optimizer": run.state.opt_state},
        ),
        _update_program("sft", steps, run, total),
    ]


def _shape(batch: Batch) -> str:
    rows, width = batch.inputs.tokens.shape
    return f"{rows} x {width:,}"


def _update_program(name: str, steps: Any, run: AbstractRun, total: Any) -> Program:
    return Program(
        f"{name} update",
        lambda: steps.update.lower(run.state, total),
        {"adapters": run.state.params, "optimizer": run.state.opt_state, "gradients": total},
        resident={"weights": run.frozen},
    )


def rl_programs(
    settings: RlConfig, config: Qwen3VLConfig, mesh: Mesh, shape: RowShape, work: Work = NO_WORK
) -> list[Program]:
    """Makes the gradient of a micro-batch of rows of this shape, and the optimizer step.

    The gradient's program also computes the log-probability passes.

    Args:
      work: of the micro-batch, to count operations.
    """
    run = abstract_run(config, mesh, settings, settings.lora)
    options = compiler_options(mesh.devices.flat[0], settings.compiler_options)
    steps = rl_steps(
        run.graphdef,
        run.state,
        run.optimizer,
        settings.objective,
        mesh,
        options,
        temperature=settings.temperature,
    )
    batch, total = abstract_batch(run, shape, RL_VALUES), _accumulated(run, steps)
    flops = training_flops(config, work, run.adapters, settings.remat)
    train = run.everywhere(jax.ShapeDtypeStruct((), jnp.bool_))
    arguments = (total, run.state.params, run.frozen, batch, train, None)
    return [
        Program(
            f"rl gradient, {_shape(batch)}, remat {settings.remat}",
            lambda: steps.run.lower(*arguments),
            {"weights": run.frozen, "adapters": run.state.params, "gradients": total, "batch": batch},
            flops.useful,
            flops.executed,
            resident={"optimizer": run.state.opt_state},
        ),
        _update_program("rl", steps, run, total),
    ]


def sampler_programs(
    settings: RlConfig,
    config: Qwen3VLConfig,
    mesh: Mesh,
    images: int = 1,
    hbm_gib: float | None = None,
    split: bool | None = None,
) -> list[Program]:
    """Makes the programs that prepare weights, prefill a chunk of a prompt for each shard, and decode.

    Args:
      images: screenshots of a prompt.
      hbm_gib: memory of a device, by which lanes and the layout of weights are chosen.
      split: split weights for decoding over `fsdp`; by default if their copies need over a third of a device.

    Raises:
      UserError: not even one prompt fits.
    """
    run = abstract_run(config, mesh, settings, settings.lora)
    policy = nnx.merge(run.graphdef, run.state.params, run.frozen)
    graphdef, state = nnx.split(policy)
    dtype = jnp.dtype(settings.dtype)
    memory = None if hbm_gib is None else hbm_gib * 2**30
    if split is None:
        whole = abstract_weights(policy, Layout(policy.attention))
        split = memory is not None and mesh.shape["fsdp"] > 1 and 3 * device_bytes(whole) > memory
    layout = Layout(policy.attention, bool(split))
    weights = abstract_weights(policy, layout)
    resident = {"weights": run.frozen, "optimizer": run.state.opt_state}
    shards = row_shards(mesh)
    sizes = sizes_for(
        [(settings.max_prompt_tokens, (image_window(config, settings.max_pixels),) * images)],
        samples=settings.num_samples,
        response_tokens=settings.max_response_tokens,
        lanes=settings.rollout_lanes or shards,
        shards=shards,
        platform=mesh.devices.flat[0].platform,
    )
    if not settings.rollout_lanes:
        held = device_bytes((run.frozen, run.state))
        sizes = fit_memory(policy, sizes, layout, memory, held, settings.cache_dtype)
    common = {"config": config.text, "cache_dtype": settings.cache_dtype, "layout": layout}
    slots, lanes = jax.eval_shape(
        functools.partial(allocate, sizes=sizes, dtype=dtype, counted=False, **common)
    )
    slots = on_mesh(slots, tree_shardings(slots, SLOT_SPECS, mesh))
    lanes = on_mesh(lanes, tree_shardings(lanes, LANE_SPECS, mesh))
    rank = settings.lora.rank
    adapters = jax.eval_shape(
        functools.partial(empty_adapters, config=config.text, count=1, rank=rank, dtype=dtype, layout=layout)
    )
    adapters = on_mesh(adapters, tree_shardings(adapters, adapter_specs(adapters, layout), mesh))
    length = sizes.chunks[-1]

    def abstract(tree: Any) -> Any:
        return jax.tree.map(lambda x: run.rows(x.shape, x.dtype), tree)

    chunk, table = abstract(empty_chunk(shards, length)), abstract(empty_table(sizes))
    merged = max(1, images * sizes.window // config.vision.merge_unit)
    feature = run.rows((shards, merged, config.text.hidden_size), dtype)
    vision = Vision(feature, (feature,) * config.num_deepstack) if images else None
    chunk_cache = jax.eval_shape(
        functools.partial(prefill, **common), weights, adapters, slots, chunk, vision
    )
    chunk_cache = on_mesh(chunk_cache, tree_shardings(chunk_cache, CHUNK_SPECS, mesh))
    count = sizes.lanes
    banned, number = (
        run.everywhere(jax.ShapeDtypeStruct(shape, kind))
        for shape, kind in (((config.text.vocab_size,), jnp.bool_), ((), jnp.int32))
    )
    prompt, response = sizes.prompt_width, sizes.response_width
    # On average half of a prompt is before a chunk.
    work = Work(shards * length, shards * length * (prompt // 2), 0)
    prefilled = forward_flops(config, work) + 2 * shards * length * run.adapters
    steps = sizes.steps
    decoded = decode_flops(config, count, prompt, response) * steps // max(1, response - 1)
    return [
        Program(
            "rl weights for sampling",
            lambda: prepare_weights.lower(graphdef, state, layout=layout),
            {"weights": run.frozen, "adapters": run.state.params},
            resident={"optimizer": run.state.opt_state},
        ),
        Program(
            f"rl prefill, {shards} x {length:,} of {prompt:,}",
            lambda: prefill.lower(weights, adapters, slots, chunk, vision, **common),
            {"sampling weights": weights, "adapters": adapters, "cache": slots, "batch": (chunk, vision)},
            prefilled,
            prefilled,
            resident=resident | {"cache of lanes": lanes},
        ),
        Program(
            f"rl chunk into {sizes.prompts} prompt slots",
            lambda: store.lower(slots, chunk, chunk_cache, layout=layout),
            {"cache": slots, "batch": (chunk, chunk_cache)},
            resident=resident | {"sampling weights": weights, "cache of lanes": lanes},
        ),
        Program(
            f"rl decode, {count} lanes, {sizes.prompts} x {prompt:,} + {response:,}",
            lambda: decode.lower(
                weights,
                adapters,
                slots,
                lanes,
                table,
                banned,
                number,
                number,
                number,
                None,
                most_steps=steps,
                **common,
            ),
            {
                "sampling weights": weights,
                "adapters": adapters,
                "cache": (slots, lanes.cache),
                "batch": (table, banned),
            },
            decoded,
            decoded,
            resident=resident,
        ),
    ]
