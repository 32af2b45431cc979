"""Stage 0: search queries into tasks for `experiments.collect`.

    python -m experiments.make_tasks --config=configs/make_tasks.py:paper --config.queries=queries.txt \
        --workdir=runs/tasks

The workdir gets `tasks.jsonl`, `dropped.jsonl` with the reason for every query that made no task,
`calls.jsonl` with what each call took, and last `report.json`. The same command again resumes.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from collection.config import MakeTasksSettings
from collection.evaluation.benchmarks import read_questions
from collection.llm.build import make_model
from collection.llm.calls import CALLS, Calls
from collection.tasks.contamination import BenchmarkIndex
from collection.tasks.seeds import read_queries
from collection.tasks.task_writer import date_of_run, publish_tasks, write_tasks
from experiments import cli
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.storage import local_path


def main(settings: MakeTasksSettings, workdir: Path) -> None:
    """Writes the tasks and then the report, whose presence means that the stage is done."""
    if (workdir / "report.json").exists():
        return
    start = time.monotonic()
    today, path = date_of_run(settings.today, workdir), local_path(settings.queries, "config.queries")
    queries = read_queries(path)
    if queries.bad:
        print(f"warning: {queries.warning(path)}", file=sys.stderr, flush=True)
    # Before the first call: a benchmark's file that cannot be read is not to cost a run.
    questions = read_questions(dict(settings.benchmarks))
    index = BenchmarkIndex(questions) if questions else None
    calls = Calls(workdir / CALLS)
    model = make_model(settings.actor.resolve(), calls)
    written = write_tasks((query for _, query in queries.good), model, today, workdir, settings.workers)
    published = publish_tasks(queries, written, index, workdir)
    report = {
        "stage": "make_tasks",
        "seconds": round(time.monotonic() - start, 1),
        "model": model.name,
        "today": today.isoformat(),
        **published,
        "questions": len(questions),
        "calls": calls.totals(),
        "cost_usd": round(calls.spent(), 6),
    }
    write_atomic(workdir / "report.json", json.dumps(report, indent=1).encode())


if __name__ == "__main__":
    cli.run(main, "configs/make_tasks.py:paper", MakeTasksSettings)
