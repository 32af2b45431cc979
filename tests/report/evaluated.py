"""Evaluation folders as `experiments.evaluate` leaves them, of policies with known chances."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from collection.evaluation.results import Results, to_json
from collection.evaluation.task_results import TaskResult
from rmsweb_jax.records.schema import JudgeFingerprint

REWARD = JudgeFingerprint(method="reward")


def make_results(
    label: str,
    benchmark: str,
    chance: float,
    *,
    tasks: range = range(40),
    runs: int = 3,
    seed: int = 0,
    cost: float = 0.01,
    unjudged: int = 0,
) -> Results:
    """Two sites, two kinds and two levels, each with half of the tasks.

    Args:
      unjudged: of the first so many tasks the first run could not be judged.
    """
    wins = np.random.default_rng(seed).random((1000, runs)) < chance
    rows = []
    for number in tasks:
        judged = [not (number < unjudged and run == 0) for run in range(runs)]
        won = [bool(wins[number, run]) and judged[run] for run in range(runs)]
        rows.append(
            TaskResult(
                task_id=f"{benchmark}/{number}",
                site=f"site-{number % 2}.example",
                successes=tuple(won),
                steps=tuple(4 + (number + run) % 5 for run in range(runs)),
                outcomes=tuple("done" if one else "max_steps" for one in won),
                trajectory_ids=tuple(f"{benchmark}/{number}#{label}-{run + 1}" for run in range(runs)),
                kind=("Buy_it", "Find it")[number // 2 % 2],
                level=("easy", "hard")[number // 4 % 2],
                judged=tuple(judged),
                prompt_tokens=(20_000,) * runs,
                response_tokens=(500,) * runs,
                costs=(cost,) * runs,
                judge_costs=(0.0,) * runs,
            )
        )
    return Results(
        label=label, model="m", runs=runs, tasks=tuple(rows), benchmark=benchmark, judges=(REWARD,)
    )


def write_evaluation(folder: Path, results: Results, **more: Any) -> Path:
    """Writes an evaluation with `more` in its report."""
    folder.mkdir(parents=True)
    write_results(folder, results, **more)
    return folder


def write_results(folder: Path, results: Results, **more: Any) -> None:
    """Writes what an evaluation leaves next to its runs."""
    (folder / "results.json").write_bytes(to_json(results.model_dump(mode="json")))
    # Of a report only this is read: all rates are computed anew.
    report = {"stage": "evaluate", "tasks": len(results.tasks), "runs": results.runs, **more}
    (folder / "report.json").write_bytes(to_json(report))


def named(folders: dict[str, list[Path]]) -> str:
    """The value of `config.results`."""
    return ",".join(f"{label}={folder}" for label, all_ in folders.items() for folder in all_)


def read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())
