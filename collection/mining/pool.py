"""Reads pools of runs from disk, one task at a time.

The runs of a task are spread over several data sets. One pass over all records makes an index of tasks; the
runs of a task are read when it is mined, so memory holds the index and a few tasks.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from collection.corpus.guidance import TaskGuidance, guidance_for
from collection.corpus.lean import Head, decode_head, decode_run
from collection.mining.runs import ParsedRun, parse_run
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import SCHEMA_VERSION
from rmsweb_jax.records.shards import AGAIN, Shard, iter_shard, read_manifest, read_rows, shards_folder
from rmsweb_jax.storage import AnyPath


@dataclasses.dataclass(frozen=True)
class ShardSource:
    """A shard of a data set, in a folder on this disk."""

    folder: Path
    shard: Shard

    @property
    def path(self) -> Path:
        return self.folder / self.shard.data


@dataclasses.dataclass(frozen=True)
class RunLocation:
    """Location of a run on disk: the numbers of its source and of its record there."""

    source: int
    record: int


@dataclasses.dataclass(frozen=True)
class RunPool:
    """An index of the runs of each task.

    Attributes:
      sources: all shards of all data sets.
      tasks: task id -> locations of its runs, sorted by task id and by trajectory id.
    """

    sources: tuple[ShardSource, ...]
    tasks: dict[str, tuple[RunLocation, ...]]

    @property
    def runs(self) -> int:
        """The number of runs."""
        return sum(map(len, self.tasks.values()))


Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


def find_sources(folders: Iterable[AnyPath]) -> tuple[ShardSource, ...]:
    """Finds all shards of some data sets.

    Raises:
      UserError: a folder has no finished data set of trajectories.
    """
    return tuple(source for folder in folders for source in _sources(folder))


def open_pool(sources: Sequence[ShardSource], map_: Map = map) -> RunPool:
    """Finds and checks all runs; a run that is in several data sets counts once.

    Args:
      map_: `map`, or one that maps in several processes; its results are in order.

    Raises:
      UserError: a file has changed, or a record does not fit its schema version.
    """
    tasks: dict[str, dict[str, RunLocation]] = defaultdict(dict)
    for number, heads in enumerate(map_(_heads, sources)):
        for record, (task_id, trajectory_id) in enumerate(heads):
            tasks[task_id].setdefault(trajectory_id, RunLocation(number, record))
    return RunPool(
        tuple(sources),
        {task_id: tuple(found[name] for name in sorted(found)) for task_id, found in sorted(tasks.items())},
    )


def read_runs(
    sources: Sequence[ShardSource],
    locations: Sequence[RunLocation],
    guidance: TaskGuidance = (),
) -> Iterator[ParsedRun]:
    """Yields the runs at some locations, in the given order.

    Args:
      guidance: of the task.

    Raises:
      UserError: a record does not fit its schema version.
    """
    by_source: dict[int, list[int]] = defaultdict(list)
    for location in locations:
        by_source[location.source].append(location.record)
    entries = {
        RunLocation(number, record): entry
        for number, records in by_source.items()
        for record, entry in zip(records, read_rows(sources[number].path, records), strict=True)
    }
    for location in locations:
        source = sources[location.source]
        try:
            run = decode_run(entries.pop(location))
            yield parse_run(run, guidance_for(guidance, run.attempt))
        except ValueError as error:
            raise _unfit(source, location.record) from error


def check_messages(sources: Sequence[ShardSource], locations: Sequence[RunLocation]) -> None:
    """Parses the prompts of some runs, which `read_runs` leaves unparsed.

    Raises:
      UserError: a record does not fit its schema version.
    """
    for location, found in zip(locations, read_runs(sources, locations), strict=True):
        try:
            _ = [step.step.messages for step in found.steps]
        except ValueError as error:
            raise _unfit(sources[location.source], location.record) from error


def _sources(folder: AnyPath) -> Iterator[ShardSource]:
    manifest = read_manifest(folder)
    if manifest.kind != "trajectories":
        raise UserError(f"{folder}: contains {manifest.kind}, not trajectories: give another folder")
    place = shards_folder(folder, manifest)
    for shard in manifest.shards:
        yield ShardSource(place, shard)


def _heads(source: ShardSource) -> list[tuple[str, str]]:
    heads = []
    for number, entry in enumerate(iter_shard(source.folder, source.shard)):
        try:
            head: Head = decode_head(entry)
        except ValueError as error:
            raise _unfit(source, number) from error
        heads.append((head.task.task_id, head.trajectory_id))
    return heads


def _unfit(source: ShardSource, record: int) -> UserError:
    return UserError(f"{source.path}: record {record} does not fit schema version {SCHEMA_VERSION}: {AGAIN}")
