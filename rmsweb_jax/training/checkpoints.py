"""Checkpoints of a training loop (Orbax): arrays and counters, written atomically and in the background.

A checkpoint holds the SHA-256 of its files (`SUMS`). They are written before Orbax commits it, so that none
counts without them, and compared before a value is believed: Orbax itself restores changed bytes. SHA-256 as
for data sets: processors have instructions for it, and hashlib has nothing faster that is sound.

Orbax writes to disks and `gs://`. For `s3://`, where it does not work, the first process writes the whole
state to its own disk and uploads it, and the others download it. Each host's memory must hold it, as it does
for adapters.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import logging
import math
import os
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
from orbax.checkpoint.path import atomicity, atomicity_types

from rmsweb_jax.errors import UnreachableError, UserError
from rmsweb_jax.storage import AnyPath, Entry, StorePath, check_owner, folder_on_disk
from rmsweb_jax.training.identity import Identity
from rmsweb_jax.training.mesh import from_all_processes, is_first


def _is_news(record: logging.LogRecord) -> bool:
    # Orbax warns at every checkpoint without a metric; between two evaluations there is none to give. It also
    # logs the tracebacks of errors that it raises, some of them twice.
    known = record.exc_info and "orbax" in record.pathname
    return not (known or record.getMessage().startswith("Requested `tracked_metric`"))


logging.getLogger("absl").addFilter(_is_news)


_THREADS = 8
# What Orbax raises when a whole checkpoint does not fit.
_MISFITS = (ValueError, KeyError)
# The file of a checkpoint with the size and the SHA-256 of all others.
SUMS = "sha256.json"
# Orbax writes these when it commits: the time, and a mark.
_UNSUMMED = (SUMS, "_CHECKPOINT_METADATA", atomicity.COMMIT_SUCCESS_FILE)
_BLOCK = 2**20


class DamagedError(UserError):
    """A checkpoint is not what was saved.

    Attributes:
      checkpoint: which one, and what is wrong with it.
    """

    def __init__(self, checkpoint: str):
        self.checkpoint = checkpoint
        super().__init__(f"{checkpoint}: put its files back, or delete its folder to do without it")


class Checkpoints:
    """The numbered checkpoints of one run; a run killed at any moment keeps the last finished one.

    Args:
      folder: on a disk that all processes share, or in a bucket; created if missing.
      keep: number of latest checkpoints to keep.
      best: metric by which the best checkpoint is kept too, of equal ones the newest; "" for none.
      higher_is_better: the direction of that metric.
      identity: what the run is made of: kept in each checkpoint, and compared when the run resumes.
    """

    def __init__(
        self,
        folder: AnyPath,
        keep: int = 2,
        best: str = "",
        higher_is_better: bool = True,
        identity: Identity | None = None,
    ):
        self._folder = folder.resolve() if isinstance(folder, Path) else folder
        self._best, self._identity = best, identity
        options = _options(keep, best, higher_is_better)
        on_gcs = isinstance(folder, StorePath) and folder.scheme == "gs"
        options.temporary_path_class = _CommitFile if on_gcs else _Rename
        self._copies = None
        if isinstance(folder, StorePath) and not on_gcs:
            self._copies = _Copies(folder)
            options.multiprocessing_options, options.create = _alone(), False
        else:
            options.async_options = ocp.AsyncOptions(barrier_sync_fn=_meet)
        self._place = epath.Path(str(self._copies.disk if self._copies else self._folder))
        with _one_line(self._folder):
            self._manager = _Manager(self._place, options=options)
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
        check_owner(self._folder.parent)
        self._latest = step
        if jax.default_backend() == "cpu":
            # On CPUs the writer would read the buffers that the next step donates.
            state = jax.tree.map(jnp.copy, state)
        if self._identity:
            extra = extra | {"identity": self._identity.digests}
        value = (metrics or {}).get(self._best, math.nan)
        if self._copies:
            self._copies.wait()
            state = jax.tree.map(_whole, state)
            if not is_first():
                return
        with _one_line(self._folder):
            self._manager.wait_until_finished()
            self._require_space(state)
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

    def _require_space(self, state: Any) -> None:
        """Raises an error if the disk is too full: each of Orbax's writers would print a traceback."""
        if isinstance(self._folder, Path) or self._copies:
            needed = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
            if shutil.disk_usage(self._place).free < needed:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._folder))

    def resume(self, like: Any) -> tuple[int, Any, dict[str, Any]] | None:
        """Restores the newest checkpoint that is whole; None if the run has none yet.

        Damaged ones that are newer are named in a line each on standard error and deleted: the run makes
        them again.

        Args:
          like: see `restore`.

        Returns:
          Its step, the state, and the extra values.

        Raises:
          UserError: as `restore`; none is whole, and nothing is deleted; or the checkpoint's identity differs
            from this run's.
        """
        damaged: dict[int, str] = {}
        for step in _agreed(sorted(self._manager.all_steps(), reverse=True)):
            try:
                state, extra = self.restore(step, like)
            except DamagedError as error:
                damaged[step] = error.checkpoint
                continue
            for other, what in damaged.items():
                if is_first():
                    print(f"{what}: going on from step {step}", file=sys.stderr, flush=True)
                self._delete(other)
            self._latest = step
            return step, state, extra
        if damaged:
            raise UserError(
                f"{'; '.join(damaged.values())}; no other is left: put its files back, or use another "
                "--workdir"
            )
        return None

    def restore(self, step: int, like: Any) -> tuple[Any, dict[str, Any]]:
        """Restores a checkpoint.

        Args:
          like: a state with the same shapes, dtypes and shardings; its values are not read.

        Returns:
          The state, and the extra values.

        Raises:
          DamagedError: a file is missing or has changed.
          UserError: the checkpoint does not fit, for example because the model has changed.
        """
        self.wait()
        abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), like)
        if self._copies and not is_first():
            self._copies.fetch({str(step)})
            self._manager.reload()
        with _one_line(self._folder):
            # A copy is of one process, and a shared folder is read by all together.
            damage = _find_damage(self._place / str(step), shared=self._copies is None)
        if damage:
            raise DamagedError(f"{self._folder}/{step}: this checkpoint is damaged ({damage})")
        try:
            with _one_line(self._folder, _MISFITS):
                items = ocp.args.Composite(extra=ocp.args.JsonRestore())
                extra = self._manager.restore(step, args=items)["extra"]
                begun = extra.pop("identity", {})
                if self._identity:
                    self._identity.check(begun, self._folder.parent)
                items = ocp.args.Composite(state=ocp.args.StandardRestore(abstract))
                state = self._manager.restore(step, args=items)["state"]
        except _MISFITS as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                f"{self._folder}/{step}: this checkpoint does not fit the run ({reason}): give another "
                "--workdir"
            ) from error
        return state, extra

    def _delete(self, step: int) -> None:
        """Deletes a checkpoint; all processes must call this."""
        with _one_line(self._folder):
            self._manager.delete(step)
        if self._copies and is_first():
            self._copies.delete(step)

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
    """Makes one line of the errors that Orbax and its clients raise for a full disk or a bucket.

    Args:
      but: errors that pass.
    """
    try:
        yield
    except Exception as error:
        if _is_full(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        if isinstance(folder, Path) or isinstance(error, (UserError, *but)):
            raise
        reason = " ".join(str(error).split())[:200]
        raise UnreachableError(
            f"{folder}: the store did not answer as it should ({reason}): run the same command again; it "
            "goes on from the newest whole checkpoint"
        ) from error


def _is_full(error: BaseException | None) -> bool:
    # TensorStore raises ValueError with the system's text.
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if isinstance(error, ValueError) and os.strerror(errno.ENOSPC) in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _agreed(value: Any) -> Any:
    """Returns the first process's value, since another one may have looked earlier; all must call this."""
    return json.loads(from_all_processes(json.dumps(value).encode())[0])


class _Rename(atomicity.AtomicRenameTemporaryPath):
    async def finalize(self) -> None:
        await _sum_up(self)
        await super().finalize()


class _CommitFile(atomicity.CommitFileTemporaryPath):
    async def finalize(self) -> None:
        await _sum_up(self)
        await super().finalize()


async def _sum_up(path: atomicity_types.TemporaryPath) -> None:
    """Writes `SUMS` when all processes have written their files, before the checkpoint counts."""
    # Orbax finalizes the parts of a checkpoint, too.
    if path.get_final().name.isdecimal():
        await asyncio.to_thread(_write_sums, path.get())


def _write_sums(folder: epath.Path) -> None:
    paths = {str(path.relative_to(folder)): path for path in _files(folder) if path.name not in _UNSUMMED}
    with ThreadPoolExecutor(_THREADS) as pool:
        sums = dict(zip(paths, pool.map(_sum, paths.values()), strict=True))
    (folder / SUMS).write_text(json.dumps(sums))


def _files(folder: epath.Path) -> Iterator[epath.Path]:
    for path in folder.iterdir():
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


def _sum(path: epath.Path) -> list[int | str]:
    """Returns the size and the SHA-256 of a file."""
    size, digest = 0, hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return [size, digest.hexdigest()]


def _find_damage(folder: epath.Path, shared: bool) -> str:
    """Says what is wrong with the files of a checkpoint; "" for nothing. All processes must call this.

    Args:
      shared: whether it is the same folder for all, of which each reads a share.
    """
    try:
        sums = json.loads((folder / SUMS).read_bytes())
    except (OSError, ValueError):
        mine = f"{SUMS} is missing or cannot be read"
    else:
        share = slice(jax.process_index(), None, jax.process_count()) if shared else slice(None)
        with ThreadPoolExecutor(_THREADS) as pool:
            problems = pool.map(lambda name: _problem(folder / name, name, sums[name]), sorted(sums)[share])
            mine = next(filter(None, problems), "")
    parts = from_all_processes(mine.encode())
    return next((part.decode() for part in parts if part), "")


def _problem(path: epath.Path, name: str, wanted: list[int | str]) -> str:
    try:
        found = _sum(path)
    except (OSError, ValueError):
        return f"{name} is missing or cannot be read"
    if found[0] != wanted[0]:
        return f"{name} has {found[0]} bytes instead of {wanted[0]}"
    return "" if found == wanted else f"{name} has changed"


class _Manager(ocp.CheckpointManager):
    """Reads only metrics that are as they were saved: by them it decides which checkpoints to keep."""

    def metrics(self, step: int) -> Any:
        folder, name = self.directory / str(step), "metrics/metrics"
        # What is wrong with these sums, `restore` says.
        with contextlib.suppress(OSError, ValueError):
            wanted = json.loads((folder / SUMS).read_bytes()).get(name)
            if wanted and (damage := _problem(folder / name, name, wanted)):
                raise DamagedError(f"{folder}: this checkpoint is damaged ({damage})")
        return super().metrics(step)


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
                    self.delete(int(path.name))

    def delete(self, step: int) -> None:
        """Deletes a checkpoint in the bucket."""
        checkpoint = self._folder / str(step)
        # Without that object first, it does not count any more.
        (checkpoint / self.COMMITTED).unlink(missing_ok=True)
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(self._folder.store.delete, [entry.key for entry in checkpoint.entries()]))

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
