"""Plays every task of a benchmark several times with one policy (RMSWeb, section 4)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from collection import fleet
from collection.evaluation.benchmarks.base import Benchmark
from collection.evaluation.results import Results, gather_results
from collection.evaluation.task_results import KEPT_OUT, NEVER_DONE
from collection.fleet import FleetConfig
from collection.judges.base import unjudged
from collection.policy_server import acting
from collection.rounds import Job
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import Trajectory

# What was begun here, and what judges are told of its tasks, for judging the runs once more.
BEGUN, NOTES = "benchmark.json", "notes.jsonl"


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """Outcomes, samples to be looked at apart, and seconds over this run and those it resumed."""

    results: Results
    apart: dict[str, list[str]]
    seconds: float


def begin(benchmark: Benchmark, workdir: Path) -> dict[str, Any]:
    """Writes what is evaluated to `BEGUN` and `NOTES`, or checks that a run that is resumed asks the same.

    Returns:
      Of the benchmark: its name, files with rows and SHA-256, tasks, excluded tasks.

    Raises:
      UserError: the workdir was begun with other tasks.
    """
    asked = hashlib.sha256()
    for task in benchmark.tasks:
        notes = benchmark.notes.get(task.task_id)
        asked.update(f"{task.model_dump_json()}{notes.model_dump_json() if notes else ''}\n".encode())
    about = {
        "benchmark": benchmark.name,
        "tasks": len(benchmark.tasks),
        "sites": len({task.site for task in benchmark.tasks}),
        "excluded": len(benchmark.excluded),
        "with_reference": sum(note.reference is not None for note in benchmark.notes.values()),
        "with_rubric": sum(bool(note.rubric) for note in benchmark.notes.values()),
        "files": [dataclasses.asdict(file) for file in benchmark.files],
        "tasks_sha256": asked.hexdigest(),
    }
    path = workdir / BEGUN
    if path.exists() and json.loads(path.read_bytes()) != about:
        raise UserError(f"{path}: this run was begun with other tasks; use the old file or another --workdir")
    lines = [json.dumps({"task_id": name, **note.model_dump()}) for name, note in benchmark.notes.items()]
    if lines:
        write_atomic(workdir / NOTES, "".join(f"{line}\n" for line in lines).encode())
    write_atomic(path, (json.dumps(about, indent=1) + "\n").encode())
    return about


def evaluate(benchmark: Benchmark, runs: int, config: FleetConfig, workdir: Path) -> Evaluated:
    """Plays all tasks exactly `runs` times each; what an earlier run finished is not played again.

    Attempts of a task differ in their sampling seeds alone, which depend on the task, the attempt and
    the step. The trajectories become the data set `workdir`.

    Raises:
      UserError: no browser, no server, a model folder that cannot be served, ...
    """
    jobs = [Job(task, attempts=runs) for task in benchmark.tasks]
    with acting(config.worker.actor, workdir / "server") as actor:
        played = fleet.run_tasks(jobs, workdir, config.with_actor(actor), "evaluate")
    label, model = actor.label, next(played.trajectories()).model
    results = gather_results(
        label, model, runs, played.trajectories(), benchmark=benchmark.name, levels=benchmark.levels
    )
    return Evaluated(results, set_apart(played.trajectories()), played.seconds)


def set_apart(trajectories: Iterable[Trajectory]) -> dict[str, list[str]]:
    """Ids of samples that somebody may want to look at apart, by why.

    Returns:
      Failures: `never_done`, a limit ended it before the policy said that it was done; `unjudged`, it said so
      and nobody could tell whether it was right; `kept_out`, the site, the network or the machine ended it.
      And `retried`, whatever came of them: begun again after their browser or worker was lost.
    """
    apart: dict[str, list[str]] = {"never_done": [], "unjudged": [], "kept_out": [], "retried": []}
    for run in trajectories:
        if run.retries:
            apart["retried"].append(run.trajectory_id)
        if run.outcome in NEVER_DONE:
            apart["never_done"].append(run.trajectory_id)
        elif run.outcome in KEPT_OUT:
            apart["kept_out"].append(run.trajectory_id)
        elif unjudged(run):
            apart["unjudged"].append(run.trajectory_id)
    return apart
