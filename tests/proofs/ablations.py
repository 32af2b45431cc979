"""What each part of the recipe adds to success in the browser, ten seeds an arm. Six hours, after the demo.

ARMS="RL;DAPO" SEEDS=3 chooses what is run; what each run has given is kept in docs/results/ablations.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from configs import rl
from experiments.stages import Chain, Stage
from rmsweb_jax.records.dataset import dataset_size
from rmsweb_jax.training.metrics import METRICS_FILE, read_rows
from tests.proofs.arms import START, Study, interval, name_of, percent, points, values
from tests.proofs.bootstrap import crossed_bootstrap
from tests.proofs.page import DEMO, Check, named, publish, table

STUDY = Study("ablations")
PLANNED, ITERATIONS, TASK_SEEDS, EVAL_SEEDS = 10, 20, 80, 10
DATA = STUDY.root / "data"
FIRST, MINED, PROMPTS = DATA / "first/export", DATA / "mine/prompts", DATA / "prompts"
# Variant of configs/rl.py, and what else differs.
_RL: dict[str, tuple[str, dict[str, Any]]] = {
    "RL": ("demo", {}),
    "DAPO": ("demo,dapo", {}),
    "no anchor": ("demo,anchor_free", {}),
    # For what the paper says of training without the KL term, not for success.
    "no KL": ("demo,no_kl", {}),
    "random actions": ("demo", {"prompts": PROMPTS / "random"}),
    "whole corpus": ("demo,full_corpus", {"prompts": DATA / "corpus"}),
    **{
        f"hard, anchor {dose:g}": (
            "demo",
            {"prompts": PROMPTS / "hard", "objective.salvage_weight": dose},
        )
        for dose in (0.0, 0.1, 1.0, 3.0)
    },
}
SFT = {"SFT, same prompts": PROMPTS / "samples", "SFT, whole corpus": DATA / "corpus"}
ARMS = (*_RL, *SFT)
CHOSEN = os.environ.get("ARMS", ";".join(ARMS)).split(";")
SEEDS = int(os.environ.get("SEEDS", PLANNED))
# Claim, the arm that should be better, the other one, and the paper's points on its three benchmarks.
CLAIMS = (
    ("RL improves the SFT policy", "RL", START, "+3.7 / +7.0 / +2.4"),
    ("mined prompts are better than as many random actions", "RL", "random actions", "-"),
    ("mined prompts are better than the whole corpus", "RL", "whole corpus", "+2.0 / +5.7 / +4.8"),
    ("the anchor helps", "RL", "no anchor", "+1.7 / +5.9 / +1.0"),
    ("gates and anchor are better than DAPO", "RL", "DAPO", "+1.5 / +3.8 / +3.0"),
    ("RL is better than SFT on the same prompts", "RL", "SFT, same prompts", "-"),
    ("the anchor helps where most prompts are hard", "hard, anchor 1", "hard, anchor 0", "-"),
)
# What the paper says of the course of a training: metric, and its beginning and end at 8B where it has them.
COURSES = {
    "gates/std_rejected": "0.32 to 0.44",
    "gates/competence_rejected": "0.31 to 0.21",
    "reward/best_of_k": "0.63 to 0.72",
    "reward/group_std": "0.19 to 0.14",
    "logp/gap": "-0.23 to 0.04",
    "logp/correct": "-0.59 to -0.37",
    "logp/wrong": "-0.36 to -0.41",
    "kl_ref": "bounded with the KL term",
    "pg_clipfrac": "bounded with the KL term",
    "rollout_log_ppl": "bounded with the KL term",
}
# Iterations that are its beginning and its end.
_PART = 3
# Must show an effect, otherwise none of the others can.
CONTROL = "SFT, whole corpus"
# Least number of standard errors with which a difference is found in four of five studies.
_DETECTABLE = 2.8


def data() -> tuple[Stage, ...]:
    """An early SFT policy, what the teacher and it do on fresh seeds, and the prompts drawn from that."""
    teacher, policy = DATA / "collect", DATA / "collect_policy"
    seeds = {"first_seed": 1_000, "seeds": TASK_SEEDS}
    acts = {"actor.model": FIRST, "tasks_from": teacher}
    drawn = {"prompts": MINED, "eval_prompts": DATA / "corpus", "model": FIRST}
    return (
        STUDY.stage("data/first", "train_sft", "sft.py:demo", corpus=DEMO / "sft_corpus", epochs=2),
        STUDY.stage("data/collect", "collect", "collect.py:demo", **seeds),
        STUDY.stage("data/corpus", "build_sft", "build_sft.py:demo", trajectories=teacher),
        STUDY.stage("data/collect_policy", "collect", "collect.py:demo_policy", **acts),
        STUDY.stage("data/mine", "mine", "mine.py:demo", pools=f"{teacher},{policy}"),
        STUDY.stage("data/prompts", "tests.proofs.ablation_prompts", "rl.py:demo", **drawn),
    )


def training(arm: str, seed: int) -> Stage:
    given: dict[str, Any] = {"model": FIRST, "seed": seed}
    name = name_of(arm, seed)
    if arm in SFT:
        limits: Any = rl.get_config("demo")
        # As many replies a step as RL has, and nearly as many steps.
        size = limits.mini_batch_groups * limits.num_samples
        steps = ITERATIONS * limits.train_groups // limits.mini_batch_groups
        number = dataset_size(SFT[arm])
        given |= {"trainable": "lora", "lora.rank": limits.lora.rank, "lora.alpha": limits.lora.alpha}
        given |= {"learning_rate": limits.learning_rate, "batch_size": size}
        given |= {"epochs": max(1, round(steps * size / number)), "corpus": SFT[arm]}
        return STUDY.stage(name, "train_sft", "sft.py:demo", **given)
    variant, changed = _RL[arm]
    given |= {
        "prompts": MINED,
        "eval_prompts": DATA / "corpus",
        "iterations": ITERATIONS,
        "eval_every": ITERATIONS,
    }
    return STUDY.stage(name, "train_rl", f"rl.py:{variant}", **{**given, **changed})


def evaluation(name: str, model: Path) -> Stage:
    return STUDY.evaluation(name, model, seeds=EVAL_SEEDS, runs=1)


def play() -> None:
    STUDY.play([Chain(START, (*data(), evaluation(START, FIRST)))])
    for seed in range(1, SEEDS + 1):
        for arm in CHOSEN:
            if not STUDY.has(name_of(arm, seed)):
                trained = training(arm, seed)
                played = evaluation(trained.name, trained.folder / "export")
                STUDY.play([Chain(trained.name, (trained, played))], work)


def work(folder: Path) -> dict[str, Any]:
    """Exact greedy replies to held-out actions after RL, the course of metrics, and the number of steps."""
    rows = [row for row in read_rows(folder / METRICS_FILE) if "time" in row]
    exact = [row["eval/exact"] for row in rows if "eval/exact" in row]
    steps = sum(row.get("optimizer_steps", 1) for row in rows if "eval/exact" not in row or "loss" in row)
    found: dict[str, Any] = {"steps": steps, **({"exact": exact[-1]} if exact else {})}
    for name in COURSES:
        if course := [row[name] for row in rows if name in row]:
            found[name] = [float(np.mean(course[:_PART])), float(np.mean(course[-_PART:]))]
    return found


def figures() -> dict[str, Any]:
    start = STUDY.read(START)
    tasks = sorted(start["solved"])
    runs = {arm: STUDY.seeds(arm, range(1, PLANNED + 1)) for arm in ARMS}
    runs = {arm: some for arm, some in runs.items() if some}
    solved = {arm: values(list(some.values()), tasks) for arm, some in runs.items()}
    solved[START] = values([start], tasks)

    def apart(arm: str, other: str) -> dict[str, Any]:
        if other == START:
            gain, seeds = solved[arm] - solved[START], len(solved[arm])
        else:
            both = sorted(runs[arm].keys() & runs[other].keys())
            pairs = [values([side[seed] for seed in both], tasks) for side in (runs[arm], runs[other])]
            gain, seeds = pairs[0] - pairs[1], len(both)
        found = interval(gain, tasks)
        detectable = _DETECTABLE * (found["high"] - found["low"]) / (2 * 1.96)
        return {**found, "seeds": seeds, "detectable": detectable}

    claims = [
        {"claim": claim, "paper": paper, **apart(arm, other)}
        for claim, arm, other, paper in CLAIMS
        if arm in runs and (other in runs or other == START)
    ]
    # Does an exact reply say anything about success? Over the trainings of all arms that have both.
    both = [
        (run["exact"], np.mean(list(run["solved"].values())))
        for some in runs.values()
        for run in some.values()
        if "exact" in run
    ]
    return {
        "planned": PLANNED,
        "solved": {arm: interval(one, tasks) for arm, one in solved.items()},
        "minus_start": {arm: apart(arm, START) for arm in runs},
        "exact": {
            arm: float(np.mean([run["exact"] for run in some.values()]))
            for arm, some in runs.items()
            if all("exact" in run for run in some.values())
        },
        "exact_correlation": float(np.corrcoef([one for one, _ in both], [other for _, other in both])[0, 1])
        if len(both) > 2
        else None,
        "claims": claims,
        "courses": {
            name: {
                arm: _course([run[name] for run in runs[arm].values()])
                for arm in ("RL", "no KL")
                if arm in runs
            }
            for name in COURSES
        },
        "prompts": json.loads((PROMPTS / "report.json").read_bytes())
        if (PROMPTS / "report.json").exists()
        else {},
    }


def _course(found: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Means at the beginning and at the end, and the interval of the change over trainings."""
    begin, end = np.asarray(found, float).T
    change = crossed_bootstrap((end - begin)[:, None])
    assert change is not None
    return {
        "begin": float(begin.mean()),
        "end": float(end.mean()),
        "change": {"mean": change.mean, "low": change.low, "high": change.high},
    }


