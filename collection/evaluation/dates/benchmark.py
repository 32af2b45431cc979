"""Refreshes the date-bound prompts of a benchmark, and records the changes."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from collection.evaluation.benchmarks.base import Benchmark
from collection.evaluation.dates.moving import (
    Change,
    Refreshed,
    Rule,
    bound_by_rule,
    follow,
    inverted,
    refresh,
)
from collection.evaluation.dates.outdated import outdated, relative_words
from collection.evaluation.dates.overrides import override
from collection.evaluation.dates.writing import find_mentions, resolve
from collection.judges.notes import TaskNotes
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import Task

RECORD, PAGE = "date_refresh.json", "date_refresh.md"

AskBound = Callable[[str], bool]


class _RefreshModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Moved(_RefreshModel):
    """One text before and after the refresh, with its dates in both forms."""

    old: str
    new: str
    dates: tuple[Change, ...] = ()


class ChangedTask(_RefreshModel):
    """A prompt whose days moved, with the changed notes of its task.

    Attributes:
      rule: the rule that moved its dates.
      days: number of days by which all its dates moved; 0 for a user's prompt that the rubric cannot follow.
      lead: days from writing to its earliest date, and from `today` to the new one; None for a user's prompt.
      notes: changed texts of its rubric.
    """

    task_id: str
    rule: Rule
    days: int
    lead: tuple[int, int] | None
    prompt: Moved
    notes: tuple[Moved, ...]


class DateRefresh(_RefreshModel):
    """Record of the date refresh of a benchmark.

    Attributes:
      today: reference day of the refresh; a resumed run uses it again.
      written: day on which the prompts were written.
      dated: number of prompts that name a day.
      unchanged: ids of unchanged prompts that name a day, by rule: they ask about the past, or their dates
        are ahead or belong to an event.
      outdated: prompts that cannot be carried out any more, with the reason; a user can override them.
      relative: unchanged words of a prompt that refer to the day of the run, by task id.
      inverted: ids of prompts whose return comes before the departure, as published.
      asked: the model's answers on prompts that no rule classified as date-bound, by task id.
    """

    today: date
    lead_days: int
    written: date
    dated: int
    changed: tuple[ChangedTask, ...]
    unchanged: dict[Rule, tuple[str, ...]]
    outdated: dict[str, str]
    relative: dict[str, tuple[str, ...]]
    inverted: tuple[str, ...]
    asked: dict[str, bool]

    def rules(self) -> dict[str, int]:
        """Returns how many prompts each rule applied to."""
        counts = Counter(task.rule for task in self.changed)
        counts.update({rule: len(ids) for rule, ids in self.unchanged.items()})
        return dict(sorted(counts.items()))

    def summary(self) -> dict[str, Any]:
        """Returns counts, and ids that need a person's attention, for a report."""
        return {
            "today": self.today.isoformat(),
            "lead_days": self.lead_days,
            "written": self.written.isoformat(),
            "dated": self.dated,
            "changed": len(self.changed),
            "rubric_texts_changed": sum(len(task.notes) for task in self.changed),
            "rules": self.rules(),
            "outdated": self.outdated,
            "overridden": [task.task_id for task in self.changed if task.rule == "override"],
            "relative": len(self.relative),
            "inverted": list(self.inverted),
            "asked_of_a_model": len(self.asked),
        }

    def page(self, prompts: Mapping[str, str]) -> str:
        """Formats the refresh as a Markdown page.

        Args:
          prompts: the prompts as they are asked, by task id.
        """
        parts = [
            f"# Dates of the prompts on {self.today}",
            f"{self.dated} prompts name a day; {len(self.changed)} have another one now. They were written "
            f"about {self.written}. `config.refresh.overrides` takes prompts that you write yourself.",
            "| rule | prompts |\n|---|---|\n"
            + "\n".join(f"| {rule} | {count} |" for rule, count in self.rules().items()),
            "The rules are explained in `docs/evaluate.md`.",
        ]

        def listed(title: str, lines: Iterable[str]) -> None:
            if found := list(lines):
                parts.extend((f"## {title} ({len(found)})", "\n".join(f"- {line}" for line in found)))

        listed(
            "Outdated: no date can repair these",
            (f"`{name}` {why}: {prompts[name]}" for name, why in self.outdated.items()),
        )
        listed(
            "The return comes before the departure, as published",
            (f"`{name}`: {prompts[name]}" for name in self.inverted),
        )
        changed: dict[str, list[ChangedTask]] = defaultdict(list)
        for task in self.changed:
            changed[task.rule].append(task)
        for rule, tasks in sorted(changed.items()):
            parts.append(f"## Changed by the rule: {rule} ({len(tasks)})")
            parts += [_block(task) for task in tasks]
        for rule, names in sorted(self.unchanged.items()):
            listed(f"Unchanged: {rule}", (f"`{name}`: {prompts[name]}" for name in names))
        listed(
            "Unchanged: relative to the day of the run",
            (f"`{name}` ({', '.join(words)}): {prompts[name]}" for name, words in self.relative.items()),
        )
        return "\n\n".join(parts) + "\n"


