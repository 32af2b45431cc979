"""WebTailBench (Awadallah et al., 2025): 609 tasks of eleven types, each with a rubric; two editions."""

from __future__ import annotations

import dataclasses
from datetime import date

from collection.evaluation.benchmarks.base import Benchmark, start_of
from collection.evaluation.config import WebTailBenchSettings
from collection.judges.notes import Criterion, TaskNotes
from collection.tasks.benchmarks import BenchmarkFile, TailRow, check_edition, read_webtailbench
from collection.tasks.websites import site_of
from rmsweb_jax.records.schema import Task
from rmsweb_jax.storage import local_path

NAME = "webtailbench"
# By the name of a split on the hub. Results of the editions are of different benchmarks.
_NAMES = {"test": NAME, "test_v2": f"{NAME}_v2"}
_WRITTEN = {
    # Estimated from its tasks: their earliest dates are 13 November 2025 and, without a year, 16 November.
    "test": date(2025, 11, 10),
    # The day on which its authors published it.
    "test_v2": date(2026, 5, 12),
}


def load(settings: WebTailBenchSettings) -> Benchmark:
    """Reads `tasks_file`; its tasks name no website and start at `start_page`.

    Raises:
      UserError: it cannot be read, has another format or other rows, or repeats a row.
    """
    name = _NAMES[settings.split]
    file = BenchmarkFile(local_path(settings.tasks_file, "config.tasks_file"), "config.tasks_file", name)
    rows, source = read_webtailbench(file)
    questions = tuple(dataclasses.replace(row.question(), benchmark=name) for row in rows)
    if not settings.own_rows:
        check_edition(file, questions, name)
    return Benchmark(
        name=name,
        tasks=tuple(_task(row, name, settings.start_page) for row in rows),
        notes={f"{name}/{row.id}": notes for row in rows if (notes := _notes(row)).rubric},
        files=(source,),
        questions=questions,
        own_rows=settings.own_rows,
        written=_WRITTEN[settings.split],
    )


def _task(row: TailRow, benchmark: str, start_page: str) -> Task:
    website = start_of(row.web or start_page, f"config.tasks_file, {row.id}, or config.start_page")
    # All tasks start at one page, so results are grouped by type instead of site.
    return Task(
        task_id=f"{benchmark}/{row.id}",
        website=website,
        objective=row.ques.strip(),
        category=row.category or "Other",
        site=site_of(row.web) or row.category,
    )


def _notes(row: TailRow) -> TaskNotes:
    items = row.precomputed_rubric.items
    return TaskNotes(rubric=tuple(Criterion(**item.model_dump()) for item in items))
