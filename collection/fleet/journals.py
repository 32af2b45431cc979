"""Journals of a run: the workers' records on disk, and a small index of them.

The parent process has the index in memory and reads a full record only when it needs one.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from collection.fleet.rounds import Reflected, Round, TaskHistory
from collection.judges.fates import KEPT_OUT
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.journal import Journal, read_record, scan_journal
from rmsweb_jax.records.schema import Trajectory

FOLDER = "journal"


@dataclasses.dataclass(frozen=True)
class JournalEntry:
    """Location and cached summary of a journaled record.

    Attributes:
      journal: the file's name.
      offset: position of its first byte in the journal.
      attempt: of the episode, or of the episode that is reflected on.
      tokens: of prompts and responses.
      cost: in US dollars.
      round: None for a reflection.
    """

    journal: str
    offset: int
    task_id: str
    attempt: int
    tokens: int
    cost: float
    round: Round | None

    @classmethod
    def of(cls, record: Trajectory | Reflected, journal: str, offset: int) -> JournalEntry:
        if isinstance(record, Reflected):
            one, usage = record.reflection, record.usage
            return cls(journal, offset, one.task_id, one.attempt, usage.tokens, usage.cost, None)
        played = Round.of(record)
        return cls(journal, offset, played.task_id, played.attempt, played.tokens, played.cost, played)


class JournalIndex:
    """The entries of each task, one for each attempt.

    An episode may have several records: as it was played, with its verdict, and of the times that it was
    played again because site, network or machine had ended it. The one that says most counts (`_rank`).

    Args:
      judged: episodes wait for verdicts.

    Attributes:
      entries: all entries but those that wait for a verdict, in the order in which they were added; another
        thread may read it.

    Raises:
      UserError: a damaged journal, or one of another version.
    """

    def __init__(self, workdir: Path, judged: bool = False):
        self._workdir, self._judged = workdir, judged
        self.entries: list[JournalEntry] = []
        self._rounds: dict[str, dict[int, JournalEntry]] = {}
        self._reflections: dict[str, dict[int, JournalEntry]] = {}
        # Records of each episode that site, network or machine ended.
        self._kept_out: defaultdict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
        for path in sorted((workdir / FOLDER).glob("*.jsonl")):
            self.scan(path.name)

    def scan(self, journal: str) -> list[JournalEntry]:
        """Adds the records of a journal; returns the entries that are new."""
        path, offset, new = self._workdir / FOLDER / journal, 0, []
        for line in scan_journal(path):
            if line.record is not None:
                entry = JournalEntry.of(parse_record(path, line.record), journal, offset)
                new += [entry] if self.add(entry) else []
            elif not line.last:
                # A kill can truncate only the last line. Any other bad line is damage, and reading it raises.
                read_record(path, offset)
            offset += len(line.data)
        return new

    def add(self, entry: JournalEntry) -> bool:
        """Adds an entry; returns False if what is known of that attempt says as much."""
        attempts = (self._reflections if entry.round is None else self._rounds).setdefault(entry.task_id, {})
        if entry.round is not None and entry.round.fate in KEPT_OUT:
            self._kept_out[entry.task_id, entry.attempt].add((entry.journal, entry.offset))
        if (known := attempts.get(entry.attempt)) is not None and not _says_more(entry, known):
            return False
        attempts[entry.attempt] = entry
        if known is not None and not self.awaits_verdict(known) and known in self.entries:
            self.entries.remove(known)
        if not self.awaits_verdict(entry):
            self.entries.append(entry)
        return True

    def awaits_verdict(self, entry: JournalEntry) -> bool:
        return self._judged and entry.round is not None and entry.round.awaits_verdict

    def reopen(self, task_id: str, replays: int) -> int:
        """Forgets the rounds of a task that are to be played again; before anything is published.

        They are those that site, network or machine ended, played again less than `replays` times. Rounds
        that are to be judged again stay, and wait for their verdicts.

        Returns:
          The number of both.
        """
        number, rounds = 0, self._rounds.get(task_id, {})
        for attempt, entry in list(rounds.items()):
            assert entry.round is not None
            again = entry.round.fate in KEPT_OUT and len(self._kept_out[task_id, attempt]) <= replays
            if again or (self._judged and replays and entry.round.fate == "unjudged"):
                number += 1
                if entry in self.entries:
                    self.entries.remove(entry)
            if again:
                del rounds[attempt]
        return number

    def successes(self, task_id: str) -> list[bool]:
        """Success of attempts 1, 2, ... up to the first that is missing."""
        found = self._rounds.get(task_id, {})
        outcomes = []
        while (entry := found.get(len(outcomes) + 1)) is not None and entry.round is not None:
            outcomes.append(entry.round.success)
        return outcomes

    def rounds(self, task_id: str) -> list[JournalEntry]:
        """A task's episodes, in order of attempt."""
        return [entry for _, entry in sorted(self._rounds.get(task_id, {}).items())]

    def reflections(self, task_id: str) -> list[JournalEntry]:
        """A task's reflections, in order of attempt."""
        return [entry for _, entry in sorted(self._reflections.get(task_id, {}).items())]

    def of(self, task_id: str) -> tuple[JournalEntry, ...]:
        return (*self.rounds(task_id), *self.reflections(task_id))

    @property
    def tasks(self) -> list[str]:
        return sorted(self._rounds.keys() | self._reflections.keys())


