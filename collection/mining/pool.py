"""Pools of runs on disk, a task at a time.

The runs of a task may lie anywhere in several data sets. One pass over all records finds out where;
then a task's runs are read when its turn comes, so memory holds an index and a few tasks.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from collection.mining.branch import Branch, branch
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.lean import Head, decode_head, decode_run
from rmsweb_jax.records.manifest import AGAIN, Shard, load_manifest
from rmsweb_jax.records.shard_files import iter_shard, read_entries


@dataclasses.dataclass(frozen=True)
class Source:
    """A shard of a data set, and the schema version of its records."""

    folder: Path
    shard: Shard
    version: int


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a run lies: number of its source and of the record in it."""

    source: int
    record: int


@dataclasses.dataclass(frozen=True)
class Pool:
    """Where the runs of each task lie.

    Attributes:
      sources: all shards of all data sets.
      tasks: task id -> places of its runs by trajectory id; both in sorted order.
    """

    sources: tuple[Source, ...]
    tasks: dict[str, tuple[Place, ...]]

    @property
    def runs(self) -> int:
        return sum(map(len, self.tasks.values()))


Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


def find_sources(folders: Iterable[Path]) -> tuple[Source, ...]:
    """The shards of data sets.

    Raises:
      UserError: a folder holds no finished data set of trajectories.
    """
    return tuple(source for folder in folders for source in _sources(folder))


def open_pool(sources: Sequence[Source], map_: Map = map) -> Pool:
    """Finds and checks all runs; one that lies in several data sets counts once.

    Args:
      map_: reads the shards, in their order: `map`, or that of several processes.

    Raises:
      UserError: a file has changed, or a record does not fit its schema version.
    """
    tasks: dict[str, dict[str, Place]] = defaultdict(dict)
    for number, heads in enumerate(map_(_heads, sources)):
        for record, (task_id, trajectory_id) in enumerate(heads):
            tasks[task_id].setdefault(trajectory_id, Place(number, record))
    return Pool(
        tuple(sources),
        {task_id: tuple(found[name] for name in sorted(found)) for task_id, found in sorted(tasks.items())},
    )


def read_runs(sources: Sequence[Source], places: Sequence[Place]) -> Iterator[Branch]:
    """The runs at some places, in that order.

    Raises:
      UserError: a record does not fit its schema version.
    """
    by_source: dict[int, list[int]] = defaultdict(list)
    for place in places:
        by_source[place.source].append(place.record)
    entries = {
        Place(number, record): entry
        for number, records in by_source.items()
        for record, entry in zip(
            records, read_entries(sources[number].folder, sources[number].shard, records), strict=True
        )
    }
    for place in places:
        source = sources[place.source]
        try:
            yield branch(decode_run(source.version, entries.pop(place)))
        except ValueError as error:
            raise _unfit(source, place.record) from error


def check_messages(sources: Sequence[Source], places: Sequence[Place]) -> None:
    """What reading some runs leaves out: whether their prompts are prompts.

    Raises:
      UserError: a record does not fit its schema version.
    """
    for place, found in zip(places, read_runs(sources, places), strict=True):
        try:
            _ = [step.step.messages for step in found.steps]
        except ValueError as error:
            raise _unfit(sources[place.source], place.record) from error


def _sources(folder: Path) -> Iterator[Source]:
    manifest = load_manifest(folder)
    if manifest.kind != "trajectories":
        raise UserError(f"{folder}: holds {manifest.kind}, not trajectories: give another folder")
    if not manifest.records:
        raise UserError(f"{folder}: the data set is empty: {AGAIN}")
    for shard in manifest.shards:
        yield Source(folder, shard, manifest.schema_version)


def _heads(source: Source) -> list[tuple[str, str]]:
    heads = []
    for number, entry in enumerate(iter_shard(source.folder, source.shard)):
        try:
            head: Head = decode_head(source.version, entry)
        except ValueError as error:
            raise _unfit(source, number) from error
        heads.append((head.task.task_id, head.trajectory_id))
    return heads


def _unfit(source: Source, record: int) -> UserError:
    where = source.folder / source.shard.file
    return UserError(f"{where}: record {record} does not fit schema version {source.version}: {AGAIN}")
