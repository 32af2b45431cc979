"""Moves the days of date-bound prompts into the future: by a user's file, or by one question to a model each.

RMSWeb (appendix, "Live-site freshness") refreshes date-bound tasks and does not say how. A prompt counts as
dated if it has a day with a month, a month with a year, or a year.
"""

from __future__ import annotations

import calendar
import contextlib
import dataclasses
import functools
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import jinja2
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from collection.evaluation.benchmarks import Benchmark, check_known
from collection.evaluation.config import RefreshSettings
from collection.judges.notes import TaskNotes
from collection.llm.model import Model, ModelRequest, call_seed
from collection.tasks.files import read_lines, refuse
from rmsweb_jax.actions.json_schema import plain_schema
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import Message, TextPart
from rmsweb_jax.storage import local_path

RECORD = "date_refresh.jsonl"
# A date must not pass while a benchmark is played, which takes a day or two.
LEAD_DAYS = 7
_ASKS, _THREADS = 2, 8
_SETTING = "config.refresh.overrides"
_RUBRIC = ("criterion", "description", "condition")

_MONTHS = [name for name in calendar.month_name if name]
_MONTH = rf"(?P<month>{'|'.join(f'{one[:3]}(?:{one[3:]})?' for one in _MONTHS)}|Sept)\b\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b(?!:)"
_YEAR = r"(?P<year>20\d\d)\b"
_DATES = [
    re.compile(rf"\b{pattern}")
    for pattern in (
        r"(?P<year>20\d\d)[-/](?P<month>\d{1,2})[-/](?P<day>\d{1,2})\b",
        r"(?P<month>\d{1,2})/(?P<day>\d{1,2})(?:/(?P<year>(?:20)?\d\d))?\b",
        rf"{_MONTH}\s+{_DAY}(?:(?:\s*(?:-|–|to)\s*\d{{1,2}})?,?\s+{_YEAR})?",
        rf"{_DAY}(?:\s*(?:-|–|to)\s*\d{{1,2}})?\s+(?:of\s+)?{_MONTH}(?:,?\s+{_YEAR})?",
        rf"{_MONTH},?\s+(?:of\s+)?{_YEAR}",
        _YEAR,
    )
]
_RANGE = r"(?:\s*(?:-|–|to|and|or|until|through)\s*\d{1,2}(?:st|nd|rd|th)?\b)?"
# What a new day may change in a text.
_OF_DATES = re.compile(
    re.sub(
        r"\?P<\w+>",
        "?:",
        "|".join(
            (
                *(one.pattern for one in _DATES[:2]),
                rf"\b{_MONTH}(?:\s+{_DAY})?{_RANGE}",
                rf"\b{_DAY}{_RANGE}(?=\s+(?:of\s+)?{_MONTH})",
                rf"\b{_YEAR}",
                r"\b\d{1,2}(?:st|nd|rd|th)\b",
                r"\b(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs?)?|Fri|Sat(?:ur)?|Sun)(?:days?)?\b",
                r"\W+",
            )
        ),
    )
)


