"""What a benchmark tells a judge beside the task: reference answers and rubrics. Agents never see them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


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
