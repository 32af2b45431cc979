"""The compiled programs of Salvage-DS, and the optimizer steps of an iteration.

Every group is a tree in the rows of a micro-batch, with each token's part in the objective.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx, struct
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from rmsweb_jax.data.batching import Batch, Branch, Example, LazyTree, Span, Tree, lay_out, on_mesh, spans
from rmsweb_jax.data.encoding import SampleSize
from rmsweb_jax.data.packing import Packer, RowShape, TreeSize, choose_packer, useful_work
from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.flops import Work, forward_flops, training_flops
from rmsweb_jax.qwen.model import MAX_LOGITS, Qwen3VL, score_tokens
from rmsweb_jax.rl.config import Objective, RlConfig
from rmsweb_jax.rl.functions import find_loss
from rmsweb_jax.rl.losses import VALUES, Metric, TokenBatch, abstract_sums, token_weights, with_replay
from rmsweb_jax.rl.metrics import ScoredResponse
from rmsweb_jax.rl.rollout import MiniBatch, Turn
from rmsweb_jax.training.mesh import process_rows
from rmsweb_jax.training.performance import mfu
from rmsweb_jax.training.step import DropoutKey, LogProbs, LossAndSums, Steps, TrainState, make_steps


@struct.dataclass
class ObjectiveSums:
    """Loss and metrics of the micro-batches of an optimizer step so far, see `rl.losses.Loss`."""

    loss: jax.Array
    metrics: dict[str, Metric]


def scored_log_probs(
    model: Qwen3VL, batch: Batch, max_logits: int = MAX_LOGITS, *, temperature: float = 1.0
) -> LogProbs:
    """Computes the log-probabilities of the scored tokens.

    Args:
      temperature: that of sampling: ratio, KL term and importance weights compare the distribution that was
        drawn from. Tokens of the salvage anchor and of replayed replies are scored at 1.
    """
    # Only scored states are projected to the vocabulary, since prompts are most of every row.
    scored = batch.scored
    hidden = jnp.take_along_axis(model(batch.inputs), jnp.asarray(scored.index)[..., None], axis=1)
    # They are the cross-entropy of a given reply that was not drawn, as in SFT.
    each: Any = 1.0
    if temperature != 1:
        given = (scored.values["salvage_weight"] > 0) | (scored.values["replay_weight"] > 0)
        each = jnp.where(given, 1.0, temperature)
    scores = score_tokens(model, hidden, scored.tokens, scored.count, temperature=each, max_logits=max_logits)
    return scores.log_probs


def rl_steps(
    graphdef: Any,
    state: TrainState,
    optimizer: optax.GradientTransformation,
    objective: Objective,
    mesh: Mesh,
    options: Mapping[str, Any] | None = None,
    *,
    temperature: float = 1.0,
    off_policy: bool = False,
) -> Steps:
    """Makes the programs of Salvage-DS, see `training.step.make_steps`.

    Args:
      temperature: see `scored_log_probs`.
      off_policy: see `TokenBatch.of`.
    """
    objective_of = with_replay(find_loss(objective))

    def loss(params: Any, frozen: Any, batch: Batch, key: DropoutKey) -> LossAndSums:
        tokens = TokenBatch.of(batch.scored.branch, batch.scored.values, off_policy=off_policy)
        log_probs = scored_log_probs(nnx.merge(graphdef, params, frozen), batch, temperature=temperature)
        value, metrics = objective_of(log_probs, tokens, objective)
        return value, (ObjectiveSums(value, metrics), log_probs)

    def metrics(sums: ObjectiveSums) -> dict[str, jax.Array]:
        # A step with salvaged groups only has no tokens of accepted responses: 0 / 0.
        means = {
            name: one[0] / jnp.where(one[1] == 0, 1, one[1]) if isinstance(one, tuple) else one
            for name, one in sums.metrics.items()
        }
        return means | {"loss": sums.loss}

    shapes = ObjectiveSums(*abstract_sums(objective_of, objective))
    zero = jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), shapes)
    return make_steps(loss, zero, metrics, state, optimizer, mesh, options, one_program=True)


@dataclasses.dataclass(frozen=True)
class Updated:
    """Result of an iteration's optimizer steps.

    Attributes:
      state: state after the last step.
      responses: every retained response with its log-probabilities, on every process.
      metrics: means over the steps that were not skipped, the numbers of these and of skipped ones, the
        largest number of steps that were skipped in a row, speed.
      finite: the new policy's log-probabilities of a micro-batch are numbers; weights that are too large give
        none, although they were made of finite gradients.
    """

    state: TrainState
    responses: tuple[ScoredResponse, ...]
    metrics: dict[str, float]
    finite: bool = True


class Prepared(NamedTuple):
    """A micro-batch in the host's memory, with its log-probabilities on the devices."""

    micro: MicroBatch
    old: jax.Array
    ref: jax.Array


