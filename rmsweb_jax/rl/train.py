"""Salvage-DS: reinforcement learning from a merged SFT policy and mined prompts to a merged model folder."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from rmsweb_jax.data.batching import on_mesh
from rmsweb_jax.data.encoding import Encoder, SampleSize
from rmsweb_jax.data.sources import training_data
from rmsweb_jax.decoding.engine import Engine
from rmsweb_jax.decoding.memory import fit_memory
from rmsweb_jax.decoding.sizes import device_memory, sizes_for
from rmsweb_jax.decoding.weights import choose_layout
from rmsweb_jax.errors import UserError
from rmsweb_jax.own import own_files
from rmsweb_jax.qwen.checkpoint import resolve_model
from rmsweb_jax.qwen.lora import count_parameters
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.qwen.sharding import choose_mesh
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.rl.config import OnlineConfig, RlConfig
from rmsweb_jax.rl.episodes import (
    EpisodeRollouts,
    EpisodeSource,
    Tallied,
    count_targets,
    episode_metrics,
)
from rmsweb_jax.rl.functions import check_functions, find_gate, find_reward
from rmsweb_jax.rl.metrics import (
    check_gap,
    dynamic_sampling_metrics,
    evaluate,
    log_prob_metrics,
    readable_groups,
    rollout_metrics,
)
from rmsweb_jax.rl.prompts import RlData, open_rl_data
from rmsweb_jax.rl.remote.generator import Endpoint
from rmsweb_jax.rl.rollout import (
    Rollouts,
    SampledGroups,
    Sampler,
    add_replay,
    dynamic_sampling,
    groups_from_json,
    groups_to_json,
    mini_batches,
)
from rmsweb_jax.rl.step import empty_batch, rl_packer, rl_steps, update_policy
from rmsweb_jax.sft.step import init_state, split_model, with_remat
from rmsweb_jax.sft.train import export, load_policy
from rmsweb_jax.storage import AnyPath, folder_on_disk
from rmsweb_jax.training.checkpoints import Checkpoints
from rmsweb_jax.training.identity import Identity, identify
from rmsweb_jax.training.loop import Loop
from rmsweb_jax.training.mesh import device_bytes, is_first, make_mesh, program_bytes, row_shards
from rmsweb_jax.training.metrics import read_metrics
from rmsweb_jax.training.performance import compiler_options
from rmsweb_jax.training.step import adamw

STAGE = "train_rl"
# Prompts that are measured at a time: tokenizing leaves Python's lock.
_THREADS = 4


def train(config: RlConfig, workdir: AnyPath, episodes: EpisodeSource | None = None) -> dict[str, Any]:
    """Trains, exports to `workdir/export` and writes `workdir/report.json`; resumes an earlier run.

    With several processes all of them must call this, with one shared `workdir`. Where that is in a bucket,
    the caller has opened it (`open_run`), which copies what is in the folder on disk at the end.

    Args:
      episodes: plays the episodes of an online run, whose config is an `OnlineConfig` with an endpoint.

    Raises:
      UserError: the prompts or the model cannot be used, too many steps in a row were not finite (the state
        is saved), an update made weights that give no log-probabilities (the iteration is not saved), or an
        endpoint failed.
      StoppedError: a signal asked the run to stop; everything is saved.
    """
    begin = time.monotonic()
    folder = folder_on_disk(workdir, jax.process_index())
    folder.mkdir(parents=True, exist_ok=True)
    check_functions(config)
    # 1. Prompts for training and evaluation, and the rows of the update, which decide on the mesh.
    source = resolve_model(config.model)
    processor = Processor.from_pretrained(source, config.max_pixels)
    data, held_out, replay, identity = open_prompts(config, processor, source, workdir, folder)
    targets: dict[str, int] = {}
    if episodes is not None:
        assert isinstance(config, OnlineConfig)
        targets = count_targets(episodes, data, config)
    # The size that the mesh is chosen by is packed once.
    make_packer = functools.cache(
        functools.partial(
            rl_packer,
            list(data.sizes.values()),
            config,
            processor.config,
            online=episodes is not None,
            replay=list(replay.sizes.values()) if replay else (),
        )
    )
    chosen = choose_mesh(config.mesh, processor.config, lambda rows: make_packer(rows).expected_fill)
    mesh = make_mesh(**dict(chosen))
    packer = make_packer(row_shards(mesh))
    packer.report()

    # 2. The policy: the merged SFT model, frozen, and fresh adapters; without them it is the reference.
    model = load_policy(config, source, mesh, config.lora, config.seed)
    counts = count_parameters(model)
    _, params, frozen = split_model(model, "lora")
    sizes = [*data.sizes.values(), *held_out.sizes.values()]

    # 3. Optimizer and compiled programs.
    optimizer = adamw(config.learning_rate, weight_decay=config.weight_decay, clip_norm=config.clip_norm)
    state = init_state(params, optimizer, mesh)

    options = compiler_options(mesh.devices.flat[0], config.compiler_options)

    def gradient(steps: Any) -> jax.stages.Lowered:
        batch = on_mesh(empty_batch(packer.shape, model.config, mesh), mesh)
        return steps.run.lower(steps.zero(state.params), state.params, frozen, batch, jnp.asarray(True), None)

    graphdef, steps = with_remat(
        config.remat,
        model,
        "lora",
        lambda graphdef: rl_steps(
            graphdef,
            state,
            optimizer,
            config.objective,
            mesh,
            options,
            temperature=config.temperature,
            off_policy=config.max_staleness > 0,
        ),
        gradient,
        resident=state.opt_state,
    )
    salvage = config.objective.salvage_weight > 0
    held = device_bytes((state, frozen))
    if config.max_staleness and device_memory(mesh.devices.flat[0]) is not None:
        # The engine stays while the policy is updated.
        held = device_bytes(state.opt_state) + program_bytes(gradient(steps).compile())
    sampler = make_sampler(config, sizes, processor, held, [data, held_out])

    # 4. Resume: the run's own newest checkpoint, otherwise the given model. Random numbers come from the
    # seed, the policy's version and the prompt, so that there is no generator to restore. `fresh` is the rest
    # of the state: a resumed run needs all of it to end bit for bit the same.
    checkpoints = Checkpoints(workdir / "checkpoints", config.checkpoints_kept, identity=identity)
    every, fresh = config.checkpoint_every, {"position": 0, "kept": [], "tally": {}}
    with Loop(STAGE, workdir, config.iterations, every, begin, checkpoints, state, fresh) as loop:
        state = loop.state
        rollouts = make_rollouts(config, sampler, data, loop.extra, episodes)
        loop.callback(rollouts.close)

        def rest() -> dict[str, Any]:
            # A copy: it is written while the next groups are taken.
            tally = dict(rollouts.tally) if isinstance(rollouts, EpisodeRollouts) else {}
            kept = groups_to_json(rollouts.kept())
            return {"position": rollouts.position, "kept": kept, "tally": tally}

        # 5. The loop: sample and score until enough groups pass both gates, then update. Metrics are those of
        # the policy that sampled.
        for iteration in range(loop.first, config.iterations):
            done = iteration + 1
            rollouts.load(nnx.merge(graphdef, state.params, frozen), iteration)
            metrics: dict[str, Any] = {}
            if iteration % config.eval_every == 0:
                metrics, replies = evaluate(rollouts, held_out, config.sampling)
                loop.writer.write_replies(done, replies)
            sampled_groups, sampled = sample_groups(config, rollouts, data, loop)
            if not config.max_staleness:
                # Weights and caches for decoding are a second copy of the model; gradients need that memory.
                rollouts.unload()
            batches = mini_batches(sampled_groups, config)
            if replay:
                batches = add_replay(batches, replay, config, iteration)
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
                epochs=config.epochs,
            )
            state = updated.state
            for group in sampled_groups.generated:
                group.release()
            for batch in batches:
                for turn in batch.replayed:
                    turn.prompt.release()
            metrics |= sampled | updated.metrics
            if iteration == loop.first:
                packer.warn(metrics["update/useful_flops"])
            metrics |= log_prob_metrics(updated.responses)
            loop.log(done, metrics, summary(metrics))
            # A policy that cannot be sampled is not saved: no run could go on from it.
            if not updated.finite:
                checkpoints.wait()
                raise UserError(
                    f"{workdir}: the updates of iteration {done}, at config.learning_rate="
                    f"{config.learning_rate:g}, made weights whose log-probabilities are not numbers; this "
                    "iteration is not saved: lower config.learning_rate and train in another --workdir"
                )
            loop.save(done, state, metrics, rest)
            if config.rollout_engine == "endpoint":
                check_gap(metrics, config.endpoint.max_gap)
        loop.finish()

        # 6. Evaluate the last policy, export a model folder, and write the report last.
        trained = nnx.merge(graphdef, state.params, frozen)
        rollouts.unload()
        rollouts.load(trained, config.iterations)
        final, replies = evaluate(rollouts, held_out, config.sampling)
        rollouts.unload()
        loop.writer.write_replies(config.iterations + 1, replies)
    export(trained, source, folder, config.lora, config.model)
    if not is_first():
        return {}
    rows = read_metrics(folder)
    return loop.report(
        {
            "model": config.model,
            "loss": config.objective.loss,
            "gate": config.gate,
            "reward": config.reward,
            "own_files": own_files(config),
            "data": str(data.records.folder),
            "parameters": counts,
            "iterations": config.iterations,
            "optimizer_steps": sum(row["optimizer_steps"] for row in rows),
            "row_tokens": packer.shape.width,
            **data.summary(),
            **targets,
            "held_out": len(held_out.held_out),
            "replay": {"data": str(replay.records.folder), **replay.summary()} if replay else {},
            "first": rows[0],
            "final": rows[-1] | final,
        }
    )


def open_prompts(
    config: RlConfig,
    processor: Processor,
    source: Path,
    workdir: AnyPath,
    folder: Path,
) -> tuple[RlData, RlData, RlData | None, Identity]:
    """Opens the prompts to train on, those whose held-out share is evaluated on (or the same), the replay.

    Args:
      source: folder of the base model.
      workdir: keeps the versions of the data sets, see `training_data`.
      folder: on disk, keeps the prompts' sizes.

    Returns:
      All three, and what the run is made of.

    Raises:
      UserError: see `identify` and `open_rl_data`.
    """
    folders = {"prompts": training_data(config.prompts, "config.prompts", workdir)}
    if config.eval_prompts:
        folders["evaluation prompts"] = training_data(config.eval_prompts, "config.eval_prompts", workdir)
    if config.replay:
        folders["replay"] = training_data(config.replay, "config.replay", workdir)
    # Before they are read together: processes with other data would wait for one another.
    identity = identify(source, folders)

    def opened(prompts: AnyPath, **settings: Any) -> RlData:
        return open_rl_data(
            prompts,
            Encoder(processor, ImageStore(prompts)),
            max_prompt_tokens=config.max_prompt_tokens,
            held_out=config.held_out,
            workdir=folder,
            threads=_THREADS,
            **settings,
        )

    data = opened(
        folders["prompts"],
        corpus=config.corpus,
        least=config.gen_batch_groups,
        score=find_reward(config.reward),
    )
    evaluated = opened(folders["evaluation prompts"], corpus="mined") if config.eval_prompts else data
    replay = opened(folders["replay"], corpus="full", score=None) if config.replay else None
    return data, evaluated, replay, identity


def make_rollouts(
    config: RlConfig,
    sampler: Sampler | Endpoint,
    data: RlData,
    extra: Mapping[str, Any],
    episodes: EpisodeSource | None,
) -> Rollouts:
    """Makes what gives the run its groups, where a checkpoint's `extra` has left off."""
    position, gate = extra["position"], find_gate(config.gate, config.num_samples)
    if episodes is not None:
        assert isinstance(config, OnlineConfig) and isinstance(sampler, Endpoint)
        # Earlier versions kept none.
        tally = {name: Tallied(*one) for name, one in extra.get("tally", {}).items()}
        return EpisodeRollouts(episodes, sampler, data, config, position, tally)
    return Rollouts(
        sampler,
        data,
        config.sampling,
        find_reward(config.reward),
        gate,
        config.seed,
        position=position,
        kept=groups_from_json(extra["kept"], data, gate),
    )


