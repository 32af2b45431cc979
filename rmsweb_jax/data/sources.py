"""Data set folders through Grain: random access, held-out split, global order, prefetching workers."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import signal
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import grain.python as grain
import numpy as np
from absl import flags

from rmsweb_jax.errors import UserError
from rmsweb_jax.processes import exit_with_parent
from rmsweb_jax.records.dataset import check_shard, load_manifest
from rmsweb_jax.records.schema import KINDS, Record

R = TypeVar("R", bound=Record)
T = TypeVar("T")


class RecordSource(Generic[R]):
    """The records of a data set by number, in the order of its manifest; threads may share it.

    Attributes:
      digest: hash of the shards' checksums, and so of the records.

    Raises:
      UserError: the folder is not a data set of this kind, or a shard is missing or damaged. Some damage is
        found only when a record is read.
    """

    def __init__(self, folder: Path, type_: type[R]):
        self.folder = folder
        manifest = load_manifest(folder)
        self._record_type = KINDS[manifest.kind]
        if KINDS.get(manifest.kind) is not type_:
            raise UserError(
                f"{folder}: holds {manifest.kind}, not {type_.__name__} records: give another folder"
            )
        # Checked now, since random access would notice a changed file only where records no longer parse.
        for shard in manifest.shards:
            check_shard(folder, shard)
        paths = [str(folder / shard.file) for shard in manifest.shards]
        if not paths:
            raise UserError(f"{folder}: the data set is empty: collect more")
        self.digest = hashlib.sha256("".join(shard.sha256 for shard in manifest.shards).encode()).hexdigest()
        try:
            self._records: Any = grain.ArrayRecordDataSource(paths)
        except RuntimeError as error:
            raise self._damaged(error) from error
        if len(self._records) != manifest.records:
            raise self._damaged(ValueError(f"{len(self._records)} records instead of {manifest.records}"))

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> R:
        try:
            record = self._record_type.model_validate_json(self._records[index])
        except (RuntimeError, ValueError) as error:
            raise self._damaged(error, f"record {index}") from error
        return cast(R, record)

    def _damaged(self, error: Exception, where: str = "a shard") -> UserError:
        reason = " ".join(str(error).split())[:120]
        return UserError(f"{self.folder}: {where} cannot be read ({reason}): make this data set again")


def stable_hash(*parts: object) -> int:
    """Hashes strings and numbers to 31 bits, with the same result on every machine."""
    return int.from_bytes(hashlib.sha256(json.dumps(parts).encode()).digest()[:4], "big") >> 1


def is_held_out(name: str, share: float, seed: int | None = None) -> bool:
    """Returns True if a record is held out for evaluation, by a hash of its name.

    The split of a record never changes when others are added.

    Args:
      name: id of the task or prompt; records of one name are in the same split.
      share: expected share of names that are held out.
      seed: selects one of many splits.
    """
    parts = ("held_out", name) if seed is None else ("held_out", name, seed)
    return stable_hash(*parts) < share * 2**31


def sample_order(num_samples: int, batch_size: int, seed: int) -> grain.MapDataset:
    """Makes the endless sequence of batches, [batch_size] sample numbers each, indexed by step.

    Every epoch is shuffled by `seed` and the epoch's number. A batch may hold the end of one epoch and the
    start of the next, so that all samples are seen equally often.
    """
    numbers = grain.MapDataset.range(num_samples).seed(seed).shuffle().repeat()
    return numbers.batch(batch_size, batch_fn=np.asarray)


@dataclasses.dataclass(frozen=True)
class Workers:
    """Workers that make batches while the accelerators compute.

    Attributes:
      processes: number of worker processes; with 0 threads of this process make the batches.
      threads: number of threads of each process.
      ahead: steps that each process prefetches.
    """

    processes: int = 0
    threads: int = 1
    ahead: int = 2

    def __post_init__(self) -> None:
        if self.processes < 0 or self.threads < 1 or self.ahead < 1:
            raise UserError(
                f"config.workers is {dataclasses.asdict(self)}: give 0 or more processes, and 1 or more "
                "threads and steps ahead"
            )


def stream(make: Callable[[int], T], first: int, stop: int, workers: Workers) -> Generator[T]:
    """Yields `make(step)` for the steps [first, stop) in order, prefetched by workers.

    Args:
      make: a function of the step only; it must be picklable if `workers` has processes.

    Raises:
      UserError: those of `make`, also from a worker process.
    """
    ahead = max(workers.ahead, workers.threads)
    read = grain.ReadOptions(num_threads=workers.threads, prefetch_buffer_size=ahead)
    dataset = grain.MapDataset.range(first, stop).map(_Guarded(make)).to_iter_dataset(read)
    if workers.processes:
        if not flags.FLAGS.is_parsed():
            # Grain reads absl flags of its own, which are parsed only in programs that absl started.
            flags.FLAGS.mark_as_parsed()
        dataset = dataset.mp_prefetch(
            grain.MultiprocessingOptions(workers.processes, per_worker_buffer_size=1), _begin_worker
        )
    iterator = iter(dataset)
    try:
        for made in iterator:
            if isinstance(made, UserError):
                raise made
            yield made
    finally:
        iterator.close()


def _begin_worker(number: int, count: int) -> None:
    # Without this, Grain's workers outlive a killed trainer. Only the trainer handles an interrupt.
    exit_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclasses.dataclass(frozen=True)
class _Guarded(Generic[T]):
    """Returns a UserError as a value, since a worker process would wrap an exception in another one."""

    make: Callable[[int], T]

    def __call__(self, step: int) -> T | UserError:
        try:
            return self.make(step)
        except UserError as error:
            return error
