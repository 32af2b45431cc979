"""Stage 0: search queries into tasks for `experiments.collect`.

    python -m experiments.make_tasks --config=configs/make_tasks.py:paper --config.queries=queries.txt \
        --workdir=runs/tasks

The workdir gets `tasks.jsonl`, `dropped.jsonl` with the reason for every query that made no task,
`calls.sqlite` with what each call took, and last `report.json`. The same command again resumes.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path

from ml_collections import ConfigDict

from collection.llm.config import ActorConfig, make_model
from collection.llm.ledger import LEDGER, Ledger
from collection.tasks.benchmarks import read_questions
from collection.tasks.contamination import BenchmarkIndex, Thresholds
from collection.tasks.making import publish_tasks, write_tasks
from collection.tasks.seeds import read_queries
from experiments import cli
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic

SAFE_KEYS = (
    *("workers", "actor.timeout_s", "actor.calls", "actor.cap_usd"),
    *("actor.requests_per_minute", "actor.tokens_per_minute"),
)


def main(config: ConfigDict, workdir: Path) -> None:
    """Writes the tasks and then the report, whose presence means that the stage is done."""
    if (workdir / "report.json").exists():
        return
    start, settings = time.monotonic(), config.to_dict()
    if not settings["queries"]:
        raise UserError("config.queries is empty: give a file of search queries, one a line")
    path = Path(settings["queries"])
    queries = read_queries(path)
    if queries.bad:
        print(f"warning: {queries.warning(path)}", file=sys.stderr, flush=True)
    # Before the first call: a benchmark's file that cannot be read is not to cost a run.
    questions = read_questions(settings["benchmarks"])
    index = BenchmarkIndex(questions, Thresholds(**settings["thresholds"])) if questions else None
    model = make_model(ActorConfig(**settings["actor"]).resolve(), workdir / LEDGER)
    written = write_tasks((query for _, query in queries.good), model, workdir, settings["workers"])
    published = publish_tasks(queries, written, index, workdir)
    with contextlib.closing(Ledger(workdir / LEDGER)) as ledger:
        calls, spent = ledger.totals(), ledger.spent()
    report = {
        "stage": "make_tasks",
        "seconds": round(time.monotonic() - start, 1),
        "model": model.name,
        **published,
        "questions": len(questions),
        "calls": calls,
        "cost_usd": round(spent, 6),
    }
    write_atomic(workdir / "report.json", json.dumps(report, indent=1).encode())


if __name__ == "__main__":
    cli.run(main, "configs/make_tasks.py:paper", SAFE_KEYS)
