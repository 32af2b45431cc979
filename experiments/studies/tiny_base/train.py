"""Training of the tiny base: a curriculum of phases that end when their questions are answered.

Muon trains the decoder's matrices, Adam all other parameters. A run writes checkpoints and metrics, and
can be resumed.
"""

from __future__ import annotations

import collections
import queue
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import logging
from flax import nnx

from experiments.studies.tiny_base.batches import GroundingBatch
from experiments.studies.tiny_base.settings import BaseConfig
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.training.checkpoints import Checkpoints
from rmsweb_jax.training.metrics import MetricWriter

Params = dict[str, jax.Array]
NUM_KINDS = 8


class BaseTrainState(NamedTuple):
    """The state that a checkpoint holds."""

    params: Params
    opt_state: optax.OptState


class StepMetrics(NamedTuple):
    """Sums over a batch, which can be added over steps.

    Attributes:
      loss: weighted mean of the tokens' cross-entropies.
      correct, asked: [NUM_KINDS] index tokens that were predicted, by kind of question; 0 is unused.
      chance: expected number of right guesses among the possible elements.
      copied, copies: other learned tokens, predicted and in all.
    """

    loss: jax.Array
    correct: jax.Array
    asked: jax.Array
    chance: jax.Array
    copied: jax.Array
    copies: jax.Array


class Skeleton(NamedTuple):
    """A model without its parameters."""

    graphdef: Any
    rest: Any
    paths: dict[str, tuple[Any, ...]]


def split_params(model: Qwen3VL) -> tuple[Skeleton, Params]:
    """The model's skeleton, and its parameters by dotted path."""
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)
    flat = {".".join(map(str, path)): (path, value[...]) for path, value in nnx.to_flat_state(params)}
    paths = {name: path for name, (path, _) in flat.items()}
    return Skeleton(graphdef, rest, paths), {name: value for name, (_, value) in flat.items()}


def join_params(skeleton: Skeleton, params: Params) -> Qwen3VL:
    """The inverse of `split_params`."""
    state = nnx.from_flat_state([(skeleton.paths[name], nnx.Param(value)) for name, value in params.items()])
    return nnx.merge(skeleton.graphdef, state, skeleton.rest)


def make_optimizer(muon_rate: float, adam_rate: float) -> optax.GradientTransformation:
    """Muon for the decoder's matrices, Adam for all other parameters."""

    def dimensions(params: optax.Params) -> dict[str, Any]:
        return {name: _muon_axes(name, value) for name, value in cast(Params, params).items()}

    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.contrib.muon(
            muon_rate,
            adam_learning_rate=adam_rate,
            adam_b2=0.98,
            muon_weight_dimension_numbers=dimensions,
        ),
    )


def _muon_axes(name: str, value: jax.Array) -> optax.contrib.MuonDimensionNumbers | None:
    if not (name.startswith("language_model.") and name.endswith(".kernel")) or ".conv1d." in name:
        return None
    return optax.contrib.MuonDimensionNumbers(value.ndim - 2, value.ndim - 1)


def make_loss(skeleton: Skeleton) -> Callable[[Params, GroundingBatch], tuple[jax.Array, StepMetrics]]:
    """Weighted cross-entropy at the learned positions only; logits are not computed elsewhere."""

    def loss_fn(params: Params, batch: GroundingBatch) -> tuple[jax.Array, StepMetrics]:
        model = join_params(skeleton, params)
        hidden = model(batch.inputs)
        picked = jnp.take_along_axis(hidden, jnp.asarray(batch.source)[..., None], axis=1)
        logits = model.logits(picked)
        target = jnp.maximum(batch.target, 0)
        weight = jnp.where(jnp.asarray(batch.target) >= 0, batch.weight, 0.0)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, target)
        loss = jnp.sum(losses * weight) / jnp.maximum(jnp.sum(weight), 1.0)
        hit = (jnp.argmax(logits, -1) == target) & (weight > 0)
        kind = jax.nn.one_hot(batch.index, NUM_KINDS) * (jnp.asarray(batch.index) > 0)[..., None]
        plain = (weight > 0) & (jnp.asarray(batch.index) == 0)
        choices = jnp.asarray(batch.choices)
        metrics = StepMetrics(
            loss=loss,
            correct=jnp.sum(kind * hit[..., None], (0, 1)),
            asked=jnp.sum(kind, (0, 1)),
            chance=jnp.sum(jnp.where(choices > 0, 1.0 / jnp.maximum(choices, 1.0), 0.0)),
            copied=jnp.sum(hit & plain),
            copies=jnp.sum(plain),
        )
        return loss, metrics

    return loss_fn


