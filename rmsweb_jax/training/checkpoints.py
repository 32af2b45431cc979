"""Checkpoints of a training loop (Orbax): arrays and counters, written atomically and in the background.

Orbax writes to disks and `gs://`. For `s3://`, where it does not work, the first process writes the whole
state to its own disk and uploads it, and the others download it. Each host's memory must hold it, as it does
for adapters.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from jax.experimental import multihost_utils
from orbax.checkpoint import multihost
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, LatestN

from rmsweb_jax.errors import UnreachableError, UserError
from rmsweb_jax.records.staging import folder_on_disk
from rmsweb_jax.storage import AnyPath, Entry, StorePath
from rmsweb_jax.training.mesh import from_all_processes, is_first


def _is_not_missing_metric(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("Requested `tracked_metric`")


# Orbax warns at every checkpoint without a metric; between two evaluations there is none to give.
logging.getLogger("absl").addFilter(_is_not_missing_metric)


_THREADS = 8
# What Orbax raises when a checkpoint does not fit.
_MISFITS = (ValueError, KeyError, FileNotFoundError)


class Checkpoints:
    """The numbered checkpoints of one run; a run killed at any moment keeps the last finished one.

    Args:
      folder: on a disk that all processes share, or in a bucket; created if missing.
      keep: number of latest checkpoints to keep.
      best: metric by which the best checkpoint is kept too, of equal ones the newest; "" for none.
      higher_is_better: the direction of that metric.
    """

    def __init__(self, folder: AnyPath, keep: int = 2, best: str = "", higher_is_better: bool = True):
        self._folder = folder.resolve() if isinstance(folder, Path) else folder
        self._best = best
        options = _options(keep, best, higher_is_better)
        self._copies = None
        if isinstance(folder, StorePath) and folder.scheme != "gs":
            self._copies = _Copies(folder)
            options.multiprocessing_options, options.create = _alone(), False
        else:
            options.async_options = ocp.AsyncOptions(barrier_sync_fn=_meet)
        place = self._copies.disk if self._copies else epath.Path(str(self._folder))
        with _one_line(self._folder):
            self._manager = ocp.CheckpointManager(place, options=options)
            self._latest = _agreed(self._manager.latest_step())

    def latest_step(self) -> int | None:
        """Returns the step of the newest checkpoint, or None if there is none."""
        return self._latest

    def best_step(self) -> int | None:
        """Returns the step of the best checkpoint, or None if none has the metric."""
        with _one_line(self._folder):
            measured = [step for step in self._manager.all_steps() if self._manager.metrics(step)]
            return _agreed(self._manager.best_step() if self._best and measured else None)

    def save(
        self, step: int, state: Any, extra: dict[str, Any], metrics: Mapping[str, float] | None = None
    ) -> None:
        """Saves `state` (pytree of arrays) and `extra` (JSON); returns while they are being written.

        An existing checkpoint of the same step is not overwritten.

        Args:
          metrics: may contain the metric by which the best checkpoint is chosen; others are ignored.
        """
        if step == self._latest:
            return
        self._latest = step
        if jax.default_backend() == "cpu":
            # On CPUs the writer would read the buffers that the next step donates.
            state = jax.tree.map(jnp.copy, state)
        value = (metrics or {}).get(self._best, math.nan)
        if self._copies:
            self._copies.wait()
            state = jax.tree.map(_whole, state)
            if not is_first():
                return
        with _one_line(self._folder):
            self._manager.save(
                step,
                args=ocp.args.Composite(state=ocp.args.StandardSave(state), extra=ocp.args.JsonSave(extra)),
                metrics={self._best: float(value)} if math.isfinite(value) else None,
                # The caller decides when to save; Orbax's own policy must not skip a step.
                force=True,
            )
        if self._copies:
            self._manager.wait_until_finished()
            self._copies.begin_upload()

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
        if self._copies and not is_first():
            self._copies.fetch({str(step)})
            self._manager.reload()
        items = ocp.args.Composite(
            state=ocp.args.StandardRestore(abstract_state), extra=ocp.args.JsonRestore()
        )
        try:
            with _one_line(self._folder, _MISFITS):
                restored = self._manager.restore(step, args=items)
        except _MISFITS as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                f"{self._folder}/{step}: this checkpoint is damaged or does not fit the run ({reason}): give "
                "another --workdir, or delete this folder to go on from the checkpoint before"
            ) from error
        return restored["state"], restored["extra"]

    def wait(self) -> None:
        """Returns when all saved checkpoints are in the folder; all processes must call this."""
        self._finish()
        if self._copies and jax.process_count() > 1:
            multihost_utils.sync_global_devices("checkpoints")

    def close(self) -> None:
        self._finish()
        with _one_line(self._folder):
            self._manager.close()
        if self._copies:
            self._copies.close()

    def _finish(self) -> None:
        with _one_line(self._folder):
            self._manager.wait_until_finished()
        if self._copies:
            self._copies.wait()

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@contextlib.contextmanager
def _one_line(folder: AnyPath, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Makes one line of the errors that Orbax and its clients raise for a bucket, but for those named."""
    try:
        yield
    except Exception as error:
        if isinstance(folder, Path) or isinstance(error, (UserError, *but)):
            raise
        reason = " ".join(str(error).split())[:200]
        raise UnreachableError(
            f"{folder}: the store did not answer as it should ({reason}): run the same command again; it "
            "goes on from the newest whole checkpoint"
        ) from error


