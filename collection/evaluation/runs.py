"""Plays every task of a benchmark several times with one policy (RMSWeb, section 4)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from collection.environments.sites import check_places
from collection.environments.web import website_url
from collection.evaluation.benchmarks import Benchmark, load_benchmark
from collection.evaluation.config import EvaluateSettings, RefreshSettings, evaluate_settings
from collection.evaluation.contaminated import contamination_report
from collection.evaluation.dates import refresh_benchmark
from collection.evaluation.results import (
    NEVER_DONE,
    Results,
    gather_results,
    missing_runs,
    score,
    to_json,
)
from collection.fleet.config import EpisodeSettings, resolved
from collection.fleet.fleet import run_tasks
from collection.fleet.live import check_live
from collection.fleet.policy_server import serve_actor
from collection.fleet.rounds import Job
from collection.judges.base import KEPT_OUT, fate
from collection.judges.build import JudgeConfig, judge_config, judge_model
from collection.llm.build import make_model
from collection.llm.calls import CALLS, Calls
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import Task, Trajectory
from rmsweb_jax.storage import AnyPath, parse_path
from rmsweb_jax.workdir import run_stage

# Description of the evaluation, and notes for judges, so that its runs can be judged again later.
BEGUN, NOTES = "benchmark.json", "notes.jsonl"


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """Outcomes, ids of runs to report separately, and seconds over this run and those it resumed."""

    results: Results
    apart: dict[str, list[str]]
    seconds: float


def evaluate(
    settings: EvaluateSettings | ConfigDict | Mapping[str, Any], workdir: str | os.PathLike[str]
) -> dict[str, Any]:
    """Plays every task of a benchmark several times with one policy; calling it again resumes.

    The workdir becomes a data set folder of trajectories; `results.jsonl` has every run, and
    `date_refresh.jsonl` every prompt whose dates a user or a model has seen to. `report.json` has the rates
    with their intervals; it is written last and says that the stage is done.

    Args:
      settings: such as `configs.evaluate.get_config("demo")`, with `model` and `label`.

    Returns:
      The report.

    Raises:
      UserError: no run has a result (calling it again plays them again); a file of the benchmark, a date, the
        browser or the policy cannot be used, or the workdir belongs to a run with other settings.
    """
    return run_stage(_evaluate, evaluate_settings(settings), workdir)


def _evaluate(settings: EvaluateSettings, workdir: Path) -> dict[str, Any]:
    benchmark = load_benchmark(settings)
    # Before the first call and episode, so that errors in these do not appear only after the last one.
    settings = resolved(settings)
    judge = judge_config(settings.judge, settings.actor, benchmark.notes)
    refreshed = None
    if settings.refresh is not None:
        benchmark, refreshed = _refresh(benchmark, settings, settings.refresh, workdir)
        if judge is not None:
            # Rubrics have the new dates; whether reference answers are shown is decided.
            hidden = {} if settings.judge.reference else {"reference": None}
            notes = {task: one.model_copy(update=hidden) for task, one in benchmark.notes.items()}
            judge = dataclasses.replace(judge, notes=notes)
    check_places(benchmark.tasks, settings.applications)
    live = [task for task in benchmark.tasks if task.environment == "web"]
    check_live(live, settings.guard, settings.browser.storage_state)
    contamination = contamination_report(benchmark, _paths(settings.training))
    if repeated := repeated_tasks(benchmark.tasks):
        print(
            f"{sum(map(len, repeated)) - len(repeated)} tasks repeat the start page and words of another one "
            f"({' and '.join(repeated[0][:2])}): each counts, so intervals are too narrow",
            file=sys.stderr,
            flush=True,
        )
    about = begin(benchmark, workdir)
    evaluated = play_benchmark(benchmark, settings.runs, settings, judge, workdir, settings.replays)
    scores = score(evaluated.results)
    if scores["missing"] == evaluated.results.has_result.size:
        causes = Counter[str]()
        for some in scores["causes"].values():
            causes.update(some)
        often = "".join(f"; most often: {cause}" for cause, _ in causes.most_common(1))
        raise UserError(
            f"{workdir}: no run has a result: {missing_runs(scores)}{often}; run the same command again to "
            "play them again"
        )
    evaluated.results.write(workdir)
    report = {
        "stage": "evaluate",
        "seconds": round(evaluated.seconds, 1),
        "temperature": settings.actor.temperature,
        **scores,
        "benchmark": about,
        "date_refresh": refreshed,
        "contamination": contamination,
        "apart": evaluated.apart,
    }
    write_atomic(workdir / "report.json", to_json(report))
    return report


def repeated_tasks(tasks: Sequence[Task]) -> list[list[str]]:
    """Returns the ids of tasks with the same start page and words, up to case and spaces.

    Tasks whose words come from their page are left out.
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for task in tasks:
        if task.objective:
            words = " ".join(task.objective.casefold().split())
            alike.setdefault((website_url(task), words), []).append(task.task_id)
    return [names for names in alike.values() if len(names) > 1]


