"""The data set of a run: it grows while the run goes on, and is sorted when the run has ended."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from collection.fleet.journals import JournalEntry, JournalIndex, read_bytes, read_entry
from collection.fleet.rounds import Job, Reflected
from collection.llm.config import ActorConfig
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.growing import GrowingDataset
from rmsweb_jax.records.lean import decode_head
from rmsweb_jax.records.schema import Reflection, Trajectory
from rmsweb_jax.records.staging import publish_growing


class Publisher:
    """Publishes the episodes and reflections of some jobs from the journals of their run.

    It reads a record at a time, since the runs of a large fleet do not fit into memory.

    Args:
      index: of the records on disk; may grow while this publishes in its thread.
      anew: what an earlier run has published is no longer right: episodes are played again.

    Raises:
      OSError: the folder cannot be written.
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        workdir: Path,
        actor: ActorConfig,
        index: JournalIndex,
        anew: bool = False,
    ):
        self._tasks = sorted({job.task.task_id for job in jobs})
        self._mine = frozenset(self._tasks)
        self._workdir, self._actor, self._index = workdir, actor, index
        self._data = GrowingDataset(workdir, "trajectories")
        if anew:
            self._data.forget()
        # Entries that a publish has seen, and those of an earlier run of this workdir.
        self._seen, self._published = 0, self._read_published()
        self._reflections = sum(isinstance(key, tuple) for key in self._published)
        self._copied = False  # A bucket's copy is up to date.

    @contextlib.contextmanager
    def publishing(self, interval_s: float) -> Iterator[None]:
        """Publishes at an interval while the block runs, in a thread; 0 does not."""
        over = threading.Event()

        def publish() -> None:
            while not over.wait(interval_s):
                self.try_to_publish()

        thread = threading.Thread(target=publish, name="publish", daemon=True)
        if interval_s:
            thread.start()
        try:
            yield
        finally:
            over.set()
            if interval_s:
                thread.join()

    def try_to_publish(self) -> None:
        """Publishes what is new; says in one line if that cannot be done now."""
        try:
            self.publish()
        except (OSError, UserError) as error:
            line = " ".join(str(error).split())
            print(f"not published, what was stays readable: {line}", file=sys.stderr, flush=True)

    def publish(self) -> None:
        """Adds what is new to the growing data set, in the order in which it came, and to a bucket's copy.

        Raises:
          OSError, UserError: it could not be written, and the next call tries again.
        """
        entries = self._index.entries[self._seen :]
        new = [
            entry for entry in entries if entry.task_id in self._mine and _key(entry) not in self._published
        ]
        if any(entry.round is not None for entry in new) or (new and self._data.size):
            reflections = [entry for entry in new if entry.round is None]
            count = self._reflections + len(reflections)
            self._data.publish(
                (read_bytes(self._workdir, entry) for entry in new if entry.round is not None),
                map(self._reflection, reflections),
                self._provenance(count),
            )
            self._reflections, self._copied = count, False
        self._seen += len(entries)
        self._published.clear()
        if self._data.size and not self._copied:
            publish_growing(self._workdir)
            self._copied = True

    def finish(self) -> list[Reflected]:
        """Writes the data set of a run that has ended and, where there are any, `reflections.jsonl`.

        Returns:
          The reflections, sorted by task and attempt.

        Raises:
          UserError: a record is damaged, or there is none.
        """
        entries = [entry for task in self._tasks for entry in self._index.reflections(task)]
        reflected = [one for one in map(self._read, entries) if isinstance(one, Reflected)]
        if reflected:
            lines = [one.reflection.model_dump_json() + "\n" for one in reflected]
            write_atomic(self._workdir / "reflections.jsonl", "".join(lines).encode())
        rounds = [entry for task in self._tasks for entry in self._index.rounds(task)]
        rounds.sort(key=lambda entry: entry.round.trajectory_id if entry.round else "")
        records = (record for record in map(self._read, rounds) if isinstance(record, Trajectory))
        self._data.finish(
            (record.model_dump_json().encode() for record in records), self._provenance(len(reflected))
        )
        return reflected

    def _read(self, entry: JournalEntry) -> Trajectory | Reflected:
        return read_entry(self._workdir, entry)

    def _reflection(self, entry: JournalEntry) -> bytes:
        record = self._read(entry)
        assert isinstance(record, Reflected)
        return record.reflection.model_dump_json().encode()

    def _provenance(self, reflections: int) -> dict[str, Any]:
        return {
            "actor": self._actor.label,
            "kind": self._actor.kind,
            "tasks": len(self._tasks),
            "reflections": reflections,
        }

    def _read_published(self) -> set[str | tuple[str, int]]:
        """Returns the keys of what an earlier run of this workdir has published (`_key`)."""
        try:
            known: set[str | tuple[str, int]] = {
                decode_head(entry).trajectory_id for entry in self._data.records()
            }
            for entry in self._data.reflections():
                one = Reflection.model_validate_json(entry)
                known.add((one.task_id, one.attempt))
            return known
        except (UserError, ValueError):
            self._data.forget()
            return set()


def _key(entry: JournalEntry) -> str | tuple[str, int]:
    return (entry.task_id, entry.attempt) if entry.round is None else entry.round.trajectory_id
