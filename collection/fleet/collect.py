"""Collects trajectories: a teacher or a policy plays tasks in real browsers, in reflective rounds."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from collection.environments.miniwob import make_task
from collection.environments.sites import Sites, check_places
from collection.fleet.config import CollectSettings, resolved
from collection.fleet.fleet import run_tasks
from collection.fleet.live import check_live
from collection.fleet.policy_server import serve_actor
from collection.fleet.rounds import Job, reflection_report, yield_report
from collection.fleet.run import RunResult
from collection.fleet.scheduler import REFUSED
from collection.judges.build import judge_config
from collection.judges.config import JudgeSettings
from collection.llm.calls import CALLS, Calls
from collection.tasks.files import read_tasks
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.bucket import REPORT, freeze
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.episodes import EPISODES
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import Task, Trajectory
from rmsweb_jax.settings import from_config, safe_keys
from rmsweb_jax.storage import local_path, parse_path
from rmsweb_jax.workdir import open_workdir, run_settings, run_stage

_ELSEWHERE = "its data set stays as it is: play these tasks with another --workdir"


def collect(
    settings: CollectSettings | ConfigDict | Mapping[str, Any], workdir: str | os.PathLike[str]
) -> dict[str, Any]:
    """Plays all rounds of all tasks; calling it again resumes.

    The workdir becomes a data set folder of trajectories with their screenshots. Guidance is stored
    separately in `reflections.jsonl`. `report.json` is written last; its existence marks the stage as done.

    Args:
      settings: such as `configs.collect.get_config("demo")`.

    Returns:
      The report: the actor, and the yield.

    Raises:
      UserError: no tasks, or none that can be played; no browser; an actor or a policy that cannot be used;
        or a workdir that was begun with other settings.
    """
    settings, path = from_config(CollectSettings, settings), parse_path(str(workdir), "workdir")
    if not settings.fleet.retry_set_aside:
        return run_stage(_collect, settings, workdir)
    if not isinstance(path, Path):
        raise UserError(f"config.fleet.retry_set_aside: {path} is in a bucket; {_ELSEWHERE}")
    with open_workdir(path, run_settings(settings), safe_keys(CollectSettings)):
        report = path / REPORT
        # A finished run goes on with the tasks that it has set aside.
        if report.exists() and json.loads(report.read_bytes()).get("set_aside"):
            if not (path / EPISODES).exists():
                raise UserError(f"config.fleet.retry_set_aside: {path} has no {EPISODES}; {_ELSEWHERE}")
            report.unlink()
        return run_stage(_collect, settings, path)


def _collect(settings: CollectSettings, workdir: Path) -> dict[str, Any]:
    tasks = _tasks(settings, workdir)
    check_places(tasks, settings.applications)
    live = [task for task in tasks if task.environment == "web"]
    if not live:
        # All other environments have a reward of their own.
        settings = settings.model_copy(update={"judge": JudgeSettings()})
    settings = resolved(settings)
    judge = judge_config(settings.judge, settings.actor, {})
    check_live(live, settings.guard, settings.browser.storage_state)
    if live and judge is None:
        print("config.judge.kind=none: no episode on live pages will count as a success", file=sys.stderr)
    rounds, reflective = settings.rounds, settings.reflection
    jobs = [Job(task, rounds, settings.stop_after, reflective) for task in tasks]
    with serve_actor(settings.actor, workdir / "server", settings.fleet.engine == "ray") as actor:
        settings = settings.model_copy(update={"actor": actor})
        played = run_tasks(jobs, workdir, settings, judge, "collect")
    _check_played(played)
    report = {
        "stage": "collect",
        "seconds": round(played.seconds, 1),
        "teacher": actor.kind,
        "actor": actor.label,
        "model": next(played.trajectories()).model,
        "reflection": reflective,
        **yield_report(played.trajectories(), rounds),
        "set_aside": dict(played.set_aside.most_common()),
        **reflection_report(played.reflections),
        "model_calls": _model_calls(workdir / CALLS),
    }
    write_atomic(workdir / "report.json", json.dumps(report, indent=1).encode())
    return report


def _check_played(played: RunResult) -> None:
    """Raises `UserError` if every episode was refused: there is nothing to learn from."""
    outcomes, detail = Counter[str](), ""
    for one in played.trajectories():
        if one.outcome not in REFUSED:
            return
        outcomes[one.outcome] += 1
        detail = detail or f"{one.task.task_id}: {one.detail}"
    counts = ", ".join(f"{name} {count}" for name, count in outcomes.most_common())
    raise UserError(
        f"{played.folder}: no task could be played ({counts}); first {detail}: correct the cause, "
        "and run again with another --workdir"
    )


def _model_calls(path: Path) -> dict[str, Any]:
    """Returns calls and their cost by purpose; empty for a teacher that is not a model."""
    if not path.exists():
        return {}
    with Calls(path) as calls:
        return calls.totals()


def _tasks(settings: CollectSettings, workdir: Path) -> list[Task]:
    if settings.tasks_file:
        path = local_path(settings.tasks_file, "config.tasks_file")
        lines = read_tasks(path)
        if lines.bad:
            print(lines.warning(path), file=sys.stderr)
        return [task for _, task in lines.good]
    if settings.tasks_from:
        folder = freeze(parse_path(settings.tasks_from, "config.tasks_from"), workdir)
        source = read_dataset(folder, Trajectory)
        return list({trajectory.task.task_id: trajectory.task for trajectory in source}.values())
    sites = Sites(settings.applications, settings.apps_folder)
    # Seed by seed, so that partial results cover every page. A site may give a task for several seeds.
    tasks: dict[str, Task] = {}
    for seed in range(settings.first_seed, settings.first_seed + settings.seeds):
        made = (*(make_task(page, seed) for page in settings.pages), *sites.tasks(seed))
        tasks |= {task.task_id: task for task in made}
    if not tasks:
        raise UserError(
            "no tasks: set config.pages or config.applications, and config.seeds; or config.tasks_from=DIR; "
            "or config.tasks_file=FILE"
        )
    return list(tasks.values())
