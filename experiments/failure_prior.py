"""Names the failure mode of every pair of runs of a development split and counts them.

    python -m experiments.failure_prior --config=configs/failure_prior.py:paper \
        --config.pools=runs/dev/collect_policy,runs/dev/collect \
        --config.benchmarks.webvoyager=WebVoyager_data.jsonl --workdir=runs/dev/failure_prior

The workdir gets `labels.jsonl` (every pair with the model's answers as they came), `calls.jsonl` with what
each call took and what was answered, and last `report.json`, which is also printed as a table. A split
that holds a benchmark's task is refused. The same command again resumes.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

from collection.evaluation.benchmarks import read_questions
from collection.llm.build import make_model
from collection.llm.calls import CALLS, Calls
from collection.mining.config import FailurePriorSettings
from collection.mining.label import FailureLabeler, map_threads
from collection.mining.mine import pool_folders
from collection.mining.prior import (
    label_lines,
    prior_table,
    read_split,
    refuse_benchmark_tasks,
    summarize_prior,
)
from collection.mining.runs import RunPair
from collection.mining.taxonomy import FailureLabel, rule_label
from collection.tasks.contamination import BenchmarkIndex
from experiments import cli
from rmsweb_jax.progress import Progress
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import Trajectory


def main(settings: FailurePriorSettings, workdir: Path) -> None:
    """Writes the labels and then the report, whose presence means that the stage is done."""
    path = workdir / "report.json"
    if not path.exists():
        report = count_modes(settings, workdir)
        write_atomic(path, json.dumps(report, indent=1).encode())
    print(prior_table(json.loads(path.read_text())))


def count_modes(settings: FailurePriorSettings, workdir: Path) -> dict[str, Any]:
    """Labels all pairs; returns the report.

    Raises:
      UserError: a task of the split is a benchmark's; or nothing can be labelled.
    """
    start = time.monotonic()
    pools = pool_folders(settings.pools)
    questions = read_questions(dict(settings.benchmarks))
    if not questions:
        print("warning: config.benchmarks is empty: nothing was checked", file=sys.stderr, flush=True)
    tasks, pairs = read_split(itertools.chain.from_iterable(read_dataset(pool, Trajectory) for pool in pools))
    # Before the first call: a split that may not be used is not to cost a run.
    refuse_benchmark_tasks(tasks, BenchmarkIndex(questions))
    labels, made = _label(pairs, settings, workdir)
    write_atomic(
        workdir / "labels.jsonl", "".join(f"{line}\n" for line in label_lines(pairs, labels)).encode()
    )
    return {
        "stage": "failure_prior",
        "seconds": round(time.monotonic() - start, 1),
        "pools": [str(pool) for pool in pools],
        "tasks": len(tasks),
        "contamination_checked": bool(questions),
        "questions": len(questions),
        **summarize_prior(pairs, labels),
        **made,
    }


def _label(
    pairs: list[RunPair], settings: FailurePriorSettings, workdir: Path
) -> tuple[list[FailureLabel], dict[str, Any]]:
    """The label of each pair, and for the report how they were made."""
    if settings.actor.kind == "none":
        rules: list[FailureLabel] = [rule_label(pair.success, pair.localization) for pair in pairs]
        return rules, {"model": "rules", "calls": {}, "cost_usd": 0.0}
    progress = Progress(workdir, "failure_prior", total=len(pairs))
    with Calls(workdir / CALLS) as calls:
        labeler = FailureLabeler(make_model(settings.actor.resolve(), calls))
        labels: list[FailureLabel] = map_threads(
            lambda pair: labeler.label(pair.success, pair.localization),
            pairs,
            settings.workers,
            progress.update,
        )
        progress.close()
        made = {"model": labeler.name, "requests": labeler.requests, "calls": calls.totals()}
        return labels, made | {"cost_usd": round(calls.spent(), 6)}


if __name__ == "__main__":
    cli.run(main, "configs/failure_prior.py:paper", FailurePriorSettings)