def verdict(one: dict[str, Any], control: bool) -> str:
    """In the words that were fixed before the first training."""
    if one["seeds"] < PLANNED or not control:
        return "undecided"
    return "supported" if one["low"] > 0 else "contradicted" if one["high"] < 0 else "undecided"


ABOUT = f"""\
**Baseline:** the policy before training (*start*), and random actions in place of mined ones. Control: SFT on
the whole corpus must be above the start, otherwise every claim is undecided.

All arms start from one early SFT policy (*start*: two epochs) and are trained for {ITERATIONS} iterations,
or as many steps of SFT, with ten seeds. The policies play {EVAL_SEEDS} held-out seeds of 15 pages once. *RL*
is the demo's RL on mined prompts. *Random actions* are as many actions of the SFT corpus, *whole corpus* all
of them. *Hard* are actions of which 60 % have no competent reply under the start, with the anchor's weight.

Fixed before the first training: the outcome is success in the browser, minus the other arm's, with an
interval of 95 % that resamples trainings and whole pages. A claim is *supported* if the interval of {PLANNED}
seeds lies above 0, *contradicted* if below, else *undecided*; all are undecided unless the positive control,
SFT on the whole corpus, is above the start. *Detectable* is the smallest true difference that four of five
such studies would find. Exact replies to held-out actions of the corpus are a second column.
"""


