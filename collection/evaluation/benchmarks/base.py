"""What all benchmarks come down to."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from datetime import date

from collection.judges.notes import TaskNotes
from collection.tasks.benchmarks import SourceFile, refuse
from collection.tasks.contamination import BenchmarkQuestion
from collection.tasks.websites import start_address
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Task


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """Tasks to be evaluated on, as one list.

    Attributes:
      name: as in the config; `task_id`s begin with it.
      tasks: in the file's order, without those excluded. `site` groups results; `category` is the
        benchmark's own type where it has types.
      notes: notes for judges, hidden from agents, by task id.
      levels: easy, medium or hard, by task id, where the benchmark says so.
      files: what was read.
      excluded: ids of tasks of the files that are left out.
      questions: all that the files ask, excluded tasks as well, for the contamination check; of tasks
        without a text of their own none.
      written: about when its authors wrote the prompts, which is when their days without a year were to
        come; None: its prompts are bound to no days, or are used as they are.
    """

    name: str
    tasks: tuple[Task, ...]
    notes: Mapping[str, TaskNotes] = dataclasses.field(default_factory=dict)
    levels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    files: tuple[SourceFile, ...] = ()
    excluded: tuple[str, ...] = ()
    questions: tuple[BenchmarkQuestion, ...] = ()
    written: date | None = None

    def select(self, task_ids: Sequence[str]) -> Benchmark:
        """The same with these tasks alone, in the files' order; all of them when none is named.

        Raises:
          UserError: naming ids that are of no task, or of one that is excluded.
        """
        if not task_ids:
            return self
        known = {task.task_id for task in self.tasks}
        check_known(task_ids, known, f"config.task_ids: no tasks of {self.name}")
        chosen = frozenset(task_ids)
        kept = tuple(task for task in self.tasks if task.task_id in chosen)
        notes = {name: note for name, note in self.notes.items() if name in chosen}
        return dataclasses.replace(self, tasks=kept, notes=notes)


def start_of(website: str, where: str) -> str:
    """The address at which a task starts, in its WHATWG form. Raises UserError when it is none."""
    try:
        return start_address(website)
    except ValueError as error:
        raise UserError(f"{where}: {error}; a task has to start somewhere") from error


def check_known(ids: Collection[str], known: Collection[str], what: str) -> None:
    """Raises UserError that names the ids which are not known."""
    known = frozenset(known)
    refuse((one for one in ids if one not in known), what, "see the ids in the benchmark's own file")
