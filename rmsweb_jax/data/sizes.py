"""Tokens and patches of all samples of a data set: counted once in a run."""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax

from rmsweb_jax.data.packing import TreeSize
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.training.mesh import any_process, from_all_processes

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


def stored_sizes(
    path: Path, count: int, measure: Callable[[int], SampleSize], threads: int = 1
) -> list[SampleSize]:
    """Returns the sizes of the samples 0 to `count` - 1: those of a file, or measured ones, which it keeps.

    They are measured by `spread`. All processes must call this, with the same file or one for each.

    Raises:
      UserError: that of `measure`, in all processes alike.
    """
    rows = json.loads(path.read_bytes()) if path.exists() else None
    # Asked of all, since processes that see different files would wait for one another.
    if any_process(rows is None) or rows is None:
        rows = spread(count, lambda number: dataclasses.astuple(measure(number)), threads)
        write_atomic(path, json.dumps(rows).encode())
    return [
        SampleSize(name, length, targets, tuple(patches), task, kind)
        for name, length, targets, patches, task, kind in rows
    ]


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
