"""The common form of all benchmarks."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from datetime import date

from collection.evaluation.config import FIRST_EVALUATED_SEED
from collection.judges.notes import TaskNotes
from collection.tasks.benchmarks import SourceFile, refuse
from collection.tasks.contamination import BenchmarkQuestion
from collection.tasks.websites import start_address
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Task


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A benchmark's tasks, with notes for judges and data for reports.

    Attributes:
      name: as in the config; `task_id`s begin with it.
      tasks: in the file's order, without excluded ones. `site` groups results; `category` is the
        benchmark's own type if it has types.
      notes: notes for judges, hidden from agents, by task id.
      levels: easy, medium or hard, by task id, if the benchmark has levels.
      files: the files that were read.
      excluded: ids of tasks that are in the files and left out.
      questions: all questions of the files, including excluded tasks, for the contamination check; none for
        tasks without a fixed text.
      own_rows: the user has accepted that its rows are not the published ones.
      written: approximate day on which the authors wrote the prompts: dates without a year lie after it.
        None if prompts contain no dates, or are used unchanged.
    """

    name: str
    tasks: tuple[Task, ...]
    notes: Mapping[str, TaskNotes] = dataclasses.field(default_factory=dict)
    levels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    files: tuple[SourceFile, ...] = ()
    excluded: tuple[str, ...] = ()
    questions: tuple[BenchmarkQuestion, ...] = ()
    own_rows: bool = False
    written: date | None = None

    def select(self, task_ids: Sequence[str]) -> Benchmark:
        """Returns the benchmark with only these tasks, in the files' order; all tasks if `task_ids` is empty.

        Raises:
          UserError: an id is unknown or excluded; the message names it.
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
    """Normalises a task's start address by the WHATWG rules. Raises UserError if it is not an address."""
    try:
        return start_address(website)
    except ValueError as error:
        raise UserError(f"{where}: {error}; a task has to start somewhere") from error


def evaluated_seeds(first: int, count: int) -> range:
    """Returns the seeds that tasks are made with, on which nothing was trained.

    Raises:
      UserError: a seed below `FIRST_EVALUATED_SEED`, or none.
    """
    if first < FIRST_EVALUATED_SEED:
        raise UserError(
            f"config.first_seed is {first}: seeds below {FIRST_EVALUATED_SEED} are trained on; "
            f"evaluate from {FIRST_EVALUATED_SEED}"
        )
    if count < 1:
        raise UserError(f"config.seeds is {count}: make it 1 or more")
    return range(first, first + count)


def check_known(ids: Collection[str], known: Collection[str], what: str) -> None:
    """Raises UserError with the unknown ids, if there are any."""
    known = frozenset(known)
    refuse((one for one in ids if one not in known), what, "see the ids in the benchmark's own file")
