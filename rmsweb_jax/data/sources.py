"""Data set folders through Grain: random access, shuffled steps, positions that checkpoints keep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import grain.python as grain
import numpy as np
from pydantic import ValidationError

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Record
from rmsweb_jax.records.shards import KINDS, load_manifest

R = TypeVar("R", bound=Record)

# Steps are made ahead by one thread: a fast tokenizer is not safe to share.
_READ = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)


class RecordSource(Generic[R]):
    """A data set's records by number, in the order of its manifest; may be read from threads.

    Raises:
      UserError: the folder is no data set of this kind, or a shard is missing or damaged (here, or when a
        record is read).
    """

    def __init__(self, folder: Path, type_: type[R]):
        self.folder, self._type = folder, type_
        manifest = load_manifest(folder)
        if KINDS.get(manifest.kind) is not type_:
            raise UserError(
                f"{folder}: holds {manifest.kind}, not {type_.__name__} records: give another folder"
            )
        paths = [str(folder / shard.file) for shard in manifest.shards]
        if not paths:
            raise UserError(f"{folder}: the data set is empty: collect more")
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
            return self._type.model_validate_json(self._records[index])
        except (RuntimeError, ValidationError) as error:
            raise self._damaged(error, f"record {index}") from error

    def _damaged(self, error: Exception, where: str = "a shard") -> UserError:
        reason = " ".join(str(error).split())[:120]
        return UserError(f"{self.folder}: {where} cannot be read ({reason}): make this data set again")


def shuffled_steps(
    num_samples: int, batch_size: int, seed: int, make: Callable[[np.ndarray], Any]
) -> grain.DatasetIterator:
    """An endless iterator of `make(numbers)` over batches of sample numbers.

    Every epoch is shuffled anew (from `seed` and the epoch), and a batch may hold the end of one epoch and
    the start of the next, so that each sample is seen equally often. The order depends on the arguments
    alone: in a multi-host run every process gets the same numbers and makes its own share of the batch.
    The iterator's state can be saved and restored.
    """
    numbers = grain.MapDataset.range(num_samples).seed(seed).shuffle().repeat()
    batches = numbers.batch(batch_size, batch_fn=np.asarray)
    return iter(batches.map(make).to_iter_dataset(_READ))