def _block(task: ChangedTask) -> str:
    lead = f"; {task.lead[0]} days ahead when written, {task.lead[1]} now" if task.lead else ""
    follows = "" if task.days else "; its rubric keeps its dates: check it"
    # A date without a year can have the same text in another year.
    same = task.prompt.old == task.prompt.new
    marked = ((" ", task.prompt.old),) if same else (("-", task.prompt.old), ("+", task.prompt.new))
    diff = [f"{mark}{line}" for mark, text in marked for line in text.splitlines()]
    lines = [f"`{task.task_id}`: {task.days} days later{lead}{follows}", "", "```diff", *diff, "```"]
    # Nothing else changes in a rubric, which can be long.
    if dates := dict.fromkeys((date.old, date.new) for note in task.notes for date in note.dates):
        lines += ["", "In its rubric: " + ", ".join(f"{old} → {new}" for old, new in dates)]
    return "\n".join(lines)


def refresh_benchmark(
    benchmark: Benchmark,
    today: date,
    lead_days: int,
    ask: AskBound | None,
    workdir: Path,
    overrides: Mapping[str, str] | None = None,
) -> tuple[Benchmark, DateRefresh]:
    """Moves the dates of all date-bound prompts and their rubrics; writes `RECORD` and `PAGE`.

    If the workdir has the record of an earlier run, its day and its model answers are used again.

    Args:
      today: reference day for a new workdir.
      ask: classifies prompts with dates that no rule classifies as date-bound; None treats them as not bound.
      overrides: a user's prompts by task id, which win over all rules.

    Raises:
      UserError: the workdir belongs to a run with other prompts, or `ask` fails.
    """
    before = _load(workdir / RECORD)
    if before is not None:
        today, ask = before.today, None
    asked, written = dict(before.asked) if before else {}, benchmark.written or today
    tasks, notes, changed = [], dict(benchmark.notes), []
    unchanged: dict[Rule, list[str]] = defaultdict(list)
    over, relative, inverse, dated = {}, {}, [], 0
    for task in benchmark.tasks:
        name, text, bound = task.task_id, task.objective, None
        mentions = find_mentions(text)
        dated += bool(mentions)
        if overrides and name in overrides:
            prompt = override(text, overrides[name], today, written)
        else:
            bound = bound_by_rule(text)
            if mentions and not bound:
                if ask is not None:
                    asked[name] = ask(text)
                bound = asked.get(name, False)
            prompt = refresh(text, today, written, lead_days, bound)
            if prompt.rule not in ("past", "today", "this week") and (words := relative_words(text)):
                relative[name] = tuple(words)
            if prompt.rule != "past":
                if why := outdated(text, prompt.rule, today):
                    over[name] = why
                if inverted(resolve(mentions, written)):
                    inverse.append(name)
        task, note, change = _change(task, benchmark.notes.get(name), prompt)
        # A date without a year can have the same text after a move by years.
        if prompt.days or prompt.rule == "override":
            changed.append(change)
            if note is not None:
                notes[name] = note
        elif prompt.rule:
            unchanged[prompt.rule].append(name)
        tasks.append(task)
    record = DateRefresh(
        today=today,
        lead_days=lead_days,
        written=written,
        dated=dated,
        changed=tuple(changed),
        unchanged={rule: tuple(ids) for rule, ids in unchanged.items()},
        outdated=over,
        relative=relative,
        inverted=tuple(inverse),
        asked=asked,
    )
    if before is not None and before != record:
        raise UserError(f"{workdir / RECORD}: this run was begun with other prompts; use another --workdir")
    prompts = {task.task_id: task.objective for task in tasks}
    write_atomic(workdir / PAGE, record.page(prompts).encode())
    # Written last: its existence means that all answers are there.
    write_atomic(workdir / RECORD, (record.model_dump_json(indent=1) + "\n").encode())
    return dataclasses.replace(benchmark, tasks=tuple(tasks), notes=notes), record


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
        rule=prompt.rule or "ahead",
        days=prompt.days,
        lead=prompt.lead,
        prompt=Moved(old=task.objective, new=prompt.text, dates=prompt.changes),
        notes=tuple(texts),
    )
    return task.model_copy(update={"objective": prompt.text}), notes, change
