"""Processes that write records are killed again and again; nothing is lost, doubled or corrupted.

Each run is a process of its own that ends itself with SIGKILL at a drawn disk operation; the same run is
started again until it finishes, and then its data sets are compared, byte by byte, with those of a run that
was not killed.

    python -m tests.records.kills   # 100 kills; prints figures as JSON, half a minute of one core

SIGKILL does not lose the write cache of the system, so these kills do not cover power cuts:
`test_power_cuts.py` cuts at every operation and keeps only data synced to disk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import os
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.episodes import EPISODES, find_episodes, write_episodes
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.journal import Journal
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.tools import check_dataset
from tests.records.crash import PHASES, Disk, Part, Point
from tests.records.sets import png, samples, stable, trajectories

SHARD_RECORDS = 5
SETS = ("collect", "corpus")
_PARTS: tuple[Part, ...] = ("before", "middle", "after")

# Processes are forked from one that has imported everything, but has read no shard: that starts threads.
_FORK = multiprocessing.get_context("fork")


def work(root: Path, tasks: int) -> None:
    """Collects what is missing, and makes both data sets; the same call again goes on."""
    collect, corpus = root / "collect", root / "corpus"
    _collect(collect, tasks)
    write_episodes(collect / EPISODES, collect, {"tasks": tasks})
    made = samples(list(read_dataset(collect, Trajectory)))
    write_dataset(corpus, made, "sft_samples", {"trajectories": "collect"}, SHARD_RECORDS, images=collect)


def _collect(folder: Path, tasks: int) -> None:
    """As a fleet does: the screenshot first, then the record that names it."""
    images, path = ImageStore(folder), folder / EPISODES
    with Journal(path) as journal:
        done = find_episodes(path)[0]
        for number, record in enumerate(trajectories(tasks)):
            if record.trajectory_id not in done:
                images.put(png(number // 2))
                journal.append(record.model_dump_json().encode())


@dataclasses.dataclass(frozen=True)
class Found:
    """The files of a run after its end.

    Attributes:
      records: each record of each data set, in order, by set.
      images: bytes by set and name.
      files: of the data sets, journals left out.
      problems: what cannot be read.
    """

    records: dict[str, list[bytes]]
    images: dict[str, dict[str, bytes]]
    files: list[str]
    problems: list[str]


Tell = Callable[[Any], None]


def look(tell: Tell, root: Path) -> None:
    """Reads all data after the kills and reports `Found`."""
    records, images, problems = {}, {}, []
    for name in SETS:
        folder = root / name
        problems += check_dataset(folder).problems
        records[name], images[name] = [], {}
        for record in read_dataset(folder):
            records[name].append(record.model_dump_json().encode())
            images[name] |= {one: ImageStore(folder).get(one) for one in record_images(record)}
    files = [stable(str(path.relative_to(root))) for path in sorted(root.rglob("*")) if path.is_file()]
    tell(Found(records, images, [path for path in files if EPISODES not in path], problems))


def watched_work(tell: Tell, root: Path, tasks: int, point: Point | None) -> None:
    """Reports all operations, unless the process dies at `point` first."""
    root.mkdir(exist_ok=True)
    disk = Disk(root, point, die)
    with disk.watched():
        work(root, tasks)
    tell(disk.operations)


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def in_child(function: Callable[..., None], *arguments: Any) -> tuple[Any, int]:
    """Calls a function in a forked process; returns its report and the exit code (-9: killed)."""
    ours, theirs = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_call, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    value = None
    with contextlib.suppress(EOFError):
        value = ours.recv()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), f"a run ended with {process.exitcode}"
    return value, process.exitcode


def _call(link: Connection, function: Callable[..., None], arguments: tuple) -> None:
    function(link.send, *arguments)


@dataclasses.dataclass
class Result:
    """Counts over all runs: kills by (phase, part of the operation), runs that came to their end, faults."""

    kills: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)
    runs: int = 0
    records: int = 0
    lost: int = 0
    doubled: int = 0
    unreadable: int = 0
    different: int = 0
    notes: list[str] = dataclasses.field(default_factory=list)

    def compare(self, wanted: Found, found: Found) -> None:
        self.runs += 1
        self.unreadable += len(found.problems)
        for name in SETS:
            before, after = Counter(wanted.records[name]), Counter(found.records[name])
            self.records += sum(before.values())
            self.lost += (before - after).total()
            self.doubled += (after - before).total()
        if found != wanted:
            self.different += 1
            self.notes += [f"run {self.runs} differs", *found.problems]


def kill_often(kills: int, tasks: int, seed: int, folder: Path) -> tuple[Result, Counter[str]]:
    """Runs until `kills` have happened and the last run has finished.

    Returns:
      What was found, and the number of operations by phase of a run that is not killed.
    """
    rng, result = random.Random(seed), Result()
    operations, _ = in_child(watched_work, folder / "whole", tasks, None)
    wanted, _ = in_child(look, folder / "whole")
    counts = Counter(one.phase for one in operations)
    parted = Counter(one.phase for one in operations if one.parted)
    assert not wanted.problems and len(wanted.records["corpus"]) == tasks
    left = kills
    while left or result.runs == 0:
        root = folder / f"run-{result.runs}"
        code = -signal.SIGKILL
        while code:
            phase, part = rng.choice(PHASES), rng.choice(_PARTS)
            number = rng.randrange(parted[phase] if part == "middle" else counts[phase])
            point = Point(number, part, phase, rng.random())
            _, code = in_child(watched_work, root, tasks, point if left else None)
            if code:
                left -= 1
                result.kills[phase, part] += 1
        result.compare(wanted, in_child(look, root)[0])
    return result, counts


def measure(kills: int = 100, tasks: int = 24, seed: int = 0) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        result, operations = kill_often(kills, tasks, seed, Path(folder))
    print(*result.notes, sep="\n")
    rows = [
        {"phase": phase, "operations": operations[phase]}
        | {part: result.kills[phase, part] for part in _PARTS}
        for phase in PHASES
    ]
    return {
        "tasks": tasks,
        "shard_records": SHARD_RECORDS,
        "phases": rows,
        "kills": result.kills.total(),
        "finished_runs": result.runs,
        "records_compared": result.records,
        "lost": result.lost,
        "doubled": result.doubled,
        "unreadable": result.unreadable,
        "different_runs": result.different,
    }


if __name__ == "__main__":
    figures = measure()
    print(json.dumps(figures, indent=1))
    if any(figures[name] for name in ("lost", "doubled", "unreadable", "different_runs")):
        raise SystemExit("error: killed runs differ from one that was not killed")
