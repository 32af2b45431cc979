"""What online RL on four pages forgets of the others, by its loss. A quarter of an hour an arm and seed.

After `make demo`. Each run is kept in docs/results/keeping; ARMS="plain;replay 1" SEEDS=2 chooses them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from collection.evaluation.results import load_results
from configs.collect import PAGES
from configs.rl import ONLINE_PAGES
from experiments.stages import Chain, Stage, run_stages
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.training.metrics import METRICS_FILE, read_rows
from tests.proofs.bootstrap import crossed_bootstrap
from tests.proofs.page import DEMO, RESULTS, Check, demo_run, publish, table

ROOT, KEPT = Path("runs/proofs/keeping"), RESULTS / "keeping"
SFT = "sft"
_HIGH = 3e-3
_REPLAY = {"replay": DEMO / "sft_corpus", "replay_samples": 4}
_KL = {**_REPLAY, "objective.replay_kl": 1.0, "learning_rate": 1e-3}
_TEACHER = {"play.teacher.kind": "scripted", "objective.salvage_weight": 0.1}
# What differs from the demo's online run; unless it names a rate, it has the one at which policies forget.
ARMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rate 1e-3": {"learning_rate": 1e-3},
    "KL 0.1": {"objective.kl_coef": 0.1},
    "failures 0.3": {"negative_weight": 0.3},
    "own successes": {"anchor_solved": True, "objective.salvage_weight": 0.1},
    "replay 0.1": {**_REPLAY, "objective.replay_weight": 0.1},
    "replay 1": {**_REPLAY, "objective.replay_weight": 1.0},
    "KL on replay 0.1": {**_REPLAY, "objective.replay_kl": 0.1},
    "KL on replay 1": {**_REPLAY, "objective.replay_kl": 1.0},
    "replay 1 at 1e-3": {**_REPLAY, "objective.replay_weight": 1.0, "learning_rate": 1e-3},
    "KL on replay 1 at 1e-3": _KL,
    "KL on replay 1 at 1e-3, teacher": {**_KL, **_TEACHER},
    "all pages at 1e-3": {"pages": PAGES, "tasks_by": "learnability", "learning_rate": 1e-3},
}
CHOSEN = os.environ.get("ARMS", ";".join(ARMS)).split(";")
SEEDS = tuple(range(1, 1 + int(os.environ.get("SEEDS", "2"))))


def name_of(arm: str, seed: int) -> str:
    return f"{arm.replace(',', '').replace(' ', '_')}-{seed}"


def evaluation(label: str, model: Path) -> Stage:
    settings = (f"--config.label={label}", f"--config.model={model}", "--config.runs=1")
    given = ("--config=configs/evaluate.py:demo", *settings)
    return Stage(f"evaluate/{label}", ROOT / "evaluate" / label, "experiments.evaluate", given)


def chain(arm: str, seed: int) -> Chain:
    """A training and the evaluation of its policy."""
    name = name_of(arm, seed)
    changed = {"model": DEMO / "sft/export", "prompts": DEMO / "mine/prompts", "seed": seed}
    changed |= {"learning_rate": _HIGH, **ARMS[arm]}
    settings = [f"--config.{key}={value}" for key, value in changed.items()]
    online = ("--config=configs/rl.py:online", *settings)
    trained = Stage(name, ROOT / name, "experiments.train_rl", online)
    return Chain(name, (trained, evaluation(name, trained.folder / "export")))


def keep(name: str) -> None:
    found = load_results(ROOT / "evaluate" / name).by_task("success")
    kept: dict[str, Any] = {"solved": {task: float(np.mean(won)) for task, won in found.items()}}
    if (ROOT / name).exists():
        rows = read_rows(ROOT / name / METRICS_FILE)
        for key in ("reward/mean", "kl_ref", "replay/loss", "replay/kl", "time/rollout", "time/update"):
            kept[key] = [round(row[key], 4) for row in rows if key in row]
    KEPT.mkdir(exist_ok=True)
    write_atomic(KEPT / f"{name}.json", json.dumps(kept, indent=1).encode())


def play() -> None:
    chains = [Chain(SFT, (evaluation(SFT, DEMO / "sft/export"),))]
    chains += [chain(arm, seed) for seed in SEEDS for arm in CHOSEN]
    todo = [one for one in chains if not (KEPT / f"{one.name}.json").exists()]
    if todo:
        demo_run()
    for one in todo:
        for end in run_stages([one], DEMO / ".jax_cache"):
            if end.error:
                raise SystemExit(f"error: {end.error}")
            if end.last:
                keep(one.name)
                print(one.name, flush=True)


def minus(runs: Sequence[Mapping[str, Any]], base: Mapping[str, Any], played: bool) -> dict[str, float]:
    """Points of policies over SFT on some pages, with an interval over trainings and tasks."""
    tasks = sorted(task for task in base["solved"] if (task.split("/")[1] in ONLINE_PAGES) == played)
    apart = [[run["solved"][task] - base["solved"][task] for task in tasks] for run in runs]
    found = crossed_bootstrap(100 * np.asarray(apart, float))
    assert found is not None
    return {"mean": found.mean, "low": found.low, "high": found.high}


def main() -> None:
    play()
    kept = {path.stem: json.loads(path.read_bytes()) for path in sorted(KEPT.glob("*.json"))}
    arms = {
        arm: runs
        for arm in ARMS
        if (runs := [kept[name] for seed in range(1, 10) if (name := name_of(arm, seed)) in kept])
    }
    figures: dict[str, Any] = {}
    rows = []
    for arm, runs in arms.items():
        points = {where: minus(runs, kept[SFT], where == "played") for where in ("played", "other")}
        rest = {
            "seeds": len(runs),
            "last reward": float(np.mean([run["reward/mean"][-1] for run in runs])),
            "last kl_ref": float(np.mean([run["kl_ref"][-1] for run in runs])),
            "seconds of updates": float(np.mean([sum(run["time/update"]) for run in runs])),
        }
        figures[arm] = points | rest
        rows.append({"arm": arm, **{where: _points(one) for where, one in points.items()}, **rest})
    plain = figures["plain"]
    kept_best = max(figures, key=lambda arm: figures[arm]["other"]["mean"])
    checks: list[Check] = [
        (
            "control: the plain run forgets; its interval on the other pages is below 0",
            _points(plain["other"]),
            plain["other"]["high"] < 0,
        ),
        (
            "and it learns: above 0 on the pages that it plays",
            _points(plain["played"]),
            plain["played"]["low"] > 0,
        ),
        (
            f"some arm keeps the other pages (-3 or more, above -6); the best is {kept_best}",
            _points(figures[kept_best]["other"]),
            figures[kept_best]["other"]["mean"] >= -3 and figures[kept_best]["other"]["low"] > -6,
        ),
    ]
    about = f"""\
The SFT policy plays {len(ONLINE_PAGES)} pages and learns (`configs/rl.py:online`); it is then evaluated
on 10 held-out seeds of all 15 pages, once. An arm changes what is in its name: the learning rate ({_HIGH:g}
otherwise), the KL term on what is played (1e-3), the weight of failures (0), an anchor on the shortest
success of a solved group, and {_REPLAY["replay_samples"]} replayed actions of the SFT corpus in each step,
with the weight of their cross-entropy or of their KL term.

Written before the runs: the outcome is the mean over the pages that are not played, minus SFT's; the goal is
-3 points with an interval above -6. The plain run is the control: if it forgets nothing, no arm can show that
it keeps. Points over SFT, with 95 % intervals over trainings and tasks.
"""
    publish("keeping", "What online training forgets", about, {"arms": figures}, checks, table(rows))


def _points(one: Mapping[str, float]) -> str:
    return f"{one['mean']:+.1f} ({one['low']:+.1f} to {one['high']:+.1f})"


if __name__ == "__main__":
    main()
