"""What reflection gains, on a teacher whose mistakes are drawn: RMSWeb's figures of collection, simulated.

python -m tests.fleet.proof_reflection --output=docs/results/reflection.md
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib import pyplot

from collection.evaluation.statistics import Interval, bootstrap_ratio, paired_difference
from collection.rounds import SOLVED_BY, Round, group_rounds
from configs import collect
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.shards import read_dataset
from tests.fleet.watched import Watched

ROUNDS = 5
# In a report a variant stands under its name.
VARIANTS = {"with reflection": "demo", "without": "no_reflection"}
_COLORS = {"with reflection": "C0", "without": "C1"}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a run has played: each task's rounds, in order of attempt."""

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
        return bootstrap_ratio(self.solved(last) * self.failed, self.failed)

    def success(self, attempt: int) -> Interval | None:
        """Share of the tasks played in a round that were solved in it."""
        return self._ratio(lambda one: float(one.success), lambda one: float(one.attempt == attempt))

    def steps(self, attempt: int | None = None) -> Interval | None:
        """Mean steps of successes, of one round or of all."""
        return self._ratio(
            lambda one: float(one.steps),
            lambda one: float(one.success and attempt in (None, one.attempt)),
        )

    def _ratio(self, value: Callable[[Round], float], weight: Callable[[Round], float]) -> Interval | None:
        top = [sum(value(one) * weight(one) for one in runs) for runs in self.tasks.values()]
        bottom = [sum(map(weight, runs)) for runs in self.tasks.values()]
        return bootstrap_ratio(np.array(top), np.array(bottom))


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=22)
    parser.add_argument("--rate", type=float, default=0.6)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    config = collect.get_config("demo")
    with tempfile.TemporaryDirectory(prefix="") as folder:
        outcomes = {
            name: play(Path(folder), variant, config.pages, options.seeds, options.rate)
            for name, variant in VARIANTS.items()
        }
    figure = options.output.with_suffix(".svg")
    draw(outcomes, figure)
    command = f"python -m tests.fleet.proof_reflection --seeds={options.seeds} --rate={options.rate}"
    text = report(outcomes, f"{command} --output={options.output}", figure.name, config.to_dict()["mistakes"])
    print(text)
    options.output.write_text(text)
    if not holds(outcomes):
        raise SystemExit("error: not every line holds")


def same_start(outcomes: dict[str, Outcome]) -> bool:
    """Whether both played the same tasks, and the first round, which knows no guidance, ended alike."""
    firsts = [
        {task: (runs[0].success, runs[0].steps) for task, runs in outcome.tasks.items()}
        for outcome in outcomes.values()
    ]
    return firsts[0] == firsts[1]


def gain(outcomes: dict[str, Outcome], last: int) -> Interval | None:
    """By how much more of the tasks that failed are solved by a round, task by task."""
    guided, blind = outcomes.values()
    failed = guided.failed > 0
    return paired_difference(guided.solved(last)[failed], blind.solved(last)[failed])


def holds(outcomes: dict[str, Outcome]) -> bool:
    last = gain(outcomes, ROUNDS)
    return same_start(outcomes) and last is not None and last.low > 0


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


def report(outcomes: dict[str, Outcome], command: str, figure: str, mistakes: dict) -> str:
    guided, blind = outcomes.values()
    rows = [
        f"| {last} | {_share(guided.solve_at_2(last))} | {_share(blind.solve_at_2(last))} | "
        f"{_points(gain(outcomes, last))} | {_share(guided.success(last))} | {_share(blind.success(last))} | "
        f"{_steps(guided.steps(last))} | {_steps(blind.steps(last))} |"
        for last in range(1, ROUNDS + 1)
    ]
    kinds = ", ".join(f"{name} {weight:.2f}" for name, weight in mistakes["weights"].items())
    return _REPORT.format(
        command=command,
        figure=figure,
        tasks=len(guided.tasks),
        failed=int(guided.failed.sum()),
        episodes=", ".join(
            f"{sum(map(len, outcome.tasks.values()))} {name}" for name, outcome in outcomes.items()
        ),
        rate=command.split("--rate=")[1].split()[0],
        kinds=kinds,
        heeded=mistakes["heeded"],
        same="the same" if same_start(outcomes) else "NOT the same",
        rows="\n".join(rows),
        steps=", ".join(f"{_steps(outcome.steps())} {name}" for name, outcome in outcomes.items()),
        holds="yes" if holds(outcomes) else "NO",
    )


def _share(value: Interval | None) -> str:
    return "-" if value is None else f"{value.mean:.0%} ({value.low:.0%}..{value.high:.0%})"


def _points(value: Interval | None) -> str:
    return "-" if value is None else f"{value.mean:+.0%} ({value.low:+.0%}..{value.high:+.0%})"


def _steps(value: Interval | None) -> str:
    return "-" if value is None else f"{value.mean:.2f} ({value.low:.2f}..{value.high:.2f})"


_REPORT = """# Reflection while collecting, simulated

    make proof-reflection

`{command}`

**The teacher is simulated.** It solves MiniWoB++ tasks by rule, in real Chromium, and its mistakes are drawn:
an episode has one with probability {rate} ({kinds}), and a kind that guidance warns of keeps {heeded} of its
probability. So these figures say that rounds, guidance and judging work together as they should, and how much
they gain under those numbers. They do not say how much a real model gains from its own reflections.

{tasks} tasks, each with at most five rounds, ending at two successes (RMSWeb, section 3.1), with reflection
and without, from the same seeds; episodes: {episodes}. Outcomes and steps of round 1 are {same}
in both; {failed} tasks failed in it. Intervals are 95 % bootstrap over tasks.

![solve@2 and steps by round]({figure})

| round | solve@2, with | without | gain, paired | success, with | without | steps, with | without |
|---|---|---|---|---|---|---|---|
{rows}

solve@2: share of the tasks that failed in round 1 that have two successes by a round. Success: share of the
tasks played in a round that were solved in it; those that come so far are the harder ones. Steps: mean of
successes in a round; over all rounds {steps}.

Reflection gains by round 5 (the interval is above 0): {holds}.
"""


if __name__ == "__main__":
    main()
