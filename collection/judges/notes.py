"""A benchmark's notes for judges: reference answers and rubrics. Agents never see them."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from collection.tasks.files import read_lines
from rmsweb_jax.errors import UserError


class _Note(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Reference(_Note):
    """A reference answer by the benchmark's authors.

    Attributes:
      golden: the only right answer; otherwise one of several, or right on the day it was written.
      notice: remark on all answers of the site.
    """

    answer: str
    golden: bool
    notice: str = ""


class Criterion(_Note):
    """One line of a rubric.

    Attributes:
      condition: the criterion applies only if this is true; empty for always.
    """

    criterion: str
    description: str = ""
    condition: str = ""
    max_points: float = Field(gt=0)


class TaskNotes(_Note):
    """Notes on one task; a task without notes has no entry."""

    reference: Reference | None = None
    rubric: tuple[Criterion, ...] = ()


class _NotesOfTask(TaskNotes):
    task_id: str


def read_notes(path: Path) -> dict[str, TaskNotes]:
    """Reads notes by task id from JSONL with the fields of `TaskNotes` and a `task_id`.

    Raises:
      UserError: the file is unreadable, a line is invalid, or a task has two lines.
    """
    lines = read_lines(
        path, _NotesOfTask.model_validate_json, "notes (task_id, reference, rubric; one a line)"
    )
    if lines.bad:
        raise UserError(f"{lines.warning(path)}: fix them, because a task without its rubric is not judged")
    notes: dict[str, TaskNotes] = {}
    for number, one in lines.good:
        if one.task_id in notes:
            raise UserError(f"{path}: line {number}: {one.task_id} has notes already: keep one")
        notes[one.task_id] = TaskNotes(reference=one.reference, rubric=one.rubric)
    return notes
