"""Checkpoints of a training loop (Orbax): arrays and counters, written atomically and in the background."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, LatestN

from rmsweb_jax.errors import UserError


def _is_not_missing_metric(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("Requested `tracked_metric`")


# Orbax warns at every checkpoint without a metric; between two evaluations there is none to give.
logging.getLogger("absl").addFilter(_is_not_missing_metric)


class Checkpoints:
    """The numbered checkpoints of one run; a run killed at any moment keeps the last finished one.

    Args:
      folder: created if missing.
      keep: number of latest checkpoints to keep.
      best: metric by which the best checkpoint is kept too, of equal ones the newest; "" for none.
      higher_is_better: the direction of that metric.
    """

    def __init__(self, folder: Path, keep: int = 2, best: str = "", higher_is_better: bool = True):
        self._folder = folder.resolve()
        self._best = best
        self._manager = ocp.CheckpointManager(self._folder, options=_options(keep, best, higher_is_better))

    def latest_step(self) -> int | None:
        """Returns the step of the newest checkpoint, or None if there is none."""
        return self._manager.latest_step()

    def best_step(self) -> int | None:
        """Returns the step of the best checkpoint, or None if none has the metric."""
        measured = [step for step in self._manager.all_steps() if self._manager.metrics(step)]
        return self._manager.best_step() if self._best and measured else None

    def save(
        self, step: int, state: Any, extra: dict[str, Any], metrics: Mapping[str, float] | None = None
    ) -> None:
        """Saves `state` (pytree of arrays) and `extra` (JSON); returns while they are being written.

        An existing checkpoint of the same step is not overwritten.

        Args:
          metrics: may contain the metric by which the best checkpoint is chosen; others are ignored.
        """
        if step == self.latest_step():
            return
        if jax.default_backend() == "cpu":
            # On CPUs the writer would read the buffers that the next step donates.
            state = jax.tree.map(jnp.copy, state)
        value = (metrics or {}).get(self._best, math.nan)
        self._manager.save(
            step,
            args=ocp.args.Composite(state=ocp.args.StandardSave(state), extra=ocp.args.JsonSave(extra)),
            metrics={self._best: float(value)} if math.isfinite(value) else None,
            # The caller decides when to save; Orbax's own policy must not skip a step.
            force=True,
        )

    def restore(self, step: int, abstract_state: Any) -> tuple[Any, dict[str, Any]]:
        """Restores a checkpoint.

        Args:
          abstract_state: the state with a `jax.ShapeDtypeStruct`, with sharding, for each array.

        Returns:
          The state, and the extra values.

        Raises:
          UserError: the checkpoint does not fit, for example because the model has changed.
        """
        self.wait()
        items = ocp.args.Composite(
            state=ocp.args.StandardRestore(abstract_state), extra=ocp.args.JsonRestore()
        )
        try:
            restored = self._manager.restore(step, args=items)
        except (ValueError, KeyError, FileNotFoundError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                f"{self._folder}/{step}: this checkpoint does not fit the run ({reason}): "
                "delete the folder to begin anew, or give another --workdir"
            ) from error
        return restored["state"], restored["extra"]

    def wait(self) -> None:
        """Returns when all saved checkpoints are on disk."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        self._manager.wait_until_finished()
        self._manager.close()

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def abstract_like(tree: Any) -> Any:
    """Returns shapes, dtypes and shardings of a pytree of arrays, for `Checkpoints.restore`."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)


def _options(keep: int, best: str, higher_is_better: bool) -> ocp.CheckpointManagerOptions:
    if not best:
        return ocp.CheckpointManagerOptions(max_to_keep=keep, cleanup_tmp_directories=True)

    def value(metrics: Mapping[str, float]) -> float:
        return metrics[best]

    # `max_to_keep` would keep the best checkpoints only, and a run resumes from the latest one.
    best_one = BestN(
        get_metric_fn=value, reverse=not higher_is_better, n=1, keep_checkpoints_without_metrics=False
    )
    return ocp.CheckpointManagerOptions(
        best_fn=value,
        best_mode="max" if higher_is_better else "min",
        preservation_policy=AnyPreservationPolicy([LatestN(keep), best_one]),
        cleanup_tmp_directories=True,
    )