def make_sampler(
    config: RlConfig,
    sizes: Sequence[SampleSize],
    processor: Processor,
    held: int,
    data: Sequence[RlData],
) -> Sampler | Endpoint:
    """Makes what draws responses.

    Args:
      sizes: of all prompts, those of the evaluation included.
      held: bytes of a device that training takes while responses are drawn.
      data: the data sets of the prompts, each with its own images.
    """
    if config.rollout_engine == "local":
        return Sampler(functools.partial(make_engine, config, sizes, processor, held))
    stores = [one.encoder.images for one in data]

    def image(sha256: str) -> bytes:
        return next((store for store in stores if sha256 in store), stores[0]).get(sha256)

    return Endpoint(config.endpoint, processor, image, config.lora)


def make_engine(
    config: RlConfig,
    sizes: Sequence[SampleSize],
    processor: Processor,
    held: int,
    model: Qwen3VL,
) -> Engine:
    """Makes the engine of a policy, with as many lanes as the memory holds or as configured."""
    shards, layout = row_shards(model.attention.mesh), choose_layout(model)
    shapes = sizes_for(
        [(size.prompt_length, size.patches) for size in sizes],
        samples=config.num_samples,
        response_tokens=config.max_response_tokens,
        lanes=config.rollout_lanes or shards,
        shards=shards,
    )
    if not config.rollout_lanes:
        memory = device_memory(jax.devices()[0])
        shapes = fit_memory(model, shapes, layout, memory, held, config.cache_dtype)
    return Engine.for_policy(
        model,
        shapes,
        eos=processor.end_id,
        banned=tuple(processor.banned_ids),
        cache_dtype=config.cache_dtype,
        layout=layout,
    )


