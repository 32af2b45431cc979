"""Salvage-DS: reinforcement learning from a merged SFT policy and mined prompts to a merged model folder."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from rmsweb_jax.actions.reward import score_response
from rmsweb_jax.checkpoints import Checkpoints, abstract_like
from rmsweb_jax.data.encoding import Encoder
from rmsweb_jax.mesh import make_mesh
from rmsweb_jax.metrics import MetricWriter, read_metrics
from rmsweb_jax.optimizers import adamw
from rmsweb_jax.progress import Progress
from rmsweb_jax.qwen3_vl.backends import default_attention
from rmsweb_jax.qwen3_vl.checkpoint import load_model, resolve_model
from rmsweb_jax.qwen3_vl.lora import add_lora, count_parameters
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.rl.advantages import gates_on_host
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.rl.metrics import log_prob_metrics, rollout_metrics
from rmsweb_jax.rl.prompts import RlData, open_rl_data
from rmsweb_jax.rl.refill import PromptCycle, Refilled, mini_batches, refill
from rmsweb_jax.rl.rollout import Engine, Group, LocalEngine, score_groups, with_gates
from rmsweb_jax.rl.shapes import choose_row_shapes
from rmsweb_jax.rl.step import make_steps
from rmsweb_jax.rl.update import update_policy
from rmsweb_jax.sampling import Sampler, Sampling, prompt_shapes
from rmsweb_jax.sft.step import init_state, split_model
from rmsweb_jax.sft.train import export
from rmsweb_jax.splits import stable_hash

STAGE = "train_rl"


def train(config: RlConfig, workdir: Path) -> dict[str, Any]:
    """Trains, exports to `workdir/export` and writes `workdir/report.json`; continues what was begun.

    Raises:
      UserError: the prompts or the model cannot be used, the generation batches ran out (when that is an
        error), or the loss stopped being a number.
    """
    begin = time.monotonic()
    workdir.mkdir(parents=True, exist_ok=True)
    # 1. The policy: the merged SFT model, frozen, and fresh adapters; without them it is the reference.
    mesh = make_mesh(**config.mesh)
    source = resolve_model(config.model)
    model = load_policy(config, source, mesh)
    counts = count_parameters(model)
    graphdef, params, frozen = split_model(model, "lora")

    # 2. Prompts, and the few shapes in which they are sampled and trained on.
    processor = Processor.from_pretrained(source, config.max_pixels)
    data = open_rl_data(
        Path(config.prompts),
        Encoder(processor, ImageStore(Path(config.prompts))),
        corpus=config.corpus,
        max_prompt_tokens=config.max_prompt_tokens,
        held_out=config.held_out,
        least=config.gen_batch_groups,
    )
    measures = list(data.measures.values())
    buckets = {"multiple": config.bucket_multiple, "count": config.bucket_count}
    engine = LocalEngine(
        Sampler(model.config, prompt_shapes(measures, config.rollout_slots, **buckets), mesh)
    )
    sampling = Sampling(
        num_samples=config.num_samples,
        max_response_tokens=config.max_response_tokens,
        temperature=config.temperature,
        eos=processor.end_id,
        banned=processor.banned_ids,
    )
    shapes = choose_row_shapes(
        measures,
        num_samples=config.num_samples,
        max_response_tokens=config.max_response_tokens,
        micro_batch_tokens=config.micro_batch_tokens,
        devices=mesh.shape["data"] * mesh.shape["fsdp"],
        fixed_slots=model.attention.backend != "xla",
        **buckets,
    )

    # 3. Optimizer and compiled programs.
    optimizer = adamw(config.learning_rate, weight_decay=config.weight_decay, clip_norm=config.clip_norm)
    state = init_state(params, optimizer, mesh)
    steps = make_steps(graphdef, state, optimizer, config.objective, mesh)

    # 4. Resume: the run's own newest checkpoint, otherwise the given model.
    with contextlib.ExitStack() as stack:
        checkpoints = stack.enter_context(Checkpoints(workdir / "checkpoints", config.checkpoints_kept))
        first, seconds, drawn = checkpoints.latest_step() or 0, 0.0, 0
        if first:
            state, extra = checkpoints.restore(first, abstract_like(state))
            seconds, drawn = extra["seconds"], extra["drawn"]
        cycle = PromptCycle(len(data.train), config.seed, drawn)
        writer = stack.enter_context(MetricWriter(workdir, first))
        progress = Progress(workdir, STAGE, config.iterations, first)

        # 5. The loop: sample behind both gates, score, update. Metrics are of the policy that sampled.
        for iteration in range(first, config.iterations):
            engine.load(nnx.merge(graphdef, state.params, frozen), iteration)
            metrics = {}
            if iteration % config.eval_every == 0:
                metrics |= evaluate(engine, data, sampling)
            refilled, sampled = sample_groups(config, engine, data, sampling, cycle, iteration)
            # Its fused weights are a second model, which must not live on beside the gradients.
            engine.unload()
            batches = mini_batches(
                refilled, train_groups=config.train_groups, mini_batch_groups=config.mini_batch_groups
            )
            salvage = config.objective.salvage_weight > 0
            updated = update_policy(
                steps,
                state,
                frozen,
                batches,
                shapes,
                model.config,
                mesh,
                salvage=salvage,
                version=iteration,
            )
            state = updated.state
            metrics |= (
                sampled | log_prob_metrics(updated.responses, config.competent_reward) | updated.metrics
            )
            writer.write(iteration + 1, metrics)
            extra = {"seconds": seconds + time.monotonic() - begin, "drawn": cycle.drawn}
            checkpoints.save(iteration + 1, state, extra)
            progress.update(iteration + 1, f"reward {metrics['reward/mean']:.3f}")
        progress.close()

    # 6. The held-out reward before and after, a model folder as any other, and what was done.
    trained = nnx.merge(graphdef, state.params, frozen)
    engine.load(trained, config.iterations)
    final = evaluate(engine, data, sampling)
    engine.unload()
    export(trained, source, workdir / "export")
    rows = read_metrics(workdir)
    report = {
        "stage": STAGE,
        "seconds": round(seconds + time.monotonic() - begin, 1),
        "model": config.model,
        "parameters": counts,
        "iterations": config.iterations,
        "optimizer_steps": sum(row["optimizer_steps"] for row in rows),
        "widths": [shape.width for shape in shapes.shapes],
        **data.summary(),
        "first": rows[0],
        "final": rows[-1] | final,
    }
    write_atomic(workdir / "report.json", json.dumps(report, indent=1).encode())
    return report


def load_policy(config: RlConfig, folder: Path, mesh: Mesh) -> Qwen3VL:
    """The model of `folder` on the mesh, with fresh adapters on the attention projections."""
    dtype, param_dtype = jnp.dtype(config.dtype), jnp.dtype(config.param_dtype)
    model = load_model(folder, dtype, param_dtype=param_dtype, remat=config.remat, mesh=mesh)
    model.attention = default_attention(model.config.text.head_dim, dtype, mesh)
    add_lora(model, config.lora, nnx.Rngs(config.seed))
    return model


def sample_groups(
    config: RlConfig,
    engine: Engine,
    data: RlData,
    sampling: Sampling,
    cycle: PromptCycle,
    version: int,
) -> tuple[Refilled[Group], dict[str, float]]:
    """Samples batches of prompts until enough groups pass the gates.

    Args:
      version: of the policy: responses depend on it, the seed, the prompt and the epoch.

    Returns:
      The groups, and the metrics of all that were sampled.
    """
    start = time.monotonic()
    gate = {
        "min_std": config.min_std,
        "competent_reward": config.competent_reward,
        "competence_gate": config.competence_gate,
    }

    def generate() -> list[Group]:
        draws = cycle.next(config.gen_batch_groups)
        prompts = [data.prompt(data.train[draw.number]) for draw in draws]
        seeds = [stable_hash(config.seed, version, draw.epoch) for draw in draws]
        drawn = engine.draw(prompts, seeds, sampling).result()
        decode = data.encoder.processor.decode_response
        groups = score_groups(prompts, drawn, decode, score_response, version)
        return with_gates(groups, gates_on_host(np.stack([group.rewards for group in groups]), **gate))

    refilled = refill(
        generate,
        lambda group: group.accepted,
        train_groups=config.train_groups,
        mini_batch_groups=config.mini_batch_groups,
        max_gen_batches=config.max_gen_batches,
        max_salvage_groups=config.max_salvage_groups,
        on_exhausted=config.on_exhausted,
    )
    gates = gates_on_host(np.stack([group.rewards for group in refilled.generated]), **gate)
    metrics = rollout_metrics(refilled, gates, config.competent_reward)
    seconds = time.monotonic() - start
    tokens = sum(len(response) for group in refilled.generated for response in group.responses)
    return refilled, metrics | {"time/rollout": seconds, "tokens_per_second/rollout": tokens / seconds}


def evaluate(engine: Engine, data: RlData, sampling: Sampling) -> dict[str, float]:
    """Greedy rewards on the held-out prompts; nothing when there are none."""
    if not data.held_out:
        return {}
    prompts = [data.prompt(number) for number in data.held_out]
    greedy = dataclasses.replace(sampling, num_samples=1, temperature=0.0)
    drawn = engine.draw(prompts, [0] * len(prompts), greedy).result()
    groups = score_groups(prompts, drawn, data.encoder.processor.decode_response, score_response)
    rewards = np.asarray([group.rewards[0] for group in groups])
    return {"eval/reward": float(rewards.mean()), "eval/exact": float((rewards == 1.0).mean())}
