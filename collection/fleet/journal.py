"""The journal of a run, which the parent process alone writes, and what is known of each task."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from pathlib import Path

from pydantic import ValidationError

from collection.fleet.rounds import Job, Reflected, Round, SetAside
from collection.judges.base import KEPT_OUT
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.episodes import EPISODES, REFLECTION, SET_ASIDE
from rmsweb_jax.records.journal import Journal, iter_journal, read_record
from rmsweb_jax.records.schema import Trajectory


class RunJournal:
    """All episodes and reflections of a run: on disk in one file, and their summaries in memory.

    A record is on disk before anything builds on it, so that a run that is killed never repeats a call that
    it has paid for, nor reflects on an episode that is lost. A later record of an attempt, with its verdict
    or as it was played again, takes the place of an earlier one.

    Attributes:
      rounds, reflections: by task and attempt.
      set_aside: reason by task.

    Raises:
      UserError: a damaged journal, or one of another version.
    """

    def __init__(self, workdir: Path):
        self.path = workdir / EPISODES
        if (workdir / "journal").is_dir():
            raise UserError(
                f"{workdir}: this run was begun by an earlier version, whose journals are in "
                f"{workdir / 'journal'}: continue it with that one, or use another --workdir"
            )
        self._file = Journal(self.path)
        self.rounds: defaultdict[str, dict[int, Round]] = defaultdict(dict)
        self.reflections: defaultdict[str, dict[int, Reflected]] = defaultdict(dict)
        self.set_aside: dict[str, str] = {}
        # How often each episode was ended by site, network or machine.
        self._kept_out = Counter[tuple[str, int]]()
        for place, record in iter_journal(self.path):
            self._add(self._parse(record), place)

    def close(self) -> None:
        self._file.close()

    def append(self, record: Reflected | SetAside) -> None:
        """Adds a record, which is on disk when this returns."""
        self._add(record, self._file.append(record.model_dump_json().encode()))

    def append_played(self, record: bytes, summary: Round) -> Round:
        """Adds an episode by its encoded record; returns its summary with its place in the journal."""
        added = dataclasses.replace(summary, place=self._file.append(record))
        self._add(added, added.place)
        return added

    def append_round(self, trajectory: Trajectory) -> Round:
        return self.append_played(trajectory.model_dump_json().encode(), Round.of(trajectory))

    def read(self, played: Round) -> Trajectory:
        """Reads an episode; several threads may.

        Raises:
          UserError: its record is damaged.
        """
        return Trajectory.model_validate_json(read_record(self.path, played.place))

    def successes(self, task_id: str) -> list[bool]:
        """Success of attempts 1, 2, ... up to the first that is missing."""
        found, outcomes = self.rounds[task_id], []
        while (played := found.get(len(outcomes) + 1)) is not None:
            outcomes.append(played.success)
        return outcomes

    def reopen(self, job: Job) -> None:
        """Forgets the rounds of a job that site, network or machine ended: they are played again."""
        rounds = self.rounds[job.task.task_id]
        for attempt, played in list(rounds.items()):
            times = self._kept_out[played.task_id, attempt]
            if played.fate in KEPT_OUT and times <= job.replays:
                del rounds[attempt]

    def _add(self, record: Trajectory | Round | Reflected | SetAside, place: int) -> None:
        if isinstance(record, SetAside):
            self.set_aside[record.set_aside] = record.reason
            return
        if isinstance(record, Reflected):
            one = record.reflection
            self.reflections[one.task_id][one.attempt] = record
            return
        played = Round.of(record, place) if isinstance(record, Trajectory) else record
        self.rounds[played.task_id][played.attempt] = played
        if played.fate in KEPT_OUT:
            self._kept_out[played.task_id, played.attempt] += 1

    def _parse(self, line: bytes) -> Trajectory | Reflected | SetAside:
        kinds = {REFLECTION: Reflected, SET_ASIDE: SetAside}
        kind = next((kind for start, kind in kinds.items() if line.startswith(start)), Trajectory)
        try:
            return kind.model_validate_json(line)
        except ValidationError as error:
            raise UserError(
                f"{self.path}: written by another version ({error.error_count()} errors); "
                "use another --workdir"
            ) from error
