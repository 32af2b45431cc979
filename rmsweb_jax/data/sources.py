"""Data set folders through Grain: random access, held-out split, global order, steps made ahead."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar, cast

import grain.python as grain
import numpy as np
from jaxtyping import Int

from rmsweb_jax.data.chats import CHAT_FILES, write_chats
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.bucket import freeze
from rmsweb_jax.records.dataset import records_digest
from rmsweb_jax.records.schema import KINDS, Record
from rmsweb_jax.records.shards import read_manifest, shards_folder
from rmsweb_jax.storage import AnyPath, StorePath, parse_path
from rmsweb_jax.training.mesh import from_all_processes, is_first

R = TypeVar("R", bound=Record, covariant=True)
T = TypeVar("T")


class RecordSource(Generic[R]):
    """The records of a data set by number, in the order of its manifest; threads may share it.

    Attributes:
      digest: see `records_digest`.

    Raises:
      UserError: the folder is not a data set of this kind, or a shard is missing or damaged. Some damage is
        found only when a record is read.
    """

    def __init__(self, folder: AnyPath, type_: type[R]):
        self.folder = folder
        manifest = read_manifest(folder)
        self._record_type = KINDS[manifest.kind]
        if KINDS.get(manifest.kind) is not type_:
            raise UserError(
                f"{folder}: holds {manifest.kind}, not {type_.__name__} records: give another folder"
            )
        place = shards_folder(folder, manifest)
        paths = [str(place / shard.data) for shard in manifest.shards]
        self.digest = records_digest(manifest)
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


def training_data(text: str, flag: str, workdir: AnyPath) -> AnyPath:
    """Parses the data set of a training run; one in a bucket stays as it was when the run began.

    A file of conversations becomes a data set in the workdir, see `rmsweb_jax.data.chats`. With several
    processes all of them must call this; they get what the first has frozen or written.

    Raises:
      UserError: the folder is no address, there is no data set in the bucket, or the file cannot be used.
    """
    folder = parse_path(text, flag)
    if isinstance(folder, StorePath):
        keep = functools.partial(freeze, folder, workdir)
    elif folder.suffix in CHAT_FILES:
        keep = functools.partial(write_chats, folder, workdir)
    else:
        return folder
    try:
        mine = {"folder": str(keep()) if is_first() else ""}
    except UserError as error:
        mine = {"error": str(error)}
    first = json.loads(from_all_processes(json.dumps(mine).encode())[0])
    if "error" in first:
        raise UserError(first["error"])
    return parse_path(first["folder"], flag)


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


@dataclasses.dataclass(frozen=True, eq=False)
class BatchOrder:
    """The endless sequence of batches of samples, by the number of the step.

    Batches are alike in length, so that all of them fill rows of one shape: samples sorted by length are cut
    into as many strata as a batch has samples, and a batch takes one sample of each. In every epoch each
    stratum is shuffled by `seed` and the epoch's number, so that a sample is equally likely in any batch, and
    all are seen equally often. A batch may hold the end of one epoch and the start of the next.

    Attributes:
      lengths: of all samples.
    """

    lengths: Int[np.ndarray, " samples"]
    batch_size: int
    seed: int

    def __getitem__(self, step: int) -> Int[np.ndarray, " batch"]:
        """Numbers of the samples of a step."""
        first = step * self.batch_size
        places = (divmod(number, len(self.lengths)) for number in range(first, first + self.batch_size))
        return np.asarray([self._epoch(epoch)[place] for epoch, place in places])

    @functools.lru_cache(maxsize=2)  # noqa: B019 - one object a run
    def _epoch(self, epoch: int) -> Int[np.ndarray, " samples"]:
        """Samples in the order of an epoch: the first of each stratum, then the second of each, and so on."""
        strata = np.array_split(np.argsort(self.lengths, kind="stable"), self.batch_size)
        # The order of the strata is the same in all epochs, so that a batch over the end of an epoch has few
        # of them twice.
        places = np.random.default_rng(self.seed).permutation(self.batch_size)
        rng = np.random.default_rng((self.seed, epoch))
        turn, place = np.empty(len(self.lengths), int), np.empty(len(self.lengths), int)
        for number, stratum in zip(places, strata, strict=True):
            turn[stratum], place[stratum] = rng.permutation(len(stratum)), number
        return np.lexsort((place, turn))


def stream(make: Callable[[int], T], first: int, stop: int, threads: int) -> Generator[T]:
    """Yields `make(step)` for the steps [first, stop) in order; threads make the next ones.

    Args:
      make: a function of the step only. Its errors are raised here.
    """
    # Threads spend most of their time outside Python, and processes would have to transfer every array.
    read = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=max(2, threads))
    iterator = iter(grain.MapDataset.range(first, stop).map(make).to_iter_dataset(read))
    try:
        yield from iterator
    finally:
        iterator.close()
