"""Tokens and patches of all samples of a data set: counted once, and stored with it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax

from rmsweb_jax.data.packing import TreeSize
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.storage import AnyPath, StorePath
from rmsweb_jax.training.mesh import any_process, from_all_processes, is_first

# Seconds between two lines of progress.
_REPORT_S = 10.0


@dataclasses.dataclass(frozen=True)
class SampleSize:
    """The sizes of a sample, from which the rows of batches are chosen.

    Attributes:
      length: tokens of prompt and target.
      num_targets: tokens of the target.
      patches: patches of each screenshot in the prompt.
      task_id: task that the sample belongs to.
      kind: that of the sample, "action" or "extraction".
    """

    sample_id: str
    length: int
    num_targets: int
    patches: tuple[int, ...]
    task_id: str = ""
    kind: str = "action"

    @property
    def prompt_length(self) -> int:
        return self.length - self.num_targets

    @property
    def tree(self) -> TreeSize:
        """The sample as a tree with one branch."""
        return TreeSize(self.prompt_length, (self.num_targets,), self.patches)


@dataclasses.dataclass(frozen=True)
class SizesFile:
    """Sizes of the samples of a data set as one tokenizer and image size make them, in a file of the folder.

    Args:
      folder: the data set.
      digest: hash of its records.
      fingerprint: hash of all else that the sizes depend on, see `Encoder`.
    """

    folder: AnyPath
    digest: str
    fingerprint: str

    @property
    def path(self) -> AnyPath:
        key = hashlib.sha256(f"{self.digest} {self.fingerprint}".encode()).hexdigest()
        return self.folder / f"sizes-{key[:16]}.json"

    def read(self, count: int) -> list[SampleSize] | None:
        """Returns the stored sizes by number of the sample; None if there are not `count` whole ones."""
        try:
            content = json.loads(self.path.read_bytes())
            # Training may write the file after the data set's manifest, which then has no checksum of it.
            if content["sha256"] != _rows_sha256(content["rows"]):
                return None
            sizes = _from_rows(content["rows"])
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return sizes if len(sizes) == count else None

    def write(self, sizes: Sequence[SampleSize]) -> None:
        rows = [dataclasses.astuple(size) for size in sizes]
        data = json.dumps({"sha256": _rows_sha256(rows), "rows": rows}).encode()
        if isinstance(path := self.path, StorePath):
            path.write_bytes(data)
        else:
            write_atomic(path, data)


def count_sizes(
    files: Sequence[SizesFile], count: int, measure: Callable[[int], SampleSize], threads: int = 1
) -> list[SampleSize]:
    """Returns the sizes of the samples 0 to `count` - 1, from the first of the files that exists.

    Without one they are measured, see `spread`. One process writes the first file that it can; of several
    processes one writes all files, since the first may be on a disk of its own.

    Raises:
      UserError: that of `measure`, in all processes alike.
    """
    stored = next((sizes for file in files if (sizes := file.read(count))), None)
    # Asked of all, since processes that see different files would wait for one another.
    if not any_process(stored is None) and stored is not None:
        return stored
    rows = spread(count, lambda number: dataclasses.astuple(measure(number)), threads)
    sizes = _from_rows(rows)
    if is_first():
        _write(files, sizes)
    return sizes


def spread(count: int, make: Callable[[int], Any], threads: int = 1) -> list[Any]:
    """Returns `make` of the numbers 0 to `count` - 1, as JSON keeps it; each process makes its share.

    With several processes all of them must call this.

    Args:
      make: may raise UserError or OSError.
      threads: numbers at a time in a process.

    Raises:
      UserError: that of `make`, in all processes alike.
    """
    mine = range(jax.process_index(), count, jax.process_count())
    made, printed = {}, time.monotonic()
    try:
        with ThreadPoolExecutor(threads) as pool:
            for number, value in zip(mine, pool.map(make, mine), strict=True):
                made[number] = value
                if time.monotonic() > printed + _REPORT_S:
                    logging.info("read %d of %d samples", len(made), len(mine))
                    printed = time.monotonic()
        share = {"made": list(made.items())}
    except (UserError, OSError) as error:
        share = {"error": str(error)}
    shares = [json.loads(part) for part in from_all_processes(json.dumps(share).encode())]
    if errors := [part["error"] for part in shares if "error" in part]:
        raise UserError(errors[0])
    every = {number: value for part in shares for number, value in part["made"]}
    return [every[number] for number in range(count)]


def _write(files: Sequence[SizesFile], sizes: Sequence[SampleSize]) -> None:
    for file in files:
        try:
            file.write(sizes)
        except (OSError, UserError) as error:
            # Data sets are often in a place that training may only read.
            logging.info("%s: sizes cannot be stored there (%s)", file.folder, error)
        else:
            if jax.process_count() == 1:
                return


def _rows_sha256(rows: Sequence[Sequence[Any]]) -> str:
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _from_rows(rows: Sequence[Sequence[Any]]) -> list[SampleSize]:
    return [
        SampleSize(name, length, targets, tuple(patches), task, kind)
        for name, length, targets, patches, task, kind in rows
    ]
