"""Salvage-DS: reinforcement learning from a merged SFT policy and mined prompts to a merged model folder."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from rmsweb_jax.actions.reward import REWARDS
from rmsweb_jax.data.batching import on_mesh
from rmsweb_jax.data.encoding import Encoder
from rmsweb_jax.decoding.sampler import Sampler, SamplingParams, prompt_shapes
from rmsweb_jax.errors import StoppedError, UserError
from rmsweb_jax.processes import StopRequest
from rmsweb_jax.progress import Progress
from rmsweb_jax.qwen3_vl.checkpoint import resolve_model
from rmsweb_jax.qwen3_vl.lora import count_parameters
from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.qwen3_vl.sharding import choose_mesh
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.rl.batching import empty_batch, rl_packer
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.rl.dynamic_sampling import PromptCycle, SampledGroups, dynamic_sampling, mini_batches
from rmsweb_jax.rl.losses import gates_on_host
from rmsweb_jax.rl.metrics import (
    dynamic_sampling_metrics,
    evaluate,
    log_prob_metrics,
    readable_groups,
    rollout_metrics,
)
from rmsweb_jax.rl.prompts import RlData, open_rl_data
from rmsweb_jax.rl.remote.client import check_gap
from rmsweb_jax.rl.remote.engine import RemoteRolloutEngine
from rmsweb_jax.rl.rollout import (
    Group,
    LocalRolloutEngine,
    RolloutEngine,
    Rollouts,
    fresh_enough,
    groups_from_json,
    groups_to_json,
)
from rmsweb_jax.rl.step import make_steps, update_policy
from rmsweb_jax.sft.step import init_state, split_model, with_remat
from rmsweb_jax.sft.train import export, load_policy
from rmsweb_jax.training.checkpoints import Checkpoints, abstract_like
from rmsweb_jax.training.mesh import any_process, is_first, make_mesh, row_shards
from rmsweb_jax.training.metrics import MetricWriter, read_metrics
from rmsweb_jax.training.optimizer import adamw
from rmsweb_jax.training.performance import compiler_options

STAGE = "train_rl"
# Number of skipped optimizer steps in a row after which the run stops. A single one may be an accident of a
# batch; a policy that has diverged skips all.
MAX_SKIPPED = 3
# Prompts that are measured at a time: tokenizing leaves Python's lock.
_THREADS = 4


def train(config: RlConfig, workdir: Path) -> dict[str, Any]:
    """Trains, exports to `workdir/export` and writes `workdir/report.json`; resumes an earlier run.

    With several processes all of them must call this, with one shared `workdir`.

    Raises:
      UserError: the prompts or the model cannot be used, the generation batches ran out (if
        `config.on_exhausted` is "error"), too many steps in a row were not finite (the state is saved), or an
        endpoint failed.
      StoppedError: a signal asked the run to stop; everything is saved.
    """
    begin = time.monotonic()
    workdir.mkdir(parents=True, exist_ok=True)
    # 1. Prompts for training and evaluation, and the rows of the update, which decide on the mesh.
    source = resolve_model(config.model)
    processor = Processor.from_pretrained(source, config.max_pixels)
    data, held_out = open_prompts(config, processor, workdir)
    # The size that the mesh is chosen by is packed once.
    make_packer = functools.cache(
        functools.partial(rl_packer, list(data.sizes.values()), config, processor.config)
    )
    chosen = choose_mesh(config.mesh, processor.config, lambda rows: make_packer(rows).expected_fill)
    mesh = make_mesh(**vars(chosen))
    packer = make_packer(row_shards(mesh))
    packer.report()

    # 2. The policy: the merged SFT model, frozen, and fresh adapters; without them it is the reference. The
    # engine that samples from it, with few shapes.
    model = load_policy(config, source, mesh, config.lora, config.seed)
    counts = count_parameters(model)
    _, params, frozen = split_model(model, "lora")
    sizes = [*data.sizes.values(), *held_out.sizes.values()]
    buckets = {"multiple": config.bucket_multiple, "count": config.bucket_count}
    slots = Sampler(model.config, prompt_shapes(sizes, config.rollout_slots, **buckets), mesh)
    engine = make_engine(config, slots, processor)
    sampling = SamplingParams(
        num_samples=config.num_samples,
        max_response_tokens=config.max_response_tokens,
        temperature=config.temperature,
        eos=processor.end_id,
        banned=processor.banned_ids,
    )

    # 3. Optimizer and compiled programs.
    optimizer = adamw(config.learning_rate, weight_decay=config.weight_decay, clip_norm=config.clip_norm)
    state = init_state(params, optimizer, mesh)

    options = compiler_options(mesh.devices.flat[0], config.compiler_options)

    def gradient(steps: Any) -> jax.stages.Lowered:
        batch = on_mesh(empty_batch(packer.shape, model.config, mesh), mesh)
        return steps.run.lower(steps.zero(state.params), state.params, frozen, batch, jnp.asarray(True))

    graphdef, steps = with_remat(
        config.remat,
        model,
        "lora",
        lambda graphdef: make_steps(graphdef, state, optimizer, config.objective, mesh, options),
        gradient,
        resident=state.opt_state,
    )
    salvage = config.objective.salvage_weight > 0

    # 4. Resume: the run's own newest checkpoint, otherwise the given model. Random numbers come from the
    # seed, the policy's version and the prompt, so that there is no generator to restore.
    with contextlib.ExitStack() as stack:
        checkpoints = stack.enter_context(Checkpoints(workdir / "checkpoints", config.checkpoints_kept))
        first = checkpoints.latest_step() or 0
        # The rest of the state: a resumed run needs all of it to end bit for bit the same.
        extra: dict[str, Any] = {"seconds": 0.0, "cycle": None, "carried_over": [], "skipped": 0}
        if first:
            state, extra = checkpoints.restore(first, abstract_like(state))
        seconds, skipped = extra["seconds"], extra["skipped"]
        cycle = PromptCycle(len(data.train), config.seed, config.skip_solved_weight, extra["cycle"])
        carried_over = groups_from_json(extra["carried_over"], data)
        writer = stack.enter_context(MetricWriter(workdir, first))
        progress = Progress(workdir, STAGE, config.iterations, first, active=is_first())
        stop = stack.enter_context(StopRequest())

        # 5. The loop: sample and score until enough groups pass both gates, then update. Metrics are those of
        # the policy that sampled.
        for iteration in range(first, config.iterations):
            done = iteration + 1
            engine.load(nnx.merge(graphdef, state.params, frozen), iteration)
            metrics: dict[str, Any] = {}
            if iteration % config.eval_every == 0:
                # Before the update, while the engine holds this policy: loading it is a copy of the weights.
                metrics, replies = evaluate(engine, held_out, sampling)
                writer.write_replies(done, replies)
            rollouts = make_rollouts(config, engine, data, cycle, sampling, iteration)
            sampled_groups, sampled = sample_groups(config, rollouts, carried_over, progress, writer)
            # The engine's fused weights are a second copy of the model; gradients need that memory.
            engine.unload()
            batches = mini_batches(
                sampled_groups, train_groups=config.train_groups, mini_batch_groups=config.mini_batch_groups
            )
            updated = update_policy(
                steps,
                state,
                frozen,
                batches,
                packer,
                model.config,
                mesh,
                salvage=salvage,
                version=iteration,
            )
            state = updated.state
            metrics |= sampled | updated.metrics
            if iteration == first:
                packer.warn(metrics["update/useful_flops"])
            metrics |= log_prob_metrics(updated.responses, config.competent_reward)
            writer.write(done, metrics)
            progress.update(done, summary(metrics))

            # 6. Save, and stop on a signal or after too many steps that were not finite.
            carried_over = fresh_enough(sampled_groups.carried_over, done, config.max_staleness)
            skipped = skipped_in_a_row(skipped, updated.skipped)
            broken = skipped >= MAX_SKIPPED
            stopped = any_process(stop.requested)
            if done % config.checkpoint_every == 0 or done == config.iterations or stopped or broken:
                extra = {
                    "seconds": seconds + time.monotonic() - begin,
                    "cycle": cycle.state,
                    "carried_over": groups_to_json(carried_over),
                    "skipped": skipped,
                }
                checkpoints.save(done, state, extra)
            if broken:
                checkpoints.wait()
                raise UserError(
                    f"{workdir}: the loss or its gradient was not finite in {skipped} optimizer steps in a "
                    f"row, which were skipped; iteration {done} is saved in checkpoints/: lower "
                    "config.learning_rate and train in another --workdir"
                )
            if config.rollout_engine == "endpoint":
                check_gap(metrics, config.endpoint.max_gap)
            if stopped and done < config.iterations:
                checkpoints.wait()
                raise StoppedError(f"the checkpoint of step {done} is saved", stop.cause)
        progress.close()
        checkpoints.wait()

        # 7. Evaluate the last policy, export a model folder, and write the report last.
        trained = nnx.merge(graphdef, state.params, frozen)
        engine.load(trained, config.iterations)
        final, replies = evaluate(engine, held_out, sampling)
        engine.unload()
        writer.write_replies(config.iterations + 1, replies)
    export(trained, source, workdir / "export")
    if not is_first():
        return {}
    rows = read_metrics(workdir)
    report = {
        "stage": STAGE,
        "seconds": round(seconds + time.monotonic() - begin, 1),
        "model": config.model,
        "parameters": counts,
        "iterations": config.iterations,
        "optimizer_steps": sum(row["optimizer_steps"] for row in rows),
        "row_tokens": packer.shape.width,
        **data.summary(),
        "held_out": len(held_out.held_out),
        "first": rows[0],
        "final": rows[-1] | final,
    }
    write_atomic(workdir / "report.json", json.dumps(report, indent=1).encode())
    return report


def open_prompts(config: RlConfig, processor: Processor, workdir: Path) -> tuple[RlData, RlData]:
    """Opens the prompts to train on, and those whose held-out share is evaluated on (possibly the same).

    Raises:
      UserError: see `open_rl_data`.
    """
    limits = {
        "max_prompt_tokens": config.max_prompt_tokens,
        "held_out": config.held_out,
        "workdir": workdir,
        "threads": _THREADS,
    }

    def encoder(folder: Path) -> Encoder:
        return Encoder(processor, ImageStore(folder))

    folder = Path(config.prompts)
    data = open_rl_data(
        folder,
        encoder(folder),
        corpus=config.corpus,
        least=config.gen_batch_groups,
        score=REWARDS[config.reward],
        **limits,
    )
    if not config.eval_prompts:
        return data, data
    folder = Path(config.eval_prompts)
    return data, open_rl_data(folder, encoder(folder), corpus="mined", **limits)


def make_engine(config: RlConfig, slots: Sampler, processor: Processor) -> RolloutEngine:
    """Makes the engine that generates responses."""
    if config.rollout_engine == "local":
        return LocalRolloutEngine(slots, merge=config.merge_adapters, cache_dtype=config.cache_dtype)
    folders = [Path(folder) for folder in (config.prompts, config.eval_prompts) if folder]

    # Training and evaluation prompts may be in two data sets, each with its own images.
    def image(sha256: str) -> bytes:
        stores = [ImageStore(folder) for folder in folders]
        return next((store for store in stores if sha256 in store), stores[0]).get(sha256)

    return RemoteRolloutEngine(config.endpoint, processor, image, config.lora)


def make_rollouts(
    config: RlConfig,
    engine: RolloutEngine,
    data: RlData,
    cycle: PromptCycle,
    sampling: SamplingParams,
    version: int,
) -> Rollouts:
    """Makes the source of an iteration's generation batches."""
    return Rollouts(
        engine=engine,
        data=data,
        cycle=cycle,
        sampling=sampling,
        score=REWARDS[config.reward],
        gate={
            "min_std": config.min_std,
            "competent_reward": config.competent_reward,
            "competence_gate": config.competence_gate,
        },
        size=config.gen_batch_groups,
        seed=config.seed,
        version=version,
    )