def _agreed(step: int | None) -> int | None:
    """Returns the first process's step, since another one may have looked earlier; all must call this."""
    return json.loads(from_all_processes(json.dumps(step).encode())[0])


class _Copies:
    """Checkpoints in a bucket, and their copies on this process's disk, with which Orbax works.

    A checkpoint counts when the object `COMMITTED` in it, which is uploaded last, is there.

    Attributes:
      disk: the folder of the copies.
    """

    COMMITTED = "committed"

    def __init__(self, folder: StorePath):
        self._folder = folder
        self.disk = folder_on_disk(folder.parent, jax.process_index()) / folder.name
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._upload: Future[None] | None = None
        shutil.rmtree(self.disk, ignore_errors=True)
        self.disk.mkdir(parents=True)
        # It decides which ones to keep; the others get what they restore.
        if is_first():
            self.fetch(self._committed())

    def fetch(self, steps: set[str]) -> None:
        """Downloads those checkpoints that this disk does not have."""
        for step in steps - {path.name for path in self.disk.iterdir()}:
            prefix, unfinished = f"{self._folder.key}/{step}/", self.disk / f"{step}.part"

            def download(entry: Entry, prefix: str = prefix, unfinished: Path = unfinished) -> None:
                path = unfinished / entry.key.removeprefix(prefix)
                path.parent.mkdir(parents=True, exist_ok=True)
                self._folder.store.download(entry.key, path)

            with ThreadPoolExecutor(_THREADS) as pool:
                list(pool.map(download, (self._folder / step).entries()))
            (unfinished / self.COMMITTED).unlink()
            unfinished.rename(self.disk / step)

    def begin_upload(self) -> None:
        """Brings the bucket to the state of the disk, in the background."""
        self._upload = self._pool.submit(self._synchronize)

    def wait(self) -> None:
        """Returns when the bucket has the state of the disk.

        Raises:
          UserError: it cannot be written.
        """
        if self._upload is not None:
            self._upload.result()
            self._upload = None

    def _committed(self) -> set[str]:
        return {
            entry.key.split("/")[-2]
            for entry in self._folder.entries()
            if entry.key.endswith(f"/{self.COMMITTED}")
        }

    def _synchronize(self) -> None:
        there, here = self._committed(), {path.name for path in self.disk.iterdir() if path.name.isdecimal()}
        with ThreadPoolExecutor(_THREADS) as pool:

            def upload(path: Path) -> None:
                (self._folder / path.relative_to(self.disk).as_posix()).upload(path)

            for step in sorted(here - there, key=int):
                list(pool.map(upload, [path for path in (self.disk / step).rglob("*") if path.is_file()]))
                (self._folder / step / self.COMMITTED).write_bytes(b"")
            newest = max(map(int, here))
            for path in list(self._folder.iterdir()):
                # Later ones would be those of a process that has taken over.
                if path.name.isdecimal() and int(path.name) < newest and path.name not in here:
                    # Without that object first, it does not count any more.
                    (path / self.COMMITTED).unlink(missing_ok=True)
                    list(pool.map(self._folder.store.delete, [entry.key for entry in path.entries()]))

    def close(self) -> None:
        self._pool.shutdown()


def _meet(*, key: str, timeout_ms: int) -> None:
    """Waits for the other hosts; raises at once the error of a background write that has failed on this one.

    Orbax meets them after an error too, while those without one wait elsewhere, for 20 minutes. Raised, the
    error ends this process, and `Hosts` ends the others.
    """
    error = sys.exception()
    if error is not None and threading.current_thread() is not threading.main_thread():
        raise error
    multihost.get_barrier_sync_fn()(key=key, timeout_ms=timeout_ms)


def _alone() -> ocp.options.MultiprocessingOptions:
    """Options of a manager that works on this process's own disk, as if there were no other process."""
    if jax.process_count() == 1:
        return ocp.options.MultiprocessingOptions()
    me = jax.process_index()
    return ocp.options.MultiprocessingOptions(
        primary_host=me, active_processes={me}, barrier_sync_key_prefix=f"process{me}"
    )


def _whole(array: jax.Array) -> Any:
    """Copies an array to this host from all devices of all processes, which must all call this."""
    if array.is_fully_addressable:
        return array
    return np.asarray(multihost_utils.process_allgather(array, tiled=True))


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
