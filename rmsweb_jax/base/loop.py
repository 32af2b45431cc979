"""The curriculum: phases that end when their questions are answered, checkpoints, metrics."""

from __future__ import annotations

import collections
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from absl import logging

from rmsweb_jax.base.rows import Batch
from rmsweb_jax.base.settings import BaseConfig
from rmsweb_jax.base.train import (
    StepMetrics,
    TrainState,
    TrainStep,
    join_params,
    make_optimizer,
    make_steps,
    split_params,
)
from rmsweb_jax.checkpoints import Checkpoints, abstract_like
from rmsweb_jax.metrics import MetricWriter
from rmsweb_jax.qwen3_vl.model import Qwen3VL

MakeBatch = Callable[[int, int], Batch]
_LOG_EVERY = 50


class Place(NamedTuple):
    """Where a run is.

    Attributes:
      step: steps taken in all.
      phase: index of the phase.
      phase_step: steps taken in it.
      seconds: time spent, over resumed runs.
    """

    step: int = 0
    phase: int = 0
    phase_step: int = 0
    seconds: float = 0.0


class Prefetcher:
    """Makes the batches of one phase in a thread, so that the step never waits for pages.

    A batch depends on its phase and step alone: a resumed run reads the same ones.
    """

    def __init__(self, make: MakeBatch, phase: int, first: int, stop: int):
        self._queue: queue.Queue[Batch | BaseException] = queue.Queue(4)
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

    def _put(self, item: Batch | BaseException) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=0.2)
                return True
            except queue.Full:
                continue
        return False

    def get(self) -> Batch:
        item = self._queue.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()


def summarize(metrics: list[StepMetrics], kinds: tuple[str, ...]) -> dict[str, float]:
    """Means over several batches; see `rmsweb_jax.base.scores.score` for the names."""
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


def rate_scale(config: BaseConfig, place: Place) -> float:
    """The phase's share of the rates, with a warm-up at the start and a linear decay over the last phase."""
    phase = config.phases[place.phase]
    scale = phase.rate * min(1.0, (place.step + 1) / config.warmup_steps)
    if place.phase == len(config.phases) - 1:
        scale *= 1.0 - (1.0 - config.final_rate) * place.phase_step / phase.max_steps
    return scale


def train(
    config: BaseConfig,
    model: Qwen3VL,
    make_batch: MakeBatch,
    kinds: tuple[str, ...],
    folder: Path,
    on_checkpoint: Callable[[Qwen3VL, Place], None],
) -> tuple[Qwen3VL, Place]:
    """Runs (or resumes) the whole curriculum.

    Args:
      make_batch: batch of a phase and step.
      folder: gets `checkpoints/`, `metrics.jsonl` and `tensorboard/`.
      on_checkpoint: called with the current model whenever one was saved.
    """
    skeleton, params = split_params(model)
    optimizer = make_optimizer(config.muon_rate, config.adam_rate)
    state = TrainState(params, optimizer.init(params))
    train_step = make_steps(skeleton, optimizer)
    place = Place()
    with Checkpoints(folder / "checkpoints") as checkpoints:
        latest = checkpoints.latest_step()
        if latest is not None:
            state, extra = checkpoints.restore(latest, abstract_like(state))
            place = Place(**extra)

        def save(state: TrainState, place: Place) -> None:
            checkpoints.save(place.step, state, place._asdict())
            on_checkpoint(join_params(skeleton, state.params), place)

        with MetricWriter(folder, place.step) as writer:
            while place.phase < len(config.phases):
                state, place = _run_phase(config, state, place, train_step, make_batch, kinds, writer, save)
        save(state, place)
    return join_params(skeleton, state.params), place


def _run_phase(
    config: BaseConfig,
    state: TrainState,
    place: Place,
    train_step: TrainStep,
    make_batch: MakeBatch,
    kinds: tuple[str, ...],
    writer: MetricWriter,
    save: Callable[[TrainState, Place], None],
) -> tuple[TrainState, Place]:
    """Takes the steps of one phase; returns at its end with the place of the next phase."""
    phase = config.phases[place.phase]
    recent: collections.deque[StepMetrics] = collections.deque(maxlen=phase.window)
    batches = Prefetcher(make_batch, place.phase, place.phase_step, phase.max_steps)
    began, before = time.monotonic(), place.seconds
    try:
        while place.phase_step < phase.max_steps:
            scale = rate_scale(config, place)
            state, metrics = train_step(state, batches.get(), scale)
            recent.append(jax.device_get(metrics))
            seconds = before + time.monotonic() - began
            place = place._replace(step=place.step + 1, phase_step=place.phase_step + 1, seconds=seconds)
            if place.phase_step % _LOG_EVERY == 0 or place.phase_step == phase.max_steps:
                values = summarize(list(recent), kinds)
                writer.write(place.step, {**values, "phase": phase.name, "rate": scale, "seconds": seconds})
                told = {key: round(value, 3) for key, value in values.items()}
                logging.info("%s %d (%d): %s", phase.name, place.phase_step, place.step, told)
                if place.phase_step >= phase.window and values["accuracy"] >= phase.accuracy:
                    break
            if place.step % config.checkpoint_every == 0:
                save(state, place)
    finally:
        batches.close()
    return state, place._replace(phase=place.phase + 1, phase_step=0)
