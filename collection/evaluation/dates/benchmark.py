"""Refreshes the date-bound prompts of a benchmark, and records the changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from collection.evaluation.benchmarks.base import Benchmark
from collection.evaluation.dates.moving import Change, Refreshed, bound_by_rule, follow, refresh
from collection.evaluation.dates.writing import find_mentions
from collection.judges.notes import TaskNotes
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import Task

RECORD, DIFF = "date_refresh.json", "date_refresh.diff"

AskBound = Callable[[str], bool]


class _RefreshModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Moved(_RefreshModel):
    """One text before and after the refresh, with its dates in both forms."""

    old: str
    new: str
    dates: tuple[Change, ...]


class ChangedTask(_RefreshModel):
    """A changed prompt, with the changed notes of its task.

    Attributes:
      weeks: number of weeks by which all its dates moved.
      yearly: it names a holiday or an event, so it moved by years.
      event_year: a year in an event's name, which did not move: check the prompt by hand.
      notes: changed texts of its rubric.
    """

    task_id: str
    weeks: int
    yearly: bool
    event_year: int | None
    prompt: Moved
    notes: tuple[Moved, ...]


class DateRefresh(_RefreshModel):
    """Record of the date refresh of a benchmark.

    Attributes:
      today: reference day of the refresh; a resumed run uses it again.
      written: day on which the prompts were written.
      dated: number of prompts that name a day.
      kept: ids of unchanged prompts that name a day: they ask about the past, or their dates are still ahead.
      asked: the model's answers on prompts that no rule classified as date-bound, by task id.
    """

    today: date
    lead_days: int
    written: date
    dated: int
    changed: tuple[ChangedTask, ...]
    kept: tuple[str, ...]
    asked: dict[str, bool]

    def summary(self) -> dict[str, Any]:
        """Returns counts, and ids that need a person's attention, for a report."""
        return {
            "today": self.today.isoformat(),
            "lead_days": self.lead_days,
            "written": self.written.isoformat(),
            "dated": self.dated,
            "changed": len(self.changed),
            "rubric_texts_changed": sum(len(task.notes) for task in self.changed),
            "kept": list(self.kept),
            "asked_of_a_model": len(self.asked),
            "moved_by_years": [task.task_id for task in self.changed if task.yearly],
            "name_a_year_that_stays": [task.task_id for task in self.changed if task.event_year],
        }

    def diff(self) -> str:
        """Formats all changed prompts and rubric texts, old and new."""
        blocks = []
        for task in self.changed:
            lines = [f"@@ {task.task_id}: {task.weeks} weeks later @@"]
            for moved in (task.prompt, *task.notes):
                if moved.old == moved.new:
                    continue
                lines += [f"-{line}" for line in moved.old.splitlines()]
                lines += [f"+{line}" for line in moved.new.splitlines()]
            blocks.append("\n".join(lines))
        head = f"--- as published\n+++ on {self.today}\n"
        return head + "".join(f"{block}\n" for block in blocks)


def refresh_benchmark(
    benchmark: Benchmark, today: date, lead_days: int, ask: AskBound | None, workdir: Path
) -> tuple[Benchmark, DateRefresh]:
    """Moves the dates of all date-bound prompts and their rubrics; writes `RECORD` and `DIFF`.

    If the workdir has the record of an earlier run, its day and its model answers are used again.

    Args:
      today: reference day for a new workdir.
      ask: classifies prompts with dates that no rule classifies as date-bound; None treats them as not bound.

    Raises:
      UserError: the workdir belongs to a run with other prompts, or `ask` fails.
    """
    before = _load(workdir / RECORD)
    if before is not None:
        today, ask = before.today, None
    asked, written = dict(before.asked) if before else {}, benchmark.written or today
    changed: dict[str, tuple[Task, TaskNotes | None, ChangedTask]] = {}
    dated, kept = 0, []
    for task in benchmark.tasks:
        if not find_mentions(task.objective):
            continue
        dated += 1
        bound = bound_by_rule(task.objective)
        if not bound and ask is not None:
            asked[task.task_id] = ask(task.objective)
        bound = bound or asked.get(task.task_id, False)
        prompt = refresh(task.objective, today, written, lead_days, bound)
        change = _change(task, benchmark.notes.get(task.task_id), prompt)
        # A date without a year can have the same text after a move by years.
        if prompt.text != task.objective or change[2].notes:
            changed[task.task_id] = change
        else:
            kept.append(task.task_id)
    record = DateRefresh(
        today=today,
        lead_days=lead_days,
        written=written,
        dated=dated,
        changed=tuple(change for _, _, change in changed.values()),
        kept=tuple(kept),
        asked=asked,
    )
    if before is not None and before != record:
        raise UserError(f"{workdir / RECORD}: this run was begun with other prompts; use another --workdir")
    write_atomic(workdir / DIFF, record.diff().encode())
    # Written last: its existence means that all answers are there.
    write_atomic(workdir / RECORD, (record.model_dump_json(indent=1) + "\n").encode())
    notes = {name: note for name, (_, note, _) in changed.items() if note is not None}
    tasks = tuple(changed[one.task_id][0] if one.task_id in changed else one for one in benchmark.tasks)
    return dataclasses.replace(benchmark, tasks=tasks, notes={**benchmark.notes, **notes}), record


def _load(path: Path) -> DateRefresh | None:
    if not path.exists():
        return None
    try:
        return DateRefresh.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UserError(f"{path}: written by another version; use another --workdir") from error


def _change(
    task: Task, notes: TaskNotes | None, prompt: Refreshed
) -> tuple[Task, TaskNotes | None, ChangedTask]:
    texts: list[Moved] = []

    def move(text: str) -> str:
        moved = follow(text, prompt)
        if moved.text != text:
            texts.append(Moved(old=text, new=moved.text, dates=moved.changes))
        return moved.text

    if notes is not None:
        rubric = tuple(
            line.model_copy(
                update={name: move(getattr(line, name)) for name in ("criterion", "description", "condition")}
            )
            for line in notes.rubric
        )
        # The reference answer is for the old dates, so it is no longer the only right one.
        reference = notes.reference and notes.reference.model_copy(update={"golden": False})
        notes = notes.model_copy(update={"rubric": rubric, "reference": reference})
    change = ChangedTask(
        task_id=task.task_id,
        weeks=prompt.weeks,
        yearly=prompt.yearly,
        event_year=prompt.event_year,
        prompt=Moved(old=task.objective, new=prompt.text, dates=prompt.changes),
        notes=tuple(texts),
    )
    return task.model_copy(update={"objective": prompt.text}), notes, change
