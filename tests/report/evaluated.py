"""Evaluation folders as `experiments.evaluate` leaves them, of policies with known chances."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from collection.evaluation.results import Results, to_json
from tests.evaluation.made import results


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
    judged = np.arange(1000)[:, None] >= np.array([unjudged, *[0] * (runs - 1)])
    numbers = list(tasks)

    def field(task: int, run: int) -> dict[str, Any]:
        number = numbers[task]
        return {
            "task_id": f"{benchmark}/{number}",
            "site": f"site-{number % 2}.example",
            "outcome": "done" if (wins & judged)[number, run] else "max_steps",
            "steps": 4 + (number + run) % 5,
            "kind": ("Buy_it", "Find it")[number // 2 % 2],
            "level": ("easy", "hard")[number // 4 % 2],
            "judged": bool(judged[number, run]),
            "prompt_tokens": 20_000,
            "response_tokens": 500,
            "cost": cost,
        }

    return results(label, (wins & judged)[numbers].tolist(), field, benchmark)


def write_evaluation(folder: Path, made: Results, **more: Any) -> Path:
    """Writes an evaluation with `more` in its report."""
    folder.mkdir(parents=True)
    write_results(folder, made, **more)
    return folder


def write_results(folder: Path, made: Results, **more: Any) -> None:
    """Writes what an evaluation leaves next to its runs."""
    made.write(folder)
    # Of a report only this is read: all rates are computed anew.
    report = {"stage": "evaluate", "tasks": len(made.tasks), "runs": made.runs, **more}
    (folder / "report.json").write_bytes(to_json(report))


def named(folders: dict[str, list[Path]]) -> str:
    """The value of `config.results`."""
    return ",".join(f"{label}={folder}" for label, all_ in folders.items() for folder in all_)


def read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())
