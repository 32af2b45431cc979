"""What SFT and RL share around their steps: resume, metrics, progress, checkpoints, stop and report."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

from rmsweb_jax.errors import StoppedError, UserError
from rmsweb_jax.progress import Progress
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.signals import StopRequest
from rmsweb_jax.storage import AnyPath, folder_on_disk
from rmsweb_jax.training.checkpoints import Checkpoints
from rmsweb_jax.training.mesh import any_process, is_first, stop_cause
from rmsweb_jax.training.metrics import MetricWriter
from rmsweb_jax.training.step import MAX_SKIPPED, TrainState


class Loop(contextlib.ExitStack):
    """A run's steps, from where it left off. All processes make the same calls.

    Args:
      stage: its name in `progress.json` and `report.json`.
      total: number of steps.
      every: steps from one checkpoint to the next.
      begin: when the run began, in seconds of the monotonic clock.
      checkpoints: those of the run.
      state, extra: of a run that begins; a checkpoint holds both, `extra` as JSON.

    Attributes:
      first, state, extra: number of the first step to do, and what it begins with.
      writer, progress: of the run.

    Raises:
      UserError: see `Checkpoints.resume`.
    """

    def __init__(
        self,
        stage: str,
        workdir: AnyPath,
        total: int,
        every: int,
        begin: float,
        checkpoints: Checkpoints,
        state: TrainState,
        extra: dict[str, Any],
    ):
        super().__init__()
        self._stage, self._workdir, self._total, self._every = stage, workdir, total, every
        self._folder, self._begin = folder_on_disk(workdir, jax.process_index()), begin
        with contextlib.ExitStack() as opened:
            self.checkpoints = opened.enter_context(checkpoints)
            resumed = checkpoints.resume(state)
            self.first, self.state, self.extra = resumed or (0, state, extra)
            self._before: float = self.extra.pop("seconds", 0.0)
            self.writer = opened.enter_context(MetricWriter(workdir, self.first))
            self.push(opened.pop_all())
        self.progress = Progress(self._folder, stage, total, self.first, active=is_first())
        self._stop, self._stopping = StopRequest(), self.enter_context(contextlib.ExitStack())

    @property
    def seconds(self) -> float:
        """Seconds of the run so far, with those before it was resumed."""
        return self._before + time.monotonic() - self._begin

    def log(self, done: int, metrics: Mapping[str, Any], note: str) -> None:
        """Writes the row of a step."""
        if done == self.first + 1:
            # Until now, while programs were compiled, there was nothing to save: a signal ended the run.
            self._stopping.enter_context(self._stop)
        self.writer.write(done, metrics)
        self.progress.update(done, note)

    def save(
        self,
        done: int,
        state: TrainState,
        metrics: Mapping[str, Any],
        extra: Callable[[], Mapping[str, Any]],
        due: bool = False,
    ) -> None:
        """Saves a checkpoint if it is due; stops after a signal, or if the policy has diverged.

        Args:
          extra: makes the JSON that a checkpoint holds.

        Raises:
          UserError: too many steps in a row were not finite; the state is saved.
          StoppedError: a signal asked the run to stop; everything is saved.
        """
        broken = metrics["skipped_in_a_row"] >= MAX_SKIPPED
        # Exchanged at the same step by all processes, so that they stop together.
        stopped = any_process(self._stop.requested)
        if due or done % self._every == 0 or done == self._total or stopped or broken:
            self.writer.publish()
            self.checkpoints.save(done, state, {"seconds": self.seconds, **extra()}, metrics)
        if broken:
            self.checkpoints.wait()
            raise UserError(
                f"{self._workdir}: the loss or its gradient was not finite in "
                f"{metrics['skipped_in_a_row']:.0f} optimizer steps in a row, which were skipped; step "
                f"{done} is saved in checkpoints/: lower config.learning_rate and train in another --workdir"
            )
        if stopped:
            self.checkpoints.wait()
            raise StoppedError(f"the checkpoint of step {done} is saved", stop_cause(self._stop))

    def finish(self) -> None:
        """Waits until all is saved. From now on a signal ends the run at once."""
        self.progress.close()
        self.checkpoints.wait()
        self._stopping.close()

    def report(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Writes `report.json`, last: a stage is done when it exists."""
        report = {"stage": self._stage, "seconds": round(self.seconds, 1), **values}
        if is_first():
            write_atomic(self._folder / "report.json", json.dumps(report, indent=1).encode())
        return report