def _share(name: str) -> float:
    # Adam's rate fits the embeddings; the vision tower's matrices are ten times smaller.
    return 0.1 if name.startswith("visual.") else 1.0


TrainStep = Callable[[BaseTrainState, GroundingBatch, float], tuple[BaseTrainState, StepMetrics]]


def make_steps(skeleton: Skeleton, optimizer: optax.GradientTransformation) -> TrainStep:
    """The jitted training step: (state, batch, share of the learning rates); the state is donated."""
    loss_fn = make_loss(skeleton)

    def train_step(
        state: BaseTrainState, batch: GroundingBatch, scale: float
    ) -> tuple[BaseTrainState, StepMetrics]:
        grads, metrics = jax.grad(loss_fn, has_aux=True)(state.params, batch)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        steps = cast(Params, updates)
        steps = {name: step * scale * _share(name) for name, step in steps.items()}
        return BaseTrainState(cast(Params, optax.apply_updates(state.params, steps)), opt_state), metrics

    return jax.jit(train_step, donate_argnums=0)


MakeBatch = Callable[[int, int], GroundingBatch]
_LOG_EVERY = 50


class RunPosition(NamedTuple):
    """Progress of a run.

    Attributes:
      step: number of steps so far.
      phase: index of the phase.
      phase_step: number of steps in it.
      seconds: time spent, with the runs that it resumes.
    """

    step: int = 0
    phase: int = 0
    phase_step: int = 0
    seconds: float = 0.0


class Prefetcher:
    """Makes the batches of one phase in a thread, so that steps do not wait for pages.

    A batch depends on its phase and step alone, so a resumed run gets the same ones.
    """

    def __init__(self, make: MakeBatch, phase: int, first: int, stop: int):
        self._queue: queue.Queue[GroundingBatch | BaseException] = queue.Queue(4)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(make, phase, first, stop), daemon=True)
        self._thread.start()

    def _run(self, make: MakeBatch, phase: int, first: int, stop: int) -> None:
        try:
            for step in range(first, stop):
                if not self._put(make(phase, step)):
                    return
        except BaseException as error:
            self._put(error)

    def _put(self, item: GroundingBatch | BaseException) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=0.2)
                return True
            except queue.Full:
                continue
        return False

    def get(self) -> GroundingBatch:
        item = self._queue.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()


def summarize(metrics: list[StepMetrics], kinds: tuple[str, ...]) -> dict[str, float]:
    """Means over several batches; see `score` for the names."""
    total = jax.tree.map(lambda *parts: np.sum(np.stack(parts), axis=0), *metrics)
    asked = max(float(total.asked.sum()), 1.0)
    values = {
        "loss": float(total.loss) / len(metrics),
        "accuracy": float(total.correct.sum()) / asked,
        "chance": float(total.chance) / asked,
        "copy_accuracy": float(total.copied) / max(float(total.copies), 1.0),
    }
    for number, kind in enumerate(kinds, 1):
        if total.asked[number]:
            values[f"accuracy_{kind}"] = float(total.correct[number] / total.asked[number])
    return values


def rate_scale(config: BaseConfig, position: RunPosition) -> float:
    """Factor of the learning rates: the phase's, a warm-up at the start, a linear decay in the last phase."""
    phase = config.phases[position.phase]
    scale = phase.rate * min(1.0, (position.step + 1) / config.warmup_steps)
    if position.phase == len(config.phases) - 1:
        scale *= 1.0 - (1.0 - config.final_rate) * position.phase_step / phase.max_steps
    return scale