def update_policy(
    steps: Steps,
    state: TrainState,
    frozen: Any,
    batches: Sequence[MiniBatch],
    packer: Packer,
    config: Qwen3VLConfig,
    mesh: Mesh,
    *,
    salvage: bool,
    version: int,
    epochs: int = 1,
) -> Updated:
    """Runs one optimizer step per mini-batch and epoch, relative to the log-probabilities before the first.

    The program that computes gradients also computes these, so that the ratio is exactly 1 before the first
    step. Every process must call this with the same arguments.

    Args:
      salvage: False leaves out the salvage anchor.
      version: version of the policy in `state`.
      epochs: passes over the mini-batches.
    """
    start = time.monotonic()
    # Zero adapters make the policy its reference; no second model is in memory.
    reference = steps.zero(state.params).gradients
    trees = [trees_of(batch, salvage=salvage) for batch in batches]
    held = process_rows(mesh, packer.shape.rows)
    # All mini-batches before the first update, which changes the policy and donates its parameters.
    prepared: list[list[Prepared]] = []
    executed = Work(0, 0, 0)
    for own in trees:
        prepared.append([])
        for micro in micro_batches(own, packer, config, held):
            prepared[-1].append(_prepare(steps, state.params, reference, frozen, micro, mesh))
            executed += micro.executed
    measured = []
    for own in prepared * epochs:
        total = steps.zero(state.params)
        for one in own:
            total = steps.add(total, state.params, frozen, _with_log_probs(one, mesh))
        state, metrics = steps.update(state, total)
        measured.append(metrics)
    finite = jnp.asarray(True)
    if prepared:
        batch = on_mesh(prepared[-1][-1].micro.batch, mesh)
        finite = jnp.isfinite(steps.log_probs(state.params, frozen, batch)).all()
    # The only wait for the device: until here everything was dispatched.
    measured, is_finite = jax.device_get((measured, finite))
    rows = [{name: float(value) for name, value in row.items()} for row in measured]
    # NaN of a skipped step would hide the others in the means.
    good = [row for row in rows if not row["skipped_in_a_row"]]
    metrics = {name: float(np.mean([row[name] for row in good])) for name in (good[0] if good else {})}
    metrics |= {"optimizer_steps": len(good), "skipped_steps": len(rows) - len(good)}
    # Of all steps, since later ones of the iteration may be finite.
    metrics["skipped_in_a_row"] = max((row["skipped_in_a_row"] for row in rows), default=0.0)
    useful = useful_work([tree.size for own in trees for tree in own])
    metrics |= _speed(useful, executed, config, state.params, time.monotonic() - start, mesh, epochs)
    return Updated(state, _scored(batches, prepared, version), metrics, bool(is_finite))


def _prepare(
    steps: Steps, params: Any, reference: Any, frozen: Any, micro: MicroBatch, mesh: Mesh
) -> Prepared:
    """Computes log-probabilities under the old policy and under the reference.

    The batch itself leaves the devices again: screenshots of all turns of an online iteration would not fit.
    """
    batch = on_mesh(micro.batch, mesh)
    return Prepared(micro, steps.log_probs(params, frozen, batch), steps.log_probs(reference, frozen, batch))


def _with_log_probs(prepared: Prepared, mesh: Mesh) -> Batch:
    """Returns a micro-batch on the devices with its log-probabilities."""
    batch = on_mesh(prepared.micro.batch, mesh)
    values = batch.scored.values | {"old_log_probs": prepared.old, "ref_log_probs": prepared.ref}
    return Batch(batch.inputs, dataclasses.replace(batch.scored, values=values))


