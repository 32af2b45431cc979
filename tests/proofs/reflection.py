"""Collecting with and without reflection, by a teacher whose mistakes are drawn. A quarter of an hour."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib import pyplot

from collection.evaluation.statistics import Interval, bootstrap_ratio, paired_difference, rate_interval
from collection.fleet.rounds import SOLVED_BY, Round, group_rounds
from configs import collect
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.schema import Trajectory
from tests.fleet.watched import Watched
from tests.proofs.result import RESULTS, Claim, Figures, Proof, filled, main, table

ROUNDS = 5
# Name in the page -> variant of the config.
VARIANTS = {"with reflection": "demo", "without": "no_reflection"}
_COLORS = {"with reflection": "C0", "without": "C1"}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The rounds of each task of a run, in order of attempt."""

    tasks: dict[str, list[Round]]

    @property
    def failed(self) -> np.ndarray:
        """[T], whether a task failed in round 1."""
        return np.array([not runs[0].success for runs in self.tasks.values()], float)

    def solved(self, last: int) -> np.ndarray:
        """[T], whether a task has two successes by a round."""
        return np.array(
            [sum(one.success for one in runs[:last]) >= SOLVED_BY for runs in self.tasks.values()], float
        )

    def solve_at_2(self, last: int) -> Interval | None:
        return rate_interval(self.solved(last) * self.failed, self.failed)

    def success(self, attempt: int) -> Interval | None:
        """Share of the tasks played in a round that were solved in it."""
        return rate_interval(
            *self._sums(lambda one: float(one.success), lambda one: float(one.attempt == attempt))
        )

    def steps(self, attempt: int | None = None) -> Interval | None:
        """Mean steps of successes, of one round or of all."""
        return bootstrap_ratio(
            *self._sums(
                lambda one: float(one.steps),
                lambda one: float(one.success and attempt in (None, one.attempt)),
            )
        )

    def _sums(
        self, value: Callable[[Round], float], weight: Callable[[Round], float]
    ) -> tuple[np.ndarray, np.ndarray]:
        """[T] weighted sums of values, and [T] sums of weights."""
        top = [sum(value(one) * weight(one) for one in runs) for runs in self.tasks.values()]
        bottom = [sum(map(weight, runs)) for runs in self.tasks.values()]
        return np.array(top), np.array(bottom)


def settings(variant: str, pages: Sequence[str], seeds: int, rate: float) -> list[str]:
    return [
        f"--config=configs/collect.py:{variant}",
        f"--config.pages={tuple(pages)!r}",
        f"--config.seeds={seeds}",
        f"--config.rounds={ROUNDS}",
        f"--config.stop_after={SOLVED_BY}",
        f"--config.mistakes.rate={rate}",
        "--config.actor.kind=scripted",
    ]


def play(folder: Path, variant: str, pages: Sequence[str], seeds: int, rate: float) -> Outcome:
    run = Watched(folder / variant, settings(variant, pages, seeds, rate), "experiments.collect")
    run.finish()
    return Outcome(group_rounds(map(Round.of, read_dataset(run.workdir, Trajectory))))


def measure(seeds: int = 22, rate: float = 0.6) -> Figures:
    config = collect.get_config("demo")
    with tempfile.TemporaryDirectory(prefix="") as folder:
        outcomes = {
            name: play(Path(folder), variant, config.pages, seeds, rate) for name, variant in VARIANTS.items()
        }
    draw(outcomes, RESULTS / "reflection.svg")
    guided, blind = outcomes.values()
    mistakes = config.to_dict()["mistakes"]
    return {
        "seeds": seeds,
        "rate": rate,
        "mistakes": mistakes["weights"],
        "heeded": mistakes["heeded"],
        "tasks": len(guided.tasks),
        "failed_in_round_1": int(guided.failed.sum()),
        "episodes": {name: sum(map(len, outcome.tasks.values())) for name, outcome in outcomes.items()},
        "same_start": same_start(outcomes),
        "rounds": [
            {
                "round": last,
                "solve_at_2": [_values(guided.solve_at_2(last)), _values(blind.solve_at_2(last))],
                "gain": _values(gain(outcomes, last)),
                "success": [_values(guided.success(last)), _values(blind.success(last))],
                "steps": [_values(guided.steps(last)), _values(blind.steps(last))],
            }
            for last in range(1, ROUNDS + 1)
        ],
        "steps": {name: _values(outcome.steps()) for name, outcome in outcomes.items()},
    }


def _values(interval: Interval | None) -> list[float] | None:
    """Mean, low and high."""
    return (
        None
        if interval is None
        else [round(float(one), 4) for one in (interval.mean, interval.low, interval.high)]
    )


