"""What the workers of a run have on disk: an index of their journals that stays small as they grow.

Whoever hands out work keeps the index alone; records are read where somebody needs them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from collection.rounds import History, Reflected, Round
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.journal import Journal, read_record, scan_journal
from rmsweb_jax.records.schema import Trajectory

FOLDER = "journal"


@dataclasses.dataclass(frozen=True)
class Kept:
    """A record on disk: where it lies, and what is remembered of it.

    Attributes:
      journal: the file's name.
      place: its first byte there.
      attempt: of the episode, or the one that is reflected on.
      cost: in US dollars.
      round: None for a reflection.
    """

    journal: str
    place: int
    task_id: str
    attempt: int
    cost: float
    round: Round | None

    @classmethod
    def of(cls, record: Trajectory | Reflected, journal: str, place: int) -> Kept:
        if isinstance(record, Reflected):
            reflection, cost = record.reflection, record.usage.cost
            return cls(journal, place, reflection.task_id, reflection.attempt, cost, None)
        played = Round.of(record)
        return cls(journal, place, played.task_id, played.attempt, played.cost, played)


class Index:
    """What is kept of each task. A record that was written twice counts once, the first.

    Raises:
      UserError: a damaged journal, or one of another version.
    """

    def __init__(self, workdir: Path):
        self._workdir = workdir
        self._rounds: dict[str, dict[int, Kept]] = {}
        self._reflections: dict[str, dict[int, Kept]] = {}
        for path in sorted((workdir / FOLDER).glob("*.jsonl")):
            self.scan(path.name)

    def scan(self, journal: str) -> list[Kept]:
        """Takes up what a journal holds; returns what was not known."""
        path, place, new = self._workdir / FOLDER / journal, 0, []
        for line in scan_journal(path):
            if line.record is not None:
                kept = Kept.of(_parse(path, line.record), journal, place)
                new += [kept] if self.add(kept) else []
            elif not line.last:
                read_record(path, place)  # Tells what to do about it.
            place += len(line.data)
        return new

    def add(self, kept: Kept) -> bool:
        """Takes up a record; False when it is known."""
        index = self._reflections if kept.round is None else self._rounds
        return index.setdefault(kept.task_id, {}).setdefault(kept.attempt, kept) is kept

    def successes(self, task_id: str) -> list[bool]:
        """How attempts 1, 2, ... ended, up to the first that is missing."""
        found = self._rounds.get(task_id, {})
        outcomes = []
        while (kept := found.get(len(outcomes) + 1)) is not None and kept.round is not None:
            outcomes.append(kept.round.success)
        return outcomes

    def rounds(self, task_id: str) -> list[Kept]:
        """A task's episodes, in order of attempt."""
        return [kept for _, kept in sorted(self._rounds.get(task_id, {}).items())]

    def reflections(self, task_id: str) -> list[Kept]:
        """A task's reflections, in order of attempt."""
        return [kept for _, kept in sorted(self._reflections.get(task_id, {}).items())]

    def of(self, task_id: str) -> tuple[Kept, ...]:
        return (*self.rounds(task_id), *self.reflections(task_id))

    @property
    def tasks(self) -> list[str]:
        return sorted(self._rounds.keys() | self._reflections.keys())


def read_kept(workdir: Path, kept: Kept) -> Trajectory | Reflected:
    """The record itself.

    Raises:
      UserError: it is not there any more.
    """
    path = workdir / FOLDER / kept.journal
    return _parse(path, read_record(path, kept.place))


def read_history(workdir: Path, records: Iterable[Kept]) -> History:
    """The records of one task."""
    history = History()
    for kept in records:
        record = read_kept(workdir, kept)
        if isinstance(record, Trajectory):
            history.trajectories[kept.attempt] = record
        else:
            history.reflections[kept.attempt] = record
    return history


def load_histories(workdir: Path) -> dict[str, History]:
    """All that the journals hold, by task.

    Raises:
      UserError: as `Index`.
    """
    index = Index(workdir)
    return {task_id: read_history(workdir, index.of(task_id)) for task_id in index.tasks}


def new_journal(workdir: Path) -> str:
    """A name of its own for each writer: no two ever share a journal, so none has to be repaired."""
    folder = workdir / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    number = max((int(path.stem) for path in folder.glob("*.jsonl")), default=0) + 1
    name = f"{number:06d}.jsonl"
    (folder / name).touch(exist_ok=False)
    return name


def keep(record: Trajectory | Reflected, journal: Journal, name: str) -> Kept:
    """Makes a record durable in the journal of that name."""
    return Kept.of(record, name, journal.append(record.model_dump_json().encode()))


def _parse(path: Path, line: bytes) -> Trajectory | Reflected:
    try:
        is_reflection = line.startswith(b'{"reflection":')
        return (Reflected if is_reflection else Trajectory).model_validate_json(line)
    except ValidationError as error:
        raise UserError(
            f"{path}: written by another version ({error.error_count()} errors); use another --workdir"
        ) from error