def _says_more(entry: JournalEntry, known: JournalEntry) -> bool:
    """Returns True if an entry replaces what is known of its attempt.

    Of two that say the same the first counts; but the last of those that are played again, whose journals
    have higher numbers.
    """
    new, old = _rank(entry), _rank(known)
    if new == old == 0:
        return (entry.journal, entry.offset) > (known.journal, known.offset)
    return new > old


def _rank(entry: JournalEntry) -> int:
    """Ended by site, network or machine: 0; played: 1; played, and no verdict came: 2; with a result: 3."""
    if entry.round is None:
        return 3
    if entry.round.fate in KEPT_OUT:
        return 0
    if entry.round.awaits_verdict:
        return 1
    return 2 if entry.round.fate == "unjudged" else 3


def read_entry(workdir: Path, entry: JournalEntry) -> Trajectory | Reflected:
    """Reads the record of an entry.

    Raises:
      UserError: the record no longer exists.
    """
    return parse_record(workdir / FOLDER / entry.journal, read_bytes(workdir, entry))


def read_bytes(workdir: Path, entry: JournalEntry) -> bytes:
    """Returns the record of an entry as it was written; raises as `read_entry`."""
    return read_record(workdir / FOLDER / entry.journal, entry.offset)


def read_history(workdir: Path, entries: Iterable[JournalEntry]) -> TaskHistory:
    """Reads the records of one task."""
    return TaskHistory.of(read_entry(workdir, entry) for entry in entries)


def load_histories(workdir: Path) -> dict[str, TaskHistory]:
    """Reads all records of all journals, by task.

    Raises:
      UserError: as `JournalIndex`.
    """
    index = JournalIndex(workdir)
    return {task_id: read_history(workdir, index.of(task_id)) for task_id in index.tasks}


def new_journal(workdir: Path) -> str:
    """Creates a journal and returns its name.

    Each writer gets its own journal, to which no later process appends. So a line truncated by a kill is
    always the last one of its file, and no journal ever needs a repair.
    """
    folder = workdir / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    number = max((int(path.stem) for path in folder.glob("*.jsonl")), default=0) + 1
    name = f"{number:06d}.jsonl"
    # Created now, so that the next call gets another number.
    (folder / name).touch(exist_ok=False)
    return name


def append_record(record: Trajectory | Reflected, journal: Journal, name: str) -> JournalEntry:
    """Appends a record to the journal of that name; it is on disk when this returns."""
    return JournalEntry.of(record, name, journal.append(record.model_dump_json().encode()))


def parse_record(path: Path, line: bytes) -> Trajectory | Reflected:
    """Decodes a record of the journal at `path`.

    Raises:
      UserError: it was written by another version.
    """
    try:
        # `reflection` is the first field of `Reflected`.
        is_reflection = line.startswith(b'{"reflection":')
        return (Reflected if is_reflection else Trajectory).model_validate_json(line)
    except ValidationError as error:
        raise UserError(
            f"{path}: written by another version ({error.error_count()} errors); use another --workdir"
        ) from error