def train(
    config: BaseConfig,
    model: Qwen3VL,
    make_batch: MakeBatch,
    kinds: tuple[str, ...],
    folder: Path,
    on_checkpoint: Callable[[Qwen3VL, RunPosition], None],
) -> tuple[Qwen3VL, RunPosition]:
    """Runs (or resumes) the whole curriculum.

    Args:
      make_batch: batch of a phase and step.
      folder: gets `checkpoints/`, `metrics.jsonl` and `tensorboard/`.
      on_checkpoint: called with the current model after each checkpoint.
    """
    skeleton, params = split_params(model)
    optimizer = make_optimizer(config.muon_rate, config.adam_rate)
    state = BaseTrainState(params, optimizer.init(params))
    train_step = make_steps(skeleton, optimizer)
    position = RunPosition()
    with Checkpoints(folder / "checkpoints") as checkpoints:
        latest = checkpoints.latest_step()
        if latest is not None:
            state, extra = checkpoints.restore(latest, state)
            position = RunPosition(**extra)

        def save(state: BaseTrainState, position: RunPosition) -> None:
            checkpoints.save(position.step, state, position._asdict())
            on_checkpoint(join_params(skeleton, state.params), position)

        with MetricWriter(folder, position.step) as writer:
            while position.phase < len(config.phases):
                state, position = _run_phase(
                    config, state, position, train_step, make_batch, kinds, writer, save
                )
        save(state, position)
    return join_params(skeleton, state.params), position


def _run_phase(
    config: BaseConfig,
    state: BaseTrainState,
    position: RunPosition,
    train_step: TrainStep,
    make_batch: MakeBatch,
    kinds: tuple[str, ...],
    writer: MetricWriter,
    save: Callable[[BaseTrainState, RunPosition], None],
) -> tuple[BaseTrainState, RunPosition]:
    """Runs one phase; returns the position at the start of the next one."""
    phase = config.phases[position.phase]
    recent: collections.deque[StepMetrics] = collections.deque(maxlen=phase.window)
    batches = Prefetcher(make_batch, position.phase, position.phase_step, phase.max_steps)
    began, before = time.monotonic(), position.seconds
    try:
        while position.phase_step < phase.max_steps:
            scale = rate_scale(config, position)
            state, metrics = train_step(state, batches.get(), scale)
            recent.append(jax.device_get(metrics))
            seconds = before + time.monotonic() - began
            position = position._replace(
                step=position.step + 1, phase_step=position.phase_step + 1, seconds=seconds
            )
            if position.phase_step % _LOG_EVERY == 0 or position.phase_step == phase.max_steps:
                values = summarize(list(recent), kinds)
                writer.write(
                    position.step, {**values, "phase": phase.name, "rate": scale, "seconds": seconds}
                )
                rounded = {key: round(value, 3) for key, value in values.items()}
                logging.info("%s %d (%d): %s", phase.name, position.phase_step, position.step, rounded)
                if position.phase_step >= phase.window and values["accuracy"] >= phase.accuracy:
                    break
            if position.step % config.checkpoint_every == 0:
                save(state, position)
    finally:
        batches.close()
    return state, position._replace(phase=position.phase + 1, phase_step=0)


def score(model: Qwen3VL, batches: Iterable[GroundingBatch], kinds: tuple[str, ...]) -> dict[str, float]:
    """Accuracies over batches of one shape; an index counts when it is the likeliest next token.

    Returns:
      `accuracy` and `accuracy_KIND` of index tokens, `chance` of guessing among the elements that the
      action could be about, `copy_accuracy` of all other learned tokens, `questions` asked, `loss`.
    """
    skeleton, params = split_params(model)
    loss_fn = make_loss(skeleton)
    step = jax.jit(lambda params, batch: loss_fn(params, batch)[1])
    metrics = [jax.device_get(step(params, batch)) for batch in batches]
    return {**summarize(metrics, kinds), "questions": float(sum(part.asked.sum() for part in metrics))}
