"""The compiled programs of a training run, on arrays that are shapes only."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from rmsweb_jax.aot.flops import Work, causal_pairs, slot_pairs, training_flops
from rmsweb_jax.data.batching import Batch, Targets, round_up
from rmsweb_jax.errors import UserError
from rmsweb_jax.mesh import BATCH, check_mesh, param_shardings
from rmsweb_jax.optimizers import adamw
from rmsweb_jax.qwen3_vl.backends import default_attention
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.inputs import ModelInputs, SlotLayout, VisionInputs
from rmsweb_jax.qwen3_vl.lora import LoRAConfig, add_lora, count_parameters
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.rl.losses import TokenBatch
from rmsweb_jax.rl.step import make_steps as make_rl_steps
from rmsweb_jax.sft.config import SftConfig
from rmsweb_jax.sft.step import TrainState, make_steps, split_model


@dataclasses.dataclass(frozen=True)
class Program:
    """A program to compile.

    Attributes:
      name: in the table.
      lower: makes its lowering.
      arguments: what it is given, by part ("weights", "adapters", "optimizer", "batch").
      useful_flops, executed_flops: over all devices, of one call; 0 where matrix products are negligible.
    """

    name: str
    lower: Callable[[], Any]
    arguments: dict[str, Any]
    useful_flops: int = 0
    executed_flops: int = 0


@dataclasses.dataclass(frozen=True)
class AbstractRun:
    """A model on a mesh, split for LoRA training, all of it `jax.ShapeDtypeStruct`s with shardings."""

    config: Qwen3VLConfig
    mesh: Mesh
    graphdef: Any
    state: TrainState
    frozen: Any
    optimizer: Any
    adapters: int

    def rows(self, shape: tuple[int, ...], dtype: Any, axis: int = 0) -> Any:
        """An abstract array whose `axis` is split like the rows of a batch."""
        sharding = NamedSharding(self.mesh, P(*[None] * axis, BATCH[0]))
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    def everywhere(self, tree: Any) -> Any:
        return on_mesh(tree, jax.tree.map(lambda _: NamedSharding(self.mesh, P()), tree))

    @property
    def row_shards(self) -> int:
        return self.mesh.shape["data"] * self.mesh.shape["fsdp"]


def on_mesh(tree: Any, shardings: Any) -> Any:
    """Abstract arrays with the given shardings."""
    return jax.tree.map(
        lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree, shardings
    )


def abstract_run(
    config: Qwen3VLConfig, mesh: Mesh, settings: SftConfig | RlConfig, lora: LoRAConfig
) -> AbstractRun:
    """Model, adapters and optimizer of a run; nothing is allocated.

    Raises:
      UserError: the mesh does not divide the model.
    """
    check_mesh(config, mesh)

    def make() -> Qwen3VL:
        model = Qwen3VL(
            config,
            rngs=nnx.Rngs(0),
            dtype=jnp.dtype(settings.dtype),
            param_dtype=jnp.dtype(settings.param_dtype),
            remat=settings.remat,
            attention=default_attention(config.text.head_dim, mesh, platform="tpu"),
        )
        add_lora(model, lora, nnx.Rngs(0))
        return model

    model = nnx.eval_shape(make)
    graphdef, params, frozen = split_model(model, "lora")
    optimizer = adamw(
        settings.learning_rate, weight_decay=settings.weight_decay, clip_norm=settings.clip_norm
    )
    opt_state = jax.eval_shape(optimizer.init, params)
    params, opt_state, frozen = (
        on_mesh(tree, param_shardings(tree, mesh)) for tree in (params, opt_state, frozen)
    )
    adapters = count_parameters(model)["adapters"]
    return AbstractRun(config, mesh, graphdef, TrainState(params, opt_state), frozen, optimizer, adapters)


def _vision(run: AbstractRun, images: int, max_pixels: int) -> tuple[VisionInputs, int, int]:
    """Abstract patches of `images` images of the largest size; patches, and pairs of them, in all."""
    vision = run.config.vision
    window = round_up(max_pixels // vision.patch_size**2, vision.merge_unit)
    count = images * window
    inputs = VisionInputs(
        patches=run.rows((count, vision.patch_dim), jnp.float32),
        segment_ids=run.rows((count,), jnp.int32),
        pos_index=run.rows((count, 4), jnp.int32),
        pos_weight=run.rows((count, 4), jnp.float32),
        hw=run.rows((count, 2), jnp.int32),
        window=window,
    )
    return inputs, count, images * window**2


def _inputs(
    run: AbstractRun, rows: int, width: int, vision: VisionInputs, layout: SlotLayout | None = None
) -> ModelInputs:
    return ModelInputs(
        tokens=run.rows((rows, width), jnp.int32),
        positions=run.rows((3, rows, width), jnp.int32, axis=1),
        segment_ids=run.rows((rows, width), jnp.int32),
        slot_ids=None if layout is None else run.rows((rows, width), jnp.int32),
        image_index=run.rows((rows, width), jnp.int32),
        vision=vision,
        layout=layout,
    )


def _row_count(run: AbstractRun, rows: int, key: str) -> int:
    if rows % run.row_shards:
        raise UserError(
            f"config.{key}={rows} rows do not divide over data x fsdp = {run.row_shards}: change it or "
            "config.mesh"
        )
    return rows


def _accumulated(run: AbstractRun, steps: Any) -> Any:
    total = jax.eval_shape(steps.zero, run.state.params)
    gradients = on_mesh(total.gradients, param_shardings(total.gradients, run.mesh))
    return total.replace(gradients=gradients, sums=run.everywhere(total.sums))


def sft_programs(
    settings: SftConfig, config: Qwen3VLConfig, mesh: Mesh, response: int, images: int = 1
) -> list[Program]:
    """Gradient of a micro-batch of the longest rows, and the optimizer step.

    Args:
      response: scored places a row; a row is `max_length` tokens of prompt and these.
      images: screenshots a row.
    """
    run = abstract_run(config, mesh, settings, settings.lora)
    steps = make_steps(run.graphdef, run.state, run.optimizer, settings.batch_size, mesh)
    rows = _row_count(run, settings.micro_batch_size, "micro_batch_size")
    width = round_up(settings.max_length, settings.bucket_multiple) + round_up(
        response, settings.bucket_multiple
    )
    vision, patches, patch_pairs = _vision(run, rows * images, settings.max_pixels)
    places = ((rows, response), jnp.int32), ((rows, response), jnp.float32)
    index, tokens, mask, action_mask = (run.rows(*places[number // 2]) for number in range(4))
    batch = Batch(_inputs(run, rows, width, vision), Targets(index, tokens, mask, action_mask))
    total, key = _accumulated(run, steps), run.everywhere(jax.eval_shape(lambda: jax.random.key(0)))
    work = Work(rows * width, rows * causal_pairs(width), rows * response, patches, patch_pairs)
    flops = training_flops(config, work, run.adapters, settings.remat)
    model = {"weights": run.frozen, "adapters": run.state.params}
    return [
        Program(
            f"sft gradient, {rows} x {width:,}",
            lambda: steps.add.lower(total, run.state.params, run.frozen, batch, key),
            {**model, "gradients": total, "batch": batch},
            flops.useful,
            flops.executed,
        ),
        _update_program("sft", steps, run, total),
    ]


def _update_program(name: str, steps: Any, run: AbstractRun, total: Any) -> Program:
    return Program(
        f"{name} update",
        lambda: steps.update.lower(run.state, total),
        {"adapters": run.state.params, "optimizer": run.state.opt_state, "gradients": total},
    )


def rl_programs(
    settings: RlConfig, config: Qwen3VLConfig, mesh: Mesh, response: int, images: int = 1
) -> list[Program]:
    """Gradient of a micro-batch of full rows, and the optimizer step.

    The gradient's program is that of the log-probability passes too.

    Args:
      response: size of a response slot.
      images: screenshots a prompt.
    """
    run = abstract_run(config, mesh, settings, settings.lora)
    steps = make_rl_steps(run.graphdef, run.state, run.optimizer, settings.objective, mesh)
    prompt = round_up(settings.max_prompt_tokens, settings.bucket_multiple)
    slots = min(settings.num_samples + 1, (settings.micro_batch_tokens - prompt) // response)
    if slots < 1:
        raise UserError(
            f"a prompt of {prompt:,} tokens and a response of {response:,} exceed config.micro_batch_tokens="
            f"{settings.micro_batch_tokens:,}: raise it"
        )
    layout, scored = SlotLayout(prompt, response), slots * response
    width = prompt + scored
    rows = max(1, settings.micro_batch_tokens // width) * run.row_shards
    vision, patches, patch_pairs = _vision(run, rows * images, settings.max_pixels)
    inputs = _inputs(run, rows, width, vision, layout)
    values = {name: run.rows((rows, scored), jnp.float32) for name in TokenBatch.__dataclass_fields__}
    values |= {name: run.rows((rows, scored), jnp.int32) for name in ("index", "tokens")}
    targets, total = TokenBatch(**values), _accumulated(run, steps)
    work = Work(rows * width, rows * slot_pairs(layout, slots), rows * scored, patches, patch_pairs)
    flops = training_flops(config, work, run.adapters, settings.remat)
    shape = f"{rows} x ({prompt:,} + {slots} x {response:,})"
    parts = {
        "weights": run.frozen,
        "adapters": run.state.params,
        "gradients": total,
        "batch": (inputs, targets),
    }
    arguments = (total, run.state.params, run.frozen, inputs, targets)
    return [
        Program(
            f"rl gradient, {shape}",
            lambda: steps.run.lower(*arguments, run.everywhere(jax.ShapeDtypeStruct((), jnp.bool_))),
            parts,
            flops.useful,
            flops.executed,
        ),
        _update_program("rl", steps, run, total),
    ]