def _scored(
    batches: Sequence[MiniBatch], prepared: Sequence[Sequence[Prepared]], version: int
) -> tuple[ScoredResponse, ...]:
    """Returns all responses, in the order of their rows."""
    recomputed = [[one.old for one in micros] for micros in prepared]
    if jax.process_count() > 1:
        # Each process holds its own rows; gathered, so that all report the same metrics and decide alike.
        recomputed = multihost_utils.process_allgather(recomputed, tiled=True)
    else:
        recomputed = jax.device_get(recomputed)
    scored = []
    for batch, micros, arrays in zip(batches, prepared, recomputed, strict=True):
        turns = batch.turns
        for one, array in zip(micros, arrays, strict=True):
            for span in one.micro.spans:
                turn = turns[span.tree]
                if span.branch < len(turn.responses):  # The branch after them is the target.
                    scored.append(
                        ScoredResponse(
                            reward=float(turn.rewards[span.branch]),
                            accepted=span.tree < len(batch.accepted),
                            old=array[span.row, span.start : span.stop],
                            sampled=turn.log_probs[span.branch],
                            stale=turn.version < version,
                        )
                    )
    return tuple(scored)


def _speed(
    useful: Work,
    executed: Work,
    config: Qwen3VLConfig,
    adapters: Any,
    seconds: float,
    mesh: Mesh,
    epochs: int,
) -> dict[str, float]:
    """Computes the rates of an iteration's update over the tokens of all processes, and its useful share.

    Operations are those of a gradient in each epoch, and of two forward passes, old and reference policy.
    """
    count = sum(leaf.size for leaf in jax.tree.leaves(adapters))

    def flops(work: Work) -> int:
        # Operations that rematerialization repeats are not useful.
        gradient = training_flops(config, work, count, "none").useful
        return epochs * gradient + 2 * forward_flops(config, work)

    metrics = {
        "time/update": seconds,
        "tokens_per_second/update": useful.tokens / seconds,
        "update/padding": 1 - useful.tokens / executed.tokens if executed.tokens else 0.0,
        "update/useful_flops": flops(useful) / flops(executed) if executed.tokens else 1.0,
    }
    share = mfu(flops(useful), seconds, mesh.devices.flat)
    return metrics if share is None else metrics | {"mfu/update": share}


# Steps that are packed in advance, to choose the rows of a run, and their share of responses without an end.
_TRIALS, _RUNAWAYS = 48, 0.01


@dataclasses.dataclass(frozen=True)
class MicroBatch:
    """Rows for one call of the model.

    Attributes:
      batch: the rows that this process holds.
      spans: places of the branches in the rows of all processes.
      executed: work of all rows as they are computed, with padding.
    """

    batch: Batch
    spans: tuple[Span, ...]
    executed: Work


def micro_batches(
    trees: Sequence[LazyTree], packer: Packer, config: Qwen3VLConfig, held: Sequence[int] | None = None
) -> Iterator[MicroBatch]:
    """Makes the micro-batches of one optimizer step, each when it is asked for.

    Args:
      held: numbers of the rows that this process holds; by default all.
    """
    sizes = [tree.size for tree in trees]
    for rows in packer.pack(sizes):
        yield MicroBatch(
            lay_out(lambda number: trees[number].made(), rows, packer.shape, config, held, VALUES),
            tuple(spans(rows, sizes)),
            packer.executed(rows, sizes),
        )


def empty_batch(shape: RowShape, config: Qwen3VLConfig, mesh: Mesh) -> Batch:
    """Makes this process's rows of a micro-batch of padding, to compile programs with."""
    held = process_rows(mesh, shape.rows)
    return lay_out(_no_tree, (), shape, config, held, VALUES)


def _no_tree(number: int) -> Tree:
    raise IndexError(number)


