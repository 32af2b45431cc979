"""The programs of a training run, on abstract arrays."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
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
    abstract_vision,
    on_mesh,
)
from rmsweb_jax.data.batching import Batch, round_up
from rmsweb_jax.data.packing import TreeSize, useful_work
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
    """Makes the gradient of a micro-batch of the widest rows, and the optimizer step.

    Args:
      response: scored tokens of a sample, whose length is `max_length`.
      images: screenshots of a sample.
    """
    # The programs of training itself, lowered with abstract arguments: what compiles here compiles there.
    run = abstract_run(config, mesh, settings, settings.lora)
    steps = make_steps(run.graphdef, run.state, run.optimizer, settings.batch_size, mesh)
    sample = TreeSize(settings.max_length - response, (response,))
    batch, work = _full_rows(run, settings, sample, images, SFT_VALUES)
    total, key = _accumulated(run, steps), run.everywhere(jax.eval_shape(lambda: jax.random.key(0)))
    flops = training_flops(config, work, run.adapters, settings.remat)
    model = {"weights": run.frozen, "adapters": run.state.params}
    return [
        Program(
            f"sft gradient, {_shape(batch)}",
            lambda: steps.add.lower(total, run.state.params, run.frozen, batch, key),
            {**model, "gradients": total, "batch": batch},
            flops.useful,
            flops.executed,
        ),
        _update_program("sft", steps, run, total),
    ]


def _full_rows(
    run: AbstractRun,
    settings: SftConfig | RlConfig,
    tree: TreeSize,
    images: int,
    names: Sequence[str],
) -> tuple[Batch, Work]:
    """Makes a micro-batch of the widest rows, and its work if they hold as much as they can of such trees.

    Args:
      images: screenshots of a tree; a row has room for as many as it can hold trees.
    """
    rows = row_shards(run.mesh)
    width = settings.row_tokens // settings.row_multiple * settings.row_multiple
    if tree.prompt + tree.branches[0] > width:
        raise UserError(
            f"a prompt of {tree.prompt:,} tokens and a response of {tree.branches[0]:,} exceed "
            f"config.row_tokens={settings.row_tokens:,}: raise it"
        )
    whole, left = divmod(width, tree.tokens)
    part = tree.part(range(max(0, (left - tree.prompt) // tree.branches[0])))
    held = whole * [tree] + ([part] if part.branches else [])
    vision, patches, patch_pairs = abstract_vision(run, rows * len(held) * images, settings.max_pixels)
    batch = abstract_batch(abstract_inputs(run, rows, width, vision), run, names)
    work = useful_work(held)
    return batch, Work(rows * width, rows * work.pairs, rows * work.scored, patches, patch_pairs)


def _shape(batch: Batch) -> str:
    rows, width = batch.inputs.tokens.shape
    return f"{rows} x {width:,}"


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
    group = TreeSize(settings.max_prompt_tokens, (response,) * (settings.num_samples + 1))
    batch, work = _full_rows(run, settings, group, images, RL_VALUES)
    total = _accumulated(run, steps)
    flops = training_flops(config, work, run.adapters, settings.remat)
    prompt = round_up(settings.max_prompt_tokens, settings.bucket_multiple)
    parts = {
        "weights": run.frozen,
        "adapters": run.state.params,
        "gradients": total,
        "batch": batch,
    }
    arguments = (total, run.state.params, run.frozen, batch)
    return [
        Program(
            f"rl gradient, {_shape(batch)}",
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
