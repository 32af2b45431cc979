"""Policies trained on what was collected with reflection and without: steps and success. 75 minutes.

ARMS=with,without SEEDS=2 chooses what is run; docs/results/reflection_policies has what each run has given.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collection.evaluation.statistics import RESAMPLES
from experiments.stages import Chain, Stage
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.schema import SftSample, Trajectory
from tests.proofs.arms import Study, interval, name_of, percent, points, values
from tests.proofs.page import Check, named, publish, table

STUDY = Study("reflection_policies")
# Tasks of several steps, or of several pages.
PAGES = (
    "click-checkboxes",
    "enter-password",
    "login-user",
    "navigate-tree",
    "search-engine",
    "use-autocomplete",
)
TASK_SEEDS, EVAL_SEEDS, RUNS, PLANNED = 40, 15, 2, 5
RATE = 0.6
ARMS: dict[str, dict[str, Any]] = {
    "with": {"mistakes": RATE},
    "without": {"mistakes": RATE, "reflection": False},
    # The control: reflection cannot make successes shorter than those of a teacher without mistakes.
    "faultless": {"mistakes": 0.0, "rounds": 2},
}
CHOSEN = os.environ.get("ARMS", ",".join(ARMS)).split(",")
SEEDS = int(os.environ.get("SEEDS", PLANNED))


def data(arm: str) -> tuple[Stage, ...]:
    collected = STUDY.root / f"data/{arm}/collect"
    settings = {"pages": PAGES, "seeds": TASK_SEEDS, **ARMS[arm]}
    return (
        STUDY.stage(f"data/{arm}/collect", "collect", "collect.py:demo", **settings),
        STUDY.stage(
            f"data/{arm}/corpus",
            "build_sft",
            "build_sft.py:paper",
            trajectories=collected,
            **{"quality.min_effective_steps": 1},
        ),
    )


def chain(arm: str, seed: int) -> Chain:
    name, corpus = name_of(arm, seed), STUDY.root / f"data/{arm}/corpus"
    trained = STUDY.stage(name, "train_sft", "sft.py:demo", corpus=corpus, seed=seed)
    played = STUDY.evaluation(name, trained.folder / "export", pages=PAGES, seeds=EVAL_SEEDS, runs=RUNS)
    return Chain(name, (*data(arm), trained, played))


def play() -> None:
    for seed in range(1, SEEDS + 1):
        STUDY.play([chain(arm, seed) for arm in CHOSEN], steps=True)
    for arm in CHOSEN:
        if not STUDY.has(f"data_{arm}"):
            STUDY.keep(f"data_{arm}", collected(arm))


def collected(arm: str) -> dict[str, Any]:
    """What an arm's policies have learned from."""
    folder = STUDY.root / f"data/{arm}"
    runs = list(read_dataset(folder / "collect", Trajectory))
    solved = [run for run in runs if run.success]
    return {
        "tasks": len({run.task.task_id for run in runs}),
        "episodes": len(runs),
        "successes": len(solved),
        "steps of a success": float(np.mean([len(run.steps) for run in solved])),
        "samples": sum(1 for _ in read_dataset(folder / "corpus", SftSample)),
    }


def steps_saved(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Steps that the first policies save, in percent of the others', on tasks that both of a seed solve.

    A ratio of sums, as the paper has it; its interval resamples trainings and tasks independently.
    """
    tasks = sorted(one[0]["solved"])
    steps = np.asarray(
        [[[run["steps"].get(task, np.nan) for task in tasks] for run in runs] for runs in (one, other)]
    )
    both = ~np.isnan(steps).any(0)
    sums = np.where(both, steps, 0)
    rng = np.random.default_rng(0)
    trainings, drawn = (rng.multinomial(size, np.full(size, 1 / size), size=RESAMPLES) for size in both.shape)
    totals = np.einsum("br,art,bt->ab", trainings, sums, drawn)
    low, high = np.quantile(100 * (1 - totals[0] / totals[1]), [0.025, 0.975]).tolist()
    ours, theirs = sums.sum((1, 2)).tolist()
    return {"mean": 100 * (1 - ours / theirs), "low": low, "high": high, "tasks": int(both.any(0).sum())}


def figures() -> dict[str, Any]:
    runs = {arm: STUDY.seeds(arm, range(1, PLANNED + 1)) for arm in ARMS}
    runs = {arm: some for arm, some in runs.items() if some}
    tasks = sorted(next(iter(runs["without"].values()))["solved"])
    found: dict[str, Any] = {
        "planned": PLANNED,
        "seeds": {arm: len(some) for arm, some in runs.items()},
        "solved": {arm: interval(values(list(some.values()), tasks)) for arm, some in runs.items()},
        "steps": {
            arm: float(np.mean([step for run in some.values() for step in run["steps"].values()]))
            for arm, some in runs.items()
        },
        "data": {arm: STUDY.read(f"data_{arm}") for arm in runs},
    }
    for arm in (arm for arm in runs if arm != "without"):
        both = sorted(runs[arm].keys() & runs["without"].keys())
        one, other = ([runs[side][seed] for seed in both] for side in (arm, "without"))
        found[f"{arm}_minus_without"] = interval(values(one, tasks) - values(other, tasks))
        found[f"{arm}_steps_saved"] = steps_saved(one, other)
    return found


ABOUT = f"""\
**Baseline:** policies trained on what was collected without reflection. Control: those of a teacher without
mistakes must save steps, otherwise reflection cannot be said to save any.

**The teacher is simulated.** It makes a mistake in {100 * RATE:g} % of the episodes, of kinds and with
frequencies that are constants of the code; guidance that warns of a kind leaves 15 % of it. So these pages do
not say how much a real model gains from its reflections. They say whether what reflection changes in a
collection reaches the policies that are trained on it.

{TASK_SEEDS} seeds of {len(PAGES)} pages that take several steps, at most five rounds, until two successes,
*with* reflection and *without*, one collection each. *Faultless* is a teacher without mistakes, as a control:
it has what reflection could give at best. {PLANNED} policies of each are trained by the demo's SFT, which
differ by the order of their samples alone, and play {EVAL_SEEDS} held-out seeds of the pages {RUNS} times.
Steps are of tasks that both policies of a seed solve; *saved* is in percent of the steps without reflection,
as in the paper. Intervals of 95 % resample trainings and tasks, not collections.

Fixed before the first training: reflection saves steps if the interval of *saved* lies above 0, provided that
it does so for the control; it costs success if the interval of *minus without* lies below 0.
"""


def main() -> None:
    play()
    found = figures()
    checks: list[Check] = []
    for arm, what in (("faultless", "control: a teacher without mistakes"), ("with", "reflection")):
        if f"{arm}_steps_saved" in found:
            saved, gained = found[f"{arm}_steps_saved"], found[f"{arm}_minus_without"]
            checks.append((f"{what} saves steps of the trained policies, %", points(saved), saved["low"] > 0))
            checks.append((f"{what}: success, points", points(gained), gained["high"] > 0))
    made = sum(found["seeds"].values())
    planned = PLANNED * len(ARMS)
    checks.append(("trainings that were planned are there", f"{made} of {planned}", made == planned))
    rows = {
        arm: {
            "solved, %": percent(one),
            "steps of a solved task": found["steps"][arm],
            "seeds": found["seeds"][arm],
            **found["data"][arm],
        }
        for arm, one in found["solved"].items()
    }
    title = "Policies trained with and without reflection"
    publish("reflection_policies", title, ABOUT, found, checks, table(named(rows, "arm")))


if __name__ == "__main__":
    main()