class Refreshed(BaseModel):
    """A line of `RECORD` and of a user's file of overrides, which needs `task_id` and `prompt` alone.

    Attributes:
      task_id: as in results (`webvoyager/Booking--10`).
      prompt: the task as it is asked.
      notes: texts of its rubric -> new ones.
      old: the prompt as published.
      by: what decided: `override`, `model`, or `refused` (the model's answers could not be used).
      reason: of the model.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    task_id: str
    prompt: str = Field(min_length=1)
    notes: dict[str, str] = {}
    old: str = ""
    by: str = "override"
    reason: str = ""


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    reason: str
    bound: bool
    prompt: str
    notes: list[str]


def read_overrides(path: str, benchmark: Benchmark) -> dict[str, Refreshed]:
    """Reads prompts by task id from a user's file, or from `RECORD` of another run.

    Raises:
      UserError: the file cannot be read or has another form, or an id is unknown or comes twice.
    """
    file = local_path(path, _SETTING)
    lines = read_lines(file, Refreshed.model_validate_json, "task_id and prompt in each line")
    if lines.bad:
        raise UserError(f"{_SETTING}={path}, line {lines.bad[0].number}: {lines.bad[0].reason}")
    found = [one for _, one in lines.good]
    by_id = {one.task_id: one for one in found}
    twice = (one.task_id for one in found if by_id[one.task_id] is not one)
    refuse(twice, f"{_SETTING}={path}: tasks that come twice", "keep one prompt for each")
    # Of the whole file, so that a subset can be evaluated with the same overrides.
    known = {f"{one.benchmark}/{one.task_id}" for one in benchmark.questions}
    check_known(list(by_id), known, f"{_SETTING}={path}: no tasks of {benchmark.name}")
    return by_id


def refresh_benchmark(
    benchmark: Benchmark, settings: RefreshSettings, model: Model | None, workdir: Path
) -> tuple[Benchmark, dict[str, Any]]:
    """Gives dated prompts and their rubrics new days, and records them in `RECORD`.

    A user's overrides are taken first, then what a record of the workdir says, then the model's answers. A
    reference answer of a changed prompt is no longer the only right one.

    Args:
      model: asked about each dated prompt; None leaves them as they are.

    Returns:
      The benchmark, and numbers of prompts for a report.

    Raises:
      UserError: overrides cannot be used, `today` is no date, or the model cannot be reached.
    """
    try:
        today = date.fromisoformat(settings.today) if settings.today else date.today()
    except ValueError as error:
        raise UserError(f"config.refresh.today={settings.today!r}: write YYYY-MM-DD, or nothing") from error
    record = workdir / RECORD
    known = read_overrides(str(record), benchmark) if record.exists() else {}
    if settings.overrides:
        known |= read_overrides(settings.overrides, benchmark)
    dated = [task for task in benchmark.tasks if find_dates(task.objective, today)]
    texts = {task.task_id: rubric_texts(benchmark.notes.get(task.task_id), today) for task in dated}
    found = {}
    for task in benchmark.tasks:
        if one := known.get(task.task_id):
            if one.old not in ("", task.objective):
                raise UserError(
                    f"{task.task_id}: its prompt is not the one that was refreshed in {record} or in "
                    f"{_SETTING}; use the old file or another --workdir"
                )
            found[task.task_id] = one.model_copy(update={"old": task.objective})
    asked = [task for task in dated if task.task_id not in known]
    if model is None and asked:
        print(
            f"{len(asked)} prompts name a date and keep their text: give {_SETTING}, or set "
            "config.refresh.ask=True to ask the judge's model for later days",
            file=sys.stderr,
            flush=True,
        )
    elif model is not None and asked:
        ask = functools.partial(ask_model, today=today, model=model)
        questions = [(task.task_id, task.objective, texts[task.task_id]) for task in asked]
        with ThreadPoolExecutor(_THREADS) as pool:
            for one in pool.map(ask, *zip(*questions, strict=True)):
                found[one.task_id] = one
                # After each answer, so that none is paid for twice.
                write_record(record, found)
    if found:
        write_record(record, found)
    changed = {name: one for name, one in found.items() if one.prompt != one.old}
    tasks = tuple(
        task.model_copy(update={"objective": one.prompt}) if (one := changed.get(task.task_id)) else task
        for task in benchmark.tasks
    )
    notes = {
        name: _follow(note, changed[name].notes) if name in changed else note
        for name, note in benchmark.notes.items()
    }
    if kept := [name for name, one in changed.items() if texts.get(name) and not one.notes]:
        print(
            f"{len(kept)} rubrics keep their dates, because their overrides have no `notes`: {kept[0]}, ...",
            file=sys.stderr,
            flush=True,
        )
    summary = {
        "today": today.isoformat(),
        "lead_days": LEAD_DAYS,
        "dated": len(dated),
        "changed": len(changed),
        "overridden": [one.task_id for one in found.values() if one.by == "override"],
        "refused": [one.task_id for one in found.values() if one.by == "refused"],
        "asked_of_a_model": sum(one.by in ("model", "refused") for one in found.values()),
    }
    return dataclasses.replace(benchmark, tasks=tasks, notes=notes), summary


def write_record(path: Path, found: Mapping[str, Refreshed]) -> None:
    write_atomic(path, "".join(f"{one.model_dump_json()}\n" for one in found.values()).encode())


def rubric_texts(notes: TaskNotes | None, today: date) -> list[str]:
    """Returns the texts of a rubric that name a date."""
    texts = (getattr(line, name) for line in (notes.rubric if notes else ()) for name in _RUBRIC)
    return [text for text in dict.fromkeys(texts) if find_dates(text, today)]


def _follow(notes: TaskNotes, moved: Mapping[str, str]) -> TaskNotes:
    rubric = tuple(
        line.model_copy(update={name: moved.get(text := getattr(line, name), text) for name in _RUBRIC})
        for line in notes.rubric
    )
    reference = notes.reference and notes.reference.model_copy(update={"golden": False})
    return notes.model_copy(update={"rubric": rubric, "reference": reference})


def ask_model(task_id: str, text: str, notes: Sequence[str], today: date, model: Model) -> Refreshed:
    """Asks for new days of one prompt; without an answer that holds it keeps its text.

    Raises:
      UserError: the model cannot be reached, or the budget is spent.
    """
    problem = ""
    for ask in range(_ASKS):
        request = _request(text, notes, today, ask)
        # A reply is kept, also if another question ends the run before it is recorded.
        reply, _ = model.ask(request)
        if not (problem := reply.problem):
            try:
                answer = _Answer.model_validate_json(reply.text.strip().removeprefix("```json").strip("`\n "))
            except ValidationError as error:
                problem = error.errors()[0]["msg"]
            else:
                if not answer.bound:
                    return Refreshed(task_id=task_id, prompt=text, old=text, by="model", reason=answer.reason)
                if not (problem := check_answer(text, notes, answer.prompt, answer.notes, today)):
                    moved = dict(zip(notes, answer.notes, strict=True))
                    return Refreshed(
                        task_id=task_id,
                        prompt=answer.prompt,
                        notes=moved,
                        old=text,
                        by="model",
                        reason=answer.reason,
                    )
        model.reject(request)
    return Refreshed(task_id=task_id, prompt=text, old=text, by="refused", reason=problem)


def check_answer(text: str, notes: Sequence[str], prompt: str, moved: Sequence[str], today: date) -> str:
    """Returns why new texts cannot be used: a day is early, or more than days has changed; "" if they can."""
    if len(moved) != len(notes):
        return f"{len(moved)} lines of a rubric of {len(notes)}"
    for old, new in ((text, prompt), *zip(notes, moved, strict=True)):
        if _OF_DATES.sub("", old) != _OF_DATES.sub("", new):
            return f"more than days has changed: {new}"
    early = [day for day in find_dates(prompt, today) if day <= today + timedelta(days=LEAD_DAYS)]
    return f"{early[0]} is too early" if early else ""


def find_dates(text: str, today: date) -> list[date]:
    """Returns the days that a text names, in order; of a month or a year the last day.

    A day without a year is the next one after `today`.
    """
    return [day for _, day in sorted(_find(text, today))]


def _find(text: str, today: date) -> Iterator[tuple[int, date]]:
    for pattern in _DATES:
        for match in pattern.finditer(text):
            with contextlib.suppress(ValueError):
                yield match.start(), _day(match.groupdict(), today)
        # A part of a date is no date.
        text = pattern.sub(lambda match: " " * len(match[0]), text)


def _day(parts: Mapping[str, str | None], today: date) -> date:
    """Raises ValueError for a day that does not exist."""
    year = int(parts.get("year") or 0)
    year += 2000 if 0 < year < 100 else 0
    name = parts.get("month") or "12"
    month = int(name) if name.isdigit() else [one[:3] for one in _MONTHS].index(name[:3]) + 1
    day = int(parts.get("day") or 0)
    if month > 12 >= day > 0:  # 24/12, as it is written in Europe.
        month, day = day, month
    for one in [year] if year else range(today.year, today.year + 9):
        with contextlib.suppress(ValueError):
            found = date(one, month, day or calendar.monthrange(one, month)[1])
            if year or found > today:
                return found
    raise ValueError(f"{day} of {month} is no day")


def _request(text: str, notes: Sequence[str], today: date, ask: int) -> ModelRequest:
    earliest = today + timedelta(days=LEAD_DAYS)
    asked = _template().render(text=text, notes=notes, today=f"{today:%A, %d %B %Y}", earliest=earliest)
    message = Message(role="user", content=(TextPart(text=asked),))
    schema = plain_schema(_Answer.model_json_schema())
    return ModelRequest((message,), "task", call_seed("task", text, ask), schema=schema)


@functools.cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("collection.evaluation", "prompts")
    # Chat text, not HTML: escaping would change quoted text.
    environment = jinja2.Environment(
        loader=loader,
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("dates.j2")
