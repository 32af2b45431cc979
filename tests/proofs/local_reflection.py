"""A small language model as teacher, with the guidance of its own reflections and without. Two hours.

SERVER=http://127.0.0.1:18080/v1 and MODEL=name are of a server with a context of 16,384 tokens
(docs/local_models.md).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.schema import Trajectory
from tests.proofs.arms import interval, points
from tests.proofs.local_teacher import PAGES, SEEDS, STEPS
from tests.proofs.page import Check, publish, stage, table

FOLDER = Path("runs/local_reflection")
ROUNDS = 5
ARMS = {"with": True, "without": False}


def rounds_of(arm: str) -> dict[str, int]:
    """The round in which each task was solved; one more than there are for a task that never was."""
    found: dict[str, int] = {}
    for run in read_dataset(FOLDER / arm, Trajectory):
        task = run.task.task_id
        found[task] = min(found.get(task, ROUNDS + 1), run.attempt if run.success else ROUNDS + 1)
    return found


def main() -> None:
    model, server = os.environ.get("MODEL"), os.environ.get("SERVER")
    if not (model and server):
        raise SystemExit("error: name the model and its server: MODEL=name SERVER=http://127.0.0.1:18080/v1")
    limits = {"pages": repr(PAGES), "seeds": SEEDS, "rounds": ROUNDS, "limits.max_steps": STEPS}
    for arm, reflection in ARMS.items():
        settings = {"actor.model": model, "actor.base_url": server, "reflection": reflection, **limits}
        stage("collect", "local", FOLDER / arm, **settings)
    solved = {arm: rounds_of(arm) for arm in ARMS}
    tasks = sorted(solved["with"])
    by_round = {
        arm: np.asarray([[found[task] <= number for task in tasks] for number in range(1, ROUNDS + 1)], float)
        for arm, found in solved.items()
    }
    # Of tasks that both arms have failed in the first round: the others have no guidance.
    failed = [at for at, task in enumerate(tasks) if min(solved[arm][task] for arm in ARMS) > 1]
    gains = [interval(one) for one in by_round["with"] - by_round["without"]]
    late = interval((by_round["with"] - by_round["without"])[-1:, failed]) if failed else None
    figures: dict[str, Any] = {
        "tasks": len(tasks),
        "failed in round 1 of both": len(failed),
        "solved": {arm: one.sum(1).tolist() for arm, one in by_round.items()},
        "gain": gains,
        "gain of the failed": late,
    }
    rows = [
        {
            "solved by round": number,
            "with": f"{by_round['with'][number - 1].sum():.0f} of {len(tasks)}",
            "without": f"{by_round['without'][number - 1].sum():.0f} of {len(tasks)}",
            "points": points(gain),
        }
        for number, gain in enumerate(gains, 1)
    ]
    checks: list[Check] = [
        (f"points by round {ROUNDS}", points(gains[-1]), None),
        (
            f"of the {len(failed)} tasks that both fail in round 1",
            points(late) if late else "none",
            None,
        ),
    ]
    about = f"""\
**Baseline:** the same rounds without guidance. No positive control: nothing shows that this model can use
any advice.

{model} plays {len(PAGES)} pages of MiniWoB++, {SEEDS} seeds each, at most {ROUNDS} rounds of {STEPS} steps
until a task is solved. *With*, the same model reflects on each round and the next one has its guidance.
Intervals of 95 % resample tasks; there is one run of each."""
    publish("local_reflection", "Reflection by a small local model", about, figures, checks, table(rows))


if __name__ == "__main__":
    main()
