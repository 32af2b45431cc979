"""WebTailBench (Awadallah et al., 2025): 609 tasks of eleven types, each with a rubric."""

from __future__ import annotations

from datetime import date

from collection.evaluation.benchmarks.base import Benchmark, start_of
from collection.evaluation.config import WebTailBenchSettings
from collection.judges.notes import Criterion, TaskNotes
from collection.tasks.benchmarks import BenchmarkFile, TailRow, read_webtailbench
from collection.tasks.websites import site_of
from rmsweb_jax.records.schema import Task
from rmsweb_jax.storage import local_path

NAME = "webtailbench"
# Estimated from its tasks: their earliest dates are 13 November 2025 and, without a year, 16 November.
WRITTEN = date(2025, 11, 10)


def load(settings: WebTailBenchSettings) -> Benchmark:
    """Reads `tasks_file`; its tasks name no website and start at `start_page`.

    Raises:
      UserError: it cannot be read, has another format, or repeats a row.
    """
    file = BenchmarkFile(local_path(settings.tasks_file, "config.tasks_file"), "config.tasks_file", NAME)
    rows, source = read_webtailbench(file)
    return Benchmark(
        name=NAME,
        tasks=tuple(_task(row, settings.start_page) for row in rows),
        notes={f"{NAME}/{row.id}": notes for row in rows if (notes := _notes(row)).rubric},
        files=(source,),
        questions=tuple(row.question() for row in rows),
        written=WRITTEN,
    )


def _task(row: TailRow, start_page: str) -> Task:
    website = start_of(row.web or start_page, f"config.tasks_file, {row.id}, or config.start_page")
    # All tasks start at one page, so results are grouped by type instead of site.
    return Task(
        task_id=f"{NAME}/{row.id}",
        website=website,
        objective=row.ques.strip(),
        category=row.category or "Other",
        site=site_of(row.web) or row.category,
    )


def _notes(row: TailRow) -> TaskNotes:
    items = row.precomputed_rubric.items
    return TaskNotes(rubric=tuple(Criterion(**item.model_dump()) for item in items))
