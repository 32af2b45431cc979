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
    abstract_inputs,
    abstract_run,
    image_window,
    on_mesh,
)
from rmsweb_jax.data.batching import Batch, round_up
from rmsweb_jax.data.packing import RowShape, TreeSize, useful_work
from rmsweb_jax.data.sft import VALUES as SFT_VALUES
from rmsweb_jax.decoding.cache import PREFILLED_SPECS
from rmsweb_jax.decoding.generator import Pause, decode_responses, prefill_prompts, prepare_weights
from rmsweb_jax.decoding.pool import (
    POOL_SPECS,
    DecodePool,
    PromptState,
    empty_decode_state,
    empty_prompts,
    insert_prompts,
)
from rmsweb_jax.decoding.weights import weight_specs
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.flops import (
    Work,
    causal_pairs,
    decode_flops,
    forward_flops,
    training_flops,
)
from rmsweb_jax.qwen3_vl.sharding import param_shardings
from rmsweb_jax.rl.batching import VALUES as RL_VALUES
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.rl.step import rl_steps
from rmsweb_jax.sft.config import SftConfig
from rmsweb_jax.sft.step import sft_steps
from rmsweb_jax.training.mesh import check_rows, row_shards, tree_shardings
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
      iteration_reads: arrays that each iteration of the program's main loop must read once; None without a
        loop.
      resident: by part, arrays that stay on the devices meanwhile without being its arguments.
    """

    name: str
    lower: Callable[[], Any]
    arguments: dict[str, Any]
    useful_flops: int = 0
    executed_flops: int = 0
    iteration_reads: Any = None
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
    steps = rl_steps(run.graphdef, run.state, run.optimizer, settings.objective, mesh, options)
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


def sampler_programs(settings: RlConfig, config: Qwen3VLConfig, mesh: Mesh, images: int = 1) -> list[Program]:
    """Makes the programs that prepare weights, prefill one prompt per shard, insert it, and decode.

    Args:
      images: screenshots of a prompt.

    Raises:
      UserError: the mesh does not divide the slots.
    """
    run = abstract_run(config, mesh, settings, settings.lora)
    prompt = round_up(settings.max_prompt_tokens, settings.bucket_multiple)
    slots, samples, max_new_tokens = (
        settings.rollout_slots,
        settings.num_samples,
        settings.max_response_tokens,
    )
    check_rows(run.mesh, slots, "rollout_slots")
    rows = row_shards(mesh)
    policy = nnx.merge(run.graphdef, run.state.params, run.frozen)
    attention = policy.attention
    graphdef, state = nnx.split(policy)
    merged = {"adapters": True, "merge": settings.merge_adapters, "mesh": mesh}
    cached = {"adapters": True, "cache_dtype": settings.cache_dtype, "mesh": mesh}
    window = image_window(config, settings.max_pixels)
    prompts = abstract_inputs(run, RowShape(prompt, rows, images, window))
    patches = rows * images * window
    weights = jax.eval_shape(functools.partial(prepare_weights, graphdef, **merged), state)
    weights = on_mesh(weights, tree_shardings(weights, weight_specs(weights, mesh), mesh))
    prefilled = jax.eval_shape(functools.partial(prefill_prompts, graphdef, **cached), state, prompts)
    hidden, prefix = on_mesh(prefilled, tree_shardings(prefilled, PREFILLED_SPECS, mesh))
    words, numbers = run.rows((rows,), jnp.uint32), run.rows((rows,), jnp.float32)
    prefilled_prompts = PromptState(prefix, hidden, words, words, numbers)
    prompts_held = jax.eval_shape(
        functools.partial(empty_prompts, slots=slots, width=prompt, attention=attention), prefilled_prompts
    )
    decode_state = jax.eval_shape(
        functools.partial(
            empty_decode_state,
            config=config.text,
            groups=slots,
            num_samples=samples,
            max_new_tokens=max_new_tokens,
            dtype=jnp.dtype(settings.dtype),
            cache_dtype=settings.cache_dtype,
            fresh=False,
            attention=attention,
        )
    )
    pool = DecodePool(prompts_held, decode_state)
    pool = on_mesh(pool, tree_shardings(pool, POOL_SPECS, mesh))
    banned, number = (
        run.everywhere(jax.ShapeDtypeStruct(shape, dtype))
        for shape, dtype in (((config.text.vocab_size,), jnp.bool_), ((), jnp.int32))
    )
    work = Work(rows * prompt, rows * causal_pairs(prompt), 0, patches, patches * window)
    prefill = forward_flops(config, work) + 2 * rows * prompt * run.adapters
    decode = decode_flops(config, slots * samples, prompt, max_new_tokens)
    model: dict[str, Any] = {"weights": run.frozen, "adapters": run.state.params}
    return [
        Program(
            "rl weights for sampling",
            lambda: prepare_weights.lower(graphdef, state, **merged),
            model,
            resident={"optimizer": run.state.opt_state},
        ),
        Program(
            f"rl prefill, {rows} x {prompt:,}",
            lambda: prefill_prompts.lower(graphdef, state, prompts, **cached),
            {**model, "batch": prompts},
            prefill,
            prefill,
            resident={"optimizer": run.state.opt_state, "sampling weights": weights, "cache": pool},
        ),
        Program(
            f"rl insertion, {rows} of {slots}",
            lambda: insert_prompts.lower(pool, prefilled_prompts, run.rows((rows,), jnp.int32), mesh=mesh),
            {"cache": pool, "batch": prefilled_prompts},
            resident={**model, "optimizer": run.state.opt_state, "sampling weights": weights},
        ),
        Program(
            f"rl decode, {slots} x {samples} x ({prompt:,} + {max_new_tokens:,})",
            lambda: decode_responses.lower(
                weights,
                pool.prompts,
                pool.state,
                banned,
                number,
                Pause(number, number),
                config=config.text,
                max_new_tokens=max_new_tokens,
                cache_dtype=settings.cache_dtype,
                attention=attention,
            ),
            {
                "sampling weights": weights,
                "cache": (pool.prompts.prefix, pool.state.suffix),
                "batch": (hidden, banned),
            },
            decode,
            decode,
            # A step reads only one row of the embeddings for each token.
            iteration_reads=(weights._replace(embedding=None), pool.prompts.prefix, pool.state.suffix),
            resident={**model, "optimizer": run.state.opt_state},
        ),
    ]
