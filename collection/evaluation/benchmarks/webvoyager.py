"""WebVoyager (He et al., 2024): 643 tasks at 15 sites, 588 of them retained (RMSWeb, appendix)."""

from __future__ import annotations

from collections import Counter
from datetime import date
from typing import Literal

from pydantic import BaseModel

from collection.evaluation.benchmarks.base import Benchmark, check_known, start_of
from collection.evaluation.config import WebVoyagerSettings
from collection.judges.notes import Reference, TaskNotes
from collection.tasks.benchmarks import (
    BenchmarkFile,
    SourceFile,
    VoyagerRow,
    check_edition,
    read_webvoyager,
    refuse,
)
from rmsweb_jax.records.schema import Task
from rmsweb_jax.storage import local_path

NAME = "webvoyager"
# Estimated from its tasks: dates without a year lie between December 2023 and the following March.
WRITTEN = date(2023, 12, 15)


class _ReferenceAnswer(BaseModel):
    id: int
    type: Literal["golden", "possible"]
    ans: str


class _Site(BaseModel):
    notice: str = ""
    answers: tuple[_ReferenceAnswer, ...]


def load(settings: WebVoyagerSettings) -> Benchmark:
    """Reads `tasks_file`, `excluded_file` (a JSON list of ids) and `references_file`; the last two may be "".

    Raises:
      UserError: a file cannot be read, or has another format or other rows; an id is repeated or has no task.
    """
    file = BenchmarkFile(local_path(settings.tasks_file, "config.tasks_file"), "config.tasks_file", NAME)
    rows, source = read_webvoyager(file)
    questions = tuple(row.question() for row in rows)
    if not settings.own_rows:
        check_edition(file, questions, NAME)
    ids = [row.id for row in rows]
    files, excluded, notes = [source], (), {}
    if settings.excluded_file:
        excluded, source = _read_excluded(settings.excluded_file, ids)
        files.append(source)
    if settings.references_file:
        notes, source = _read_references(settings.references_file, ids)
        files.append(source)
    tasks = tuple(_task(row) for row in rows if row.id not in excluded)
    kept = {task.task_id for task in tasks}
    return Benchmark(
        name=NAME,
        tasks=tasks,
        notes={name: note for name, note in notes.items() if name in kept},
        files=tuple(files),
        excluded=tuple(f"{NAME}/{one}" for one in excluded),
        questions=questions,
        own_rows=settings.own_rows,
        written=WRITTEN,
    )


def _task(row: VoyagerRow) -> Task:
    site = row.web_name or row.id.rpartition("--")[0]
    website = start_of(row.web, f"config.tasks_file, {row.id}")
    return Task(task_id=f"{NAME}/{row.id}", website=website, objective=row.ques.strip(), site=site)


def _read_excluded(path: str, ids: list[str]) -> tuple[tuple[str, ...], SourceFile]:
    file = BenchmarkFile(
        local_path(path, "config.excluded_file"), "config.excluded_file", "an exclusion list"
    )
    data = file.read()
    excluded: list[str] = file.parse(list[str], data)
    twice = [one for one, count in Counter(excluded).items() if count > 1]
    refuse(twice, f"{file.setting}={path}: ids that come twice", "get it again")
    check_known(excluded, ids, f"{file.setting}={path}: ids of no task")
    return tuple(excluded), file.source(data, len(excluded))


def _read_references(path: str, ids: list[str]) -> tuple[dict[str, TaskNotes], SourceFile]:
    file = BenchmarkFile(local_path(path, "config.references_file"), "config.references_file", NAME)
    data = file.read()
    sites: dict[str, _Site] = file.parse(dict[str, _Site], data)
    found = [
        (f"{name}--{answer.id}", answer, site.notice.strip())
        for name, site in sites.items()
        for answer in site.answers
    ]
    twice = [one for one, count in Counter(row_id for row_id, _, _ in found).items() if count > 1]
    refuse(twice, f"{file.setting}={path}: answers that come twice", "get it again")
    check_known([row_id for row_id, _, _ in found], ids, f"{file.setting}={path}: answers to no task")
    notes = {
        f"{NAME}/{row_id}": TaskNotes(
            reference=Reference(answer=answer.ans, golden=answer.type == "golden", notice=notice)
        )
        for row_id, answer, notice in found
    }
    return notes, file.source(data, len(found))