def begin(benchmark: Benchmark, workdir: Path) -> dict[str, Any]:
    """Writes `BEGUN` and `NOTES`, or checks that a resumed run has the same tasks and notes.

    Returns:
      The benchmark's name, files with rows and SHA-256, and numbers of tasks and excluded tasks.

    Raises:
      UserError: the workdir belongs to a run with other tasks.
    """
    # Over prompts and notes: two evaluations are comparable only if both are equal.
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
        "own_rows": benchmark.own_rows,
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


def play_benchmark(
    benchmark: Benchmark,
    runs: int,
    settings: EpisodeSettings,
    judge: JudgeConfig | None,
    workdir: Path,
    replays: int = 0,
) -> Evaluated:
    """Plays all tasks exactly `runs` times each; episodes that an earlier run finished are not played again.

    Those that site, network or machine ended are, up to `replays` times each.

    Attempts at a task differ only in their sampling seeds, which depend on the task, the attempt and the
    step. The trajectories become the data set `workdir`.

    Raises:
      UserError: no browser, no server, a model folder that cannot be served, ...
    """
    jobs = [Job(task, attempts=runs, replays=replays) for task in benchmark.tasks]
    with serve_actor(settings.actor, workdir / "server", settings.fleet.engine == "ray") as actor:
        settings = settings.model_copy(update={"actor": actor})
        played = run_tasks(jobs, workdir, settings, judge, "evaluate")
    label, model = actor.label, next(played.trajectories()).model
    results = gather_results(
        label, model, runs, played.trajectories(), benchmark=benchmark.name, levels=benchmark.levels
    )
    return Evaluated(results, set_apart(played.trajectories()), played.seconds)


def set_apart(trajectories: Iterable[Trajectory]) -> dict[str, list[str]]:
    """Returns ids of samples to report separately, by reason.

    Returns:
      Failures: `never_done`, a limit ended the run before the policy declared itself done; `unjudged`, the
      policy declared success and there is no verdict; `kept_out`, the site, the network or the machine ended
      the run. And `retried`, with any outcome: runs restarted after their browser or worker was lost.
    """
    apart: dict[str, list[str]] = {"never_done": [], "unjudged": [], "kept_out": [], "retried": []}
    for run in trajectories:
        if run.retries:
            apart["retried"].append(run.trajectory_id)
        if run.outcome in NEVER_DONE:
            apart["never_done"].append(run.trajectory_id)
        elif fate(run) in KEPT_OUT:
            apart["kept_out"].append(run.trajectory_id)
        elif fate(run) == "unjudged":
            apart["unjudged"].append(run.trajectory_id)
    return apart


def _refresh(
    benchmark: Benchmark, settings: EvaluateSettings, refresh: RefreshSettings, workdir: Path
) -> tuple[Benchmark, dict[str, Any]]:
    if refresh.ask and settings.judge.kind == "none":
        raise UserError("config.refresh.ask asks the judge's model, and config.judge.kind is 'none'")
    with Calls(workdir / CALLS) as calls:
        model = None
        if refresh.ask:
            model = make_model(judge_model(settings.judge, settings.actor.resolve(), "judge"), calls)
        return refresh_benchmark(benchmark, refresh, model, workdir)


def _paths(text: str) -> list[AnyPath]:
    return [parse_path(name.strip(), "config.training") for name in text.split(",") if name.strip()]