def main() -> None:
    play()
    found = figures()
    control = found["minus_start"].get(CONTROL)
    shows = bool(control and control["low"] > 0)
    checks: list[Check] = []
    if control:
        checks.append(
            ("positive control: SFT on the whole corpus is above the start", points(control), shows)
        )
    if (correlation := found["exact_correlation"]) is not None:
        checks.append(
            ("correlation of exact replies with success, over trainings", f"{correlation:+.2f}", None)
        )
    rows = []
    for one in found["claims"]:
        one["verdict"] = verdict(one, shows)
        measured = {"measured": points(one), "seeds": one["seeds"], "detectable": one["detectable"]}
        rows.append({"claim": one["claim"], "paper": one["paper"], **measured, "verdict": one["verdict"]})
    arms = {
        arm: {
            "solved, %": percent(one),
            "minus start": points(found["minus_start"][arm]) if arm != START else "",
            "seeds": found["minus_start"][arm]["seeds"] if arm != START else 1,
            "exact replies, %": 100 * found["exact"][arm] if arm in found["exact"] else None,
        }
        for arm, one in found["solved"].items()
    }
    courses = [
        {
            "metric": name,
            "paper": COURSES[name],
            **{arm: f"{one['begin']:.3f} to {one['end']:.3f}" for arm, one in some.items()},
        }
        for name, some in found["courses"].items()
    ]
    tables = (table(rows), table(named(arms, "arm")), f"First and last {_PART} iterations.", table(courses))
    publish("ablations", "Ablations", ABOUT, found, checks, *tables)


if __name__ == "__main__":
    main()