def sample_groups(
    config: RlConfig,
    rollouts: Rollouts,
    carried_over: tuple[Group, ...] | list[Group],
    progress: Progress,
    writer: MetricWriter,
) -> tuple[SampledGroups[Group], dict[str, float]]:
    """Samples batches of prompts until enough groups pass the gates, and logs some groups as text.

    Args:
      carried_over: accepted groups of earlier iterations.

    Returns:
      The groups, and metrics over all sampled groups.
    """
    start, version = time.monotonic(), rollouts.version

    def report(accepted: int, batches: int) -> None:
        note = f"{accepted}/{config.train_groups} groups accepted in {batches} batches"
        progress.update(version, note)
        logging.info("iteration %d: %s", version + 1, note)

    sampled_groups = dynamic_sampling(
        rollouts,
        lambda group: group.accepted,
        carried_over=carried_over,
        train_groups=config.train_groups,
        mini_batch_groups=config.mini_batch_groups,
        max_gen_batches=config.max_gen_batches,
        max_salvage_groups=config.max_salvage_groups,
        on_exhausted=config.on_exhausted,
        report=report,
    )
    rollouts.close()
    seconds = time.monotonic() - start
    metrics = dynamic_sampling_metrics(sampled_groups, version) | {"time/rollout": seconds}
    # Metrics are over all groups, rejected ones too; an iteration may run on carried-over groups only.
    groups = sampled_groups.generated
    if groups:
        gates = gates_on_host(np.stack([group.rewards for group in groups]), **rollouts.gate)
        writer.write_groups(
            version + 1, list(readable_groups(groups, gates, rollouts.data.decode, config.logged_groups))
        )
        tokens = sum(len(response) for group in groups for response in group.responses)
        metrics |= rollout_metrics(groups, gates, config.competent_reward)
        metrics |= {"tokens_per_second/rollout": tokens / seconds, "time/decode": rollouts.seconds}
    return sampled_groups, metrics


def summary(metrics: dict[str, Any]) -> str:
    """Summarizes an iteration in one line."""
    shares = {"accepted": "gates/accepted", "no contrast": "gates/std_rejected"}
    shares["incompetent"] = "gates/competence_rejected"
    parts = [f"{name} {metrics[key]:.0%}" for name, key in shares.items() if key in metrics]
    if "reward/mean" in metrics:
        parts.insert(0, f"reward {metrics['reward/mean']:.3f}")
    speeds = [metrics.get(f"tokens_per_second/{name}", 0) for name in ("rollout", "update")]
    return ", ".join([*parts, f"{speeds[0]:,.0f} and {speeds[1]:,.0f} tokens/s"])


def skipped_in_a_row(before: int, skipped: tuple[bool, ...]) -> int:
    """Counts the skipped optimizer steps in a row at the end of an iteration.

    Once `MAX_SKIPPED` is reached the count stays there, also if later steps of the iteration were finite.
    """
    count = before
    for step in skipped:
        if count >= MAX_SKIPPED:
            break
        count = count + 1 if step else 0
    return count
