"""What a benchmark tells a judge beside the task: reference answers and rubrics. Agents never see them."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from collection.tasks.lines import read_lines
from rmsweb_jax.errors import UserError


class _Note(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Reference(_Note):
    """An answer that the benchmark's authors found.

    Attributes:
      golden: it is the only right one; otherwise one of several, or right on the day it was written.
      notice: what holds for all answers of its site.
    """

    answer: str
    golden: bool
    notice: str = ""


class Criterion(_Note):
    """One line of a rubric.

    Attributes:
      condition: it counts only where this holds; empty: always.
    """

    criterion: str
    description: str = ""
    condition: str = ""
    max_points: float = Field(gt=0)


class TaskNotes(_Note):
    """All that is known of one task; a task without any has no entry."""

    reference: Reference | None = None
    rubric: tuple[Criterion, ...] = ()


class _NotesOfTask(TaskNotes):
    task_id: str


def read_notes(path: Path) -> dict[str, TaskNotes]:
    """Notes by task id, from a file with the fields of `TaskNotes` and a `task_id` in each line.

    Raises:
      UserError: the file cannot be read, a line is none, or two are of the same task.
    """
    lines = read_lines(
        path, _NotesOfTask.model_validate_json, "notes (task_id, reference, rubric; one a line)"
    )
    if lines.bad:
        raise UserError(f"{lines.warning(path)}: mend them, since a task without its rubric is not judged")
    notes: dict[str, TaskNotes] = {}
    for number, one in lines.good:
        if one.task_id in notes:
            raise UserError(f"{path}: line {number}: {one.task_id} has notes already: keep one")
        notes[one.task_id] = TaskNotes(reference=one.reference, rubric=one.rubric)
    return notes