def rl_packer(
    sizes: Sequence[SampleSize],
    config: RlConfig,
    model: Qwen3VLConfig,
    shards: int,
    *,
    online: bool = False,
    replay: Sequence[SampleSize] = (),
) -> Packer:
    """Chooses the rows of a run by packing steps of random prompts.

    Responses are as long as targets, and some run to the limit. A step has as many rejected groups as
    accepted ones, as far as they are kept: where fewer are rejected, a run says how full its rows are.

    Args:
      online: rows fit the longest prompt and the largest screenshot that the limits allow.
      replay: sizes of the replayed corpus.

    Raises:
      UserError: a prompt and one response do not fit a row.
    """
    rng = np.random.default_rng(config.seed)
    accepted = config.mini_batch_groups
    salvaged = min(accepted, config.max_salvage_groups * accepted // config.train_groups)
    if config.mini_batch_of == "all":
        accepted, salvaged = accepted - salvaged // 2, salvaged // 2
    targets = np.asarray([size.num_targets for size in sizes])
    longest = max(config.max_response_tokens, *(size.num_targets for size in (*sizes, *replay)))
    steps = []
    for _ in range(_TRIALS):
        chosen = rng.choice(len(sizes), accepted + salvaged, replace=len(sizes) < accepted + salvaged)
        step = []
        for number, size in enumerate(sizes[index] for index in chosen):
            responses = rng.choice(targets, config.num_samples + (number >= accepted))
            responses[rng.random(len(responses)) < _RUNAWAYS] = config.max_response_tokens
            step.append(TreeSize(size.prompt_length, tuple(responses.tolist()), size.patches))
        if replay:
            drawn = [replay[index] for index in rng.choice(len(replay), config.replay_samples)]
            step += [TreeSize(size.prompt_length, (size.num_targets,), size.patches) for size in drawn]
        steps.append(step)
    sizes = [*sizes, *replay]
    patches = [count for size in sizes for count in size.patches]
    prompts = [size.prompt_length for size in sizes]
    if online:
        patches.append(config.max_pixels // model.vision.patch_size**2)
        prompts.append(config.max_prompt_tokens)
    return choose_packer(
        steps,
        model,
        rows=shards,
        least=max(prompts) + longest,
        most=config.row_tokens,
        multiple=config.row_multiple,
        images=max(int(online), *(len(size.patches) for size in sizes)),
        window=max(patches, default=0),
    )


def trees_of(batch: MiniBatch, *, salvage: bool) -> list[LazyTree]:
    """Makes the tree of each turn of an optimizer step, in the order of `MiniBatch.turns`.

    The branches are the turn's responses, in order, and after them the target of a rejected or replayed turn.
    The surrogate is a mean over accepted responses, the KL term over all responses, the anchor over salvaged
    groups (their K samples share one target, so one sequence represents them).

    Args:
      salvage: False leaves out the targets (anchor weight 0).
    """
    turns = batch.turns
    # Two denominators. verl's actor masks both terms alike: with rejected rows in the mask they dilute the
    # surrogate, without them they have no KL term (docs/results/verl.md).
    accepted_weight = sum(turn.total_weight for turn in batch.accepted)
    total_weight = sum(turn.total_weight for turn in turns)
    accepted_tokens = sum(len(tokens) for turn in batch.accepted for tokens in turn.responses)
    # Turns of episodes have no target, but for those that are verified replies to their task.
    num_anchored = sum(bool(turn.prompt.target) for turn in batch.salvaged)

    def responses(turn: Turn, accepted: bool) -> Iterator[Branch]:
        for sample, tokens in enumerate(turn.responses):
            mask = np.ones(len(tokens), bool)
            values: dict[str, Any] = {
                "kl_weight": token_weights(mask, total_weight / turn.weight(sample)),
                "behaviour_log_probs": turn.log_probs[sample],
            }
            if accepted:
                values["pg_weight"] = token_weights(mask, accepted_weight / turn.weight(sample))
                values["token_mean_weight"] = 1 / accepted_tokens
                values["advantages"] = float(turn.advantages[sample])
            yield Branch(tokens, values)

    def tree(turn: Turn, accepted: bool, given: Callable[[Example], dict[str, Any]] | None) -> LazyTree:
        lengths = [len(tokens) for tokens in turn.responses]
        size = turn.prompt.size
        if given:
            lengths.append(size.num_targets)

        def make() -> Tree:
            example, branches = turn.prompt.encoded(), list(responses(turn, accepted))
            if given:
                branches.append(Branch(example.target, given(example)))
            return Tree(example, tuple(branches))

        return LazyTree(TreeSize(size.prompt_length, tuple(lengths), size.patches), make)

    def anchor(example: Example) -> dict[str, Any]:
        return {"salvage_weight": token_weights(example.action_mask, num_anchored)}

    def replay(example: Example) -> dict[str, Any]:
        # The whole reply, as in SFT.
        whole = np.ones(example.num_targets, bool)
        return {"replay_weight": token_weights(whole, len(batch.replayed))}

    return [
        *(tree(turn, True, None) for turn in batch.accepted),
        *(tree(turn, False, anchor if salvage and turn.prompt.target else None) for turn in batch.salvaged),
        *(tree(turn, False, replay) for turn in batch.replayed),
    ]
