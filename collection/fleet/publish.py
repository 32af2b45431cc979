"""From journals to the data set of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

from collection.journals import Index, read_history, read_kept
from collection.llm.config import ActorConfig
from collection.rounds import Job, Reflected
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.shards import read_dataset, write_dataset


@dataclasses.dataclass(frozen=True)
class Played:
    """What a run of the fleet has left on disk.

    Attributes:
      folder: the data set.
      reflections: sorted by task and attempt.
      seconds: wall-clock, of this run and those it resumed as far as they could tell.
    """

    folder: Path
    reflections: list[Reflected]
    seconds: float

    def trajectories(self) -> Iterator[Trajectory]:
        """Sorted by id; read one shard at a time, since a large run does not fit into memory."""
        return read_dataset(self.folder, Trajectory)


def publish(jobs: Iterable[Job], workdir: Path, actor: ActorConfig, index: Index) -> list[Reflected]:
    """Writes the data set `workdir` and, where there are any, `reflections.jsonl`; returns these."""
    tasks = sorted({job.task.task_id for job in jobs})
    reflected = [
        one
        for task in tasks
        for _, one in sorted(read_history(workdir, index.reflections(task)).reflections.items())
    ]
    if reflected:
        lines = [one.reflection.model_dump_json() + "\n" for one in reflected]
        write_atomic(workdir / "reflections.jsonl", "".join(lines).encode())
    rounds = [kept for task in tasks for kept in index.rounds(task)]
    rounds.sort(key=lambda kept: kept.round.trajectory_id if kept.round else "")
    provenance = {
        "actor": actor.label,
        "kind": actor.kind,
        "tasks": len(tasks),
        "reflections": len(reflected),
    }
    records = (record for kept in rounds if isinstance(record := read_kept(workdir, kept), Trajectory))
    write_dataset(workdir, records, "trajectories", provenance)
    return reflected
