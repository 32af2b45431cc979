"""The programs of a training run, on abstract arrays."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from rmsweb_jax.aot.abstract import (
    AbstractRun,
    abstract_inputs,
    abstract_run,
    abstract_vision,
    on_mesh,
)
from rmsweb_jax.data.batching import SftBatch, Targets, round_up
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
    slot_pairs,
    training_flops,
)
from rmsweb_jax.qwen3_vl.inputs import RowLayout
from rmsweb_jax.qwen3_vl.sharding import param_shardings
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.rl.losses import TokenBatch
from rmsweb_jax.rl.step import make_steps as make_rl_steps
from rmsweb_jax.sft.config import SftConfig
from rmsweb_jax.sft.step import make_steps
from rmsweb_jax.training.mesh import check_rows, row_shards, tree_shardings


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
    """

    name: str
    lower: Callable[[], Any]
    arguments: dict[str, Any]
    useful_flops: int = 0
    executed_flops: int = 0
    iteration_reads: Any = None


def _accumulated(run: AbstractRun, steps: Any) -> Any:
    total = jax.eval_shape(steps.zero, run.state.params)
    gradients = on_mesh(total.gradients, param_shardings(total.gradients, run.mesh))
    return total.replace(gradients=gradients, sums=run.everywhere(total.sums))


def sft_programs(
    settings: SftConfig, config: Qwen3VLConfig, mesh: Mesh, response: int, images: int = 1
) -> list[Program]:
    """Makes the gradient of a micro-batch of the longest rows, and the optimizer step.

    Args:
      response: scored tokens of a row, which come after `max_length` tokens of prompt.
      images: screenshots of a row.
    """
    # The programs of training itself, lowered with abstract arguments: what compiles here compiles there.
    run = abstract_run(config, mesh, settings, settings.lora)
    steps = make_steps(run.graphdef, run.state, run.optimizer, settings.batch_size, mesh)
    rows = settings.micro_batch_size
    check_rows(mesh, rows, "micro_batch_size")
    width = round_up(settings.max_length, settings.bucket_multiple) + round_up(
        response, settings.bucket_multiple
    )
    vision, patches, patch_pairs = abstract_vision(run, rows * images, settings.max_pixels)
    dtypes = (jnp.int32, jnp.int32, jnp.int32, jnp.float32)
    targets = Targets(*(run.rows((rows, response), dtype) for dtype in dtypes))
    batch = SftBatch(abstract_inputs(run, rows, width, vision), targets)
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
    """Makes the gradient of a micro-batch of full rows, the optimizer step, and the sampler's programs.

    The gradient's program also computes the log-probability passes.

    Args:
      response: tokens of a response slot.
      images: screenshots of a prompt.

    Raises:
      UserError: a prompt and a response exceed a micro-batch, or the mesh does not divide the rows.
    """
    run = abstract_run(config, mesh, settings, settings.lora)
    steps = make_rl_steps(run.graphdef, run.state, run.optimizer, settings.objective, mesh)
    prompt = round_up(settings.max_prompt_tokens, settings.bucket_multiple)
    # As many slots as training would put in a row: the samples and the salvage target, if they fit.
    slots = min(settings.num_samples + 1, (settings.micro_batch_tokens - prompt) // response)
    if slots < 1:
        raise UserError(
            f"a prompt of {prompt:,} tokens and a response of {response:,} exceed config.micro_batch_tokens="
            f"{settings.micro_batch_tokens:,}: raise it"
        )
    layout, scored = RowLayout(prompt, response), slots * response
    width = prompt + scored
    rows = max(1, settings.micro_batch_tokens // width) * row_shards(run.mesh)
    vision, patches, patch_pairs = abstract_vision(run, rows * images, settings.max_pixels)
    inputs = abstract_inputs(run, rows, width, vision, layout)
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
        *_sampler_programs(settings, run, prompt, images),
    ]


def _sampler_programs(settings: RlConfig, run: AbstractRun, prompt: int, images: int) -> list[Program]:
    """Makes the programs that prepare weights, prefill one prompt per shard, insert it, and decode."""
    config, mesh = run.config, run.mesh
    slots, samples, max_new_tokens = (
        settings.rollout_slots,
        settings.num_samples,
        settings.max_response_tokens,
    )
    check_rows(run.mesh, slots, "rollout_slots")
    rows = row_shards(mesh)
    model = nnx.merge(run.graphdef, run.state.params, run.frozen)
    attention = model.attention
    graphdef, state = nnx.split(model)
    merged = {"adapters": True, "merge": settings.merge_adapters, "mesh": mesh}
    cached = {"adapters": True, "cache_dtype": settings.cache_dtype, "mesh": mesh}
    vision, patches, patch_pairs = abstract_vision(run, rows * images, settings.max_pixels)
    prompts = abstract_inputs(run, rows, prompt, vision)
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
    work = Work(rows * prompt, rows * causal_pairs(prompt), 0, patches, patch_pairs)
    prefill = forward_flops(config, work) + 2 * rows * prompt * run.adapters
    decode = decode_flops(config, slots * samples, prompt, max_new_tokens)
    return [
        Program(
            "rl weights for sampling",
            lambda: prepare_weights.lower(graphdef, state, **merged),
            {"weights": run.frozen, "adapters": run.state.params},
        ),
        Program(
            f"rl prefill, {rows} x {prompt:,}",
            lambda: prefill_prompts.lower(graphdef, state, prompts, **cached),
            {"weights": run.frozen, "adapters": run.state.params, "batch": prompts},
            prefill,
            prefill,
        ),
        Program(
            f"rl insertion, {rows} of {slots}",
            lambda: insert_prompts.lower(pool, prefilled_prompts, run.rows((rows,), jnp.int32), mesh=mesh),
            {"cache": pool, "batch": prefilled_prompts},
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
                "weights": weights,
                "cache": (pool.prompts.prefix, pool.state.suffix),
                "batch": (hidden, banned),
            },
            decode,
            decode,
            # A step reads only one row of the embeddings for each token.
            iteration_reads=(weights._replace(embedding=None), pool.prompts.prefix, pool.state.suffix),
        ),
    ]