def same_start(outcomes: dict[str, Outcome]) -> bool:
    """True if both played the same tasks with the same first round, which has no guidance."""
    firsts = [
        {task: (runs[0].success, runs[0].steps) for task, runs in outcome.tasks.items()}
        for outcome in outcomes.values()
    ]
    return firsts[0] == firsts[1]


def gain(outcomes: dict[str, Outcome], last: int) -> Interval | None:
    """Paired difference in the share of failed tasks solved by a round."""
    guided, blind = outcomes.values()
    failed = guided.failed > 0
    return paired_difference(guided.solved(last)[failed], blind.solved(last)[failed])


def draw(outcomes: dict[str, Outcome], path: Path) -> None:
    """solve@2 and steps of successes by round, with intervals."""
    matplotlib.use("svg")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    rounds = list(range(1, ROUNDS + 1))
    for name, outcome in outcomes.items():
        _curve(left, rounds, [outcome.solve_at_2(last) for last in rounds], name)
        _curve(right, rounds, [outcome.steps(attempt) for attempt in rounds], name)
    left.set(xlabel="round", ylabel="solve@2 of tasks that failed in round 1", ylim=(0, 1), xticks=rounds)
    right.set(xlabel="round", ylabel="mean steps of successes", xticks=rounds)
    left.legend()
    with matplotlib.rc_context({"svg.hashsalt": "reflection"}):
        figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _curve(axes: pyplot.Axes, rounds: list[int], values: list[Interval | None], name: str) -> None:
    known = [(at, value) for at, value in zip(rounds, values, strict=True) if value is not None]
    places, means = [at for at, _ in known], [value.mean for _, value in known]
    axes.plot(places, means, "o-", color=_COLORS[name], label=name)
    low, high = [value.low for _, value in known], [value.high for _, value in known]
    axes.fill_between(places, low, high, color=_COLORS[name], alpha=0.15)


def claims(figures: Figures) -> list[Claim]:
    last = figures["rounds"][-1]["gain"]
    return [
        Claim(
            f"with reflection more of the failed tasks are solved by round {ROUNDS} (interval above 0)",
            _points(last),
            last is not None and last[1] > 0,
        ),
        Claim(
            "both variants start alike: round 1, which has no guidance, ends the same",
            "the same outcomes and steps" if figures["same_start"] else "different",
            figures["same_start"],
        ),
    ]


def tables(figures: Figures) -> str:
    rows = [
        (
            row["round"],
            *map(_share, row["solve_at_2"]),
            _points(row["gain"]),
            *map(_share, row["success"]),
            *map(_steps, row["steps"]),
        )
        for row in figures["rounds"]
    ]
    head = (
        "round",
        "solve@2, with",
        "without",
        "gain, paired",
        "success, with",
        "without",
        "steps, with",
        "without",
    )
    steps = ", ".join(f"{_steps(value)} {name}" for name, value in figures["steps"].items())
    notes = f"""\
solve@2: share of the tasks that failed in round 1 that have two successes by a round. Success: share of the
tasks played in a round that were solved in it; those that come so far are the harder ones. Steps: mean of
successes in a round; over all rounds {steps}."""
    return f"![solve@2 and steps by round](reflection.svg)\n\n{table(head, rows)}\n\n{filled(notes)}"


def _share(value: list[float] | None) -> str:
    return "-" if value is None else f"{value[0]:.0%} ({value[1]:.0%}..{value[2]:.0%})"


def _points(value: list[float] | None) -> str:
    return "-" if value is None else f"{value[0]:+.0%} ({value[1]:+.0%}..{value[2]:+.0%})"


def _steps(value: list[float] | None) -> str:
    return "-" if value is None else f"{value[0]:.2f} ({value[1]:.2f}..{value[2]:.2f})"


ABOUT = """\
**The teacher is simulated.** It solves MiniWoB++ tasks by rule, in real Chromium, and its mistakes are
drawn: an episode has one with probability {rate} (by kind: {mistakes}), and a kind that guidance warns of
keeps {heeded} of its probability. So these figures say that rounds, guidance and judging work together as
they should, and how much they gain under those numbers. They do not say how much a real model gains from
its own reflections.

{tasks} tasks, each with at most five rounds, ending at two successes (RMSWeb, section 3.1), are played with
reflection and without, from the same seeds; episodes: {episodes}. {failed_in_round_1} tasks failed in round
1. Intervals are of 95 %, over tasks.
"""
PROOF = Proof("Reflection while collecting, simulated", ABOUT, measure, claims, tables, browser=True)

if __name__ == "__main__":
    main(PROOF)
