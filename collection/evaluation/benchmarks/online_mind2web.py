"""Online-Mind2Web (Xue et al., 2025): 300 tasks at 136 sites with three levels, used unchanged."""

from __future__ import annotations

from collection.evaluation.benchmarks.base import Benchmark, start_of
from collection.evaluation.config import OnlineMind2WebSettings
from collection.tasks.benchmarks import BenchmarkFile, Mind2WebRow, check_edition, read_online_mind2web
from collection.tasks.websites import site_of
from rmsweb_jax.records.schema import Task
from rmsweb_jax.storage import local_path

NAME = "online_mind2web"


def load(settings: OnlineMind2WebSettings) -> Benchmark:
    """Reads `tasks_file`; a task without a website starts at `start_page`.

    Raises:
      UserError: it cannot be read, has another format or other rows, or repeats a row.
    """
    file = BenchmarkFile(local_path(settings.tasks_file, "config.tasks_file"), "config.tasks_file", NAME)
    rows, source = read_online_mind2web(file)
    questions = tuple(row.question() for row in rows)
    if not settings.own_rows:
        check_edition(file, questions, NAME)
    return Benchmark(
        name=NAME,
        tasks=tuple(_task(row, settings.start_page) for row in rows),
        levels={f"{NAME}/{row.id}": row.level for row in rows if row.level},
        files=(source,),
        questions=questions,
        own_rows=settings.own_rows,
    )


def _task(row: Mind2WebRow, start_page: str) -> Task:
    website = start_of(row.website or start_page, f"config.tasks_file, {row.id}, or config.start_page")
    return Task(
        task_id=f"{NAME}/{row.id}",
        website=website,
        objective=row.confirmed_task.strip(),
        site=site_of(website),
    )
