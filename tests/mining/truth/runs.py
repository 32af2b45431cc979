"""The frozen runs and their truth."""

from __future__ import annotations

import dataclasses
import gzip
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from rmsweb_jax.records.schema import Trajectory

Part = Literal["work", "report", "apps"]


@dataclasses.dataclass(frozen=True)
class Truth:
    """What replay says about a failed run.

    Attributes:
      handovers: by step, from the last one back to the first that ends in a success: how the run ends if a
        competent actor goes on from that step.
      step: the last critical step, 1-based: from it a competent actor succeeds, after it not any more. None
        if it never succeeds, or still does after the last step.
      right: acts (`collection.mining.runs.acts_of`) of successful runs that lead to success at this step.
    """

    run_id: str
    task_id: str
    page: str
    actor: str
    handovers: dict[int, str]
    step: int | None
    right: tuple[tuple[str, ...], ...]


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A part of the set: the runs of its tasks, successes too, and the truth about the failed ones."""

    runs: tuple[Trajectory, ...]
    truths: tuple[Truth, ...]


def part_of(page: str) -> Part:
    """The part that a page belongs to, whatever else is in the set."""
    return "report" if zlib.crc32(page.encode()) % 2 else "work"


def path_of(part: Part) -> Path:
    return Path(__file__).with_name(f"{part}.jsonl.gz")


def read(part: Part) -> Frozen:
    runs, truths = [], []
    with gzip.open(path_of(part), "rt", encoding="utf-8") as lines:
        for line in lines:
            kind, body = line.split(" ", 1)
            if kind == "run":
                runs.append(Trajectory.model_validate_json(body))
            else:
                fields = json.loads(body)
                fields["handovers"] = {int(step): end for step, end in fields["handovers"].items()}
                fields["right"] = tuple(map(tuple, fields["right"]))
                truths.append(Truth(**fields))
    return Frozen(tuple(runs), tuple(truths))


def write(part: Part, runs: Iterable[Trajectory], truths: Iterable[Truth]) -> None:
    """Writes a part; the same runs and truths give the same bytes."""
    lines = [f"run {run.model_dump_json()}\n" for run in runs]
    lines += [f"truth {json.dumps(dataclasses.asdict(truth))}\n" for truth in truths]
    path_of(part).write_bytes(gzip.compress("".join(lines).encode(), 9, mtime=0))