def sample_groups(
    config: RlConfig, rollouts: Rollouts, data: RlData, loop: Loop
) -> tuple[SampledGroups, dict[str, float]]:
    """Takes groups until enough of them pass the gates, and logs some as text.

    Returns:
      The groups, and metrics over all that were taken.
    """
    start, version = time.monotonic(), rollouts.version
    waited, dropped = rollouts.seconds, rollouts.dropped

    def report(accepted: int, batches: int) -> None:
        note = f"{accepted}/{config.train_groups} groups accepted in {batches} batches"
        loop.progress.update(version, note)
        logging.info("iteration %d: %s", version + 1, note)

    sampled_groups = dynamic_sampling(rollouts, config, report)
    seconds = time.monotonic() - start
    groups = sampled_groups.generated
    loop.writer.write_groups(version + 1, list(readable_groups(groups, data.decode, config.logged_groups)))
    tokens = sum(len(response) for group in groups for turn in group.sampled for response in turn.responses)
    metrics = dynamic_sampling_metrics(sampled_groups, version) | {"time/rollout": seconds}
    metrics |= rollout_metrics(groups)
    if isinstance(rollouts, EpisodeRollouts):
        metrics |= episode_metrics(groups, sampled_groups.salvaged)
    metrics |= {"tokens_per_second/rollout": tokens / seconds, "time/decode": rollouts.seconds - waited}
    return sampled_groups, metrics | {"dynamic_sampling/dropped": rollouts.dropped - dropped}


def summary(metrics: dict[str, Any]) -> str:
    """Summarizes an iteration in one line."""
    shares = {"accepted": "gates/accepted", "no contrast": "gates/std_rejected"}
    shares["incompetent"] = "gates/competence_rejected"
    parts = [f"{name} {metrics[key]:.0%}" for name, key in shares.items() if key in metrics]
    if "reward/mean" in metrics:
        parts.insert(0, f"reward {metrics['reward/mean']:.3f}")
    speeds = [metrics.get(f"tokens_per_second/{name}", 0) for name in ("rollout", "update")]
    return ", ".join([*parts, f"{speeds[0]:,.0f} and {speeds[1]:,.0f} tokens/s"])
