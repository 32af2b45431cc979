"""Outcomes of one policy on every task and run, and the figures computed from them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from collection.evaluation import statistics
from collection.evaluation.judged_by import Judges, count_verdicts, gave_verdict, judges_differ
from collection.evaluation.statistics import Interval
from collection.evaluation.task_results import NEVER_DONE, TaskResult, join_runs, run_result
from collection.judges.base import FATES, WITHOUT_RESULT
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import JudgeFingerprint, Trajectory
from rmsweb_jax.storage import AnyPath

RESULTS = "results.json"
# Key in a report -> field of a task that groups the tasks.
GROUPINGS = {"by_site": "site", "by_kind": "kind", "by_level": "level"}
# Minimum size of a group of tasks to compare two policies on: fewer tasks show hardly any difference.
MIN_GROUP_TASKS = 10
# Runs without a result are uneven between two policies if the test's p-value is below this.
UNEVEN_P = 0.05
# Causes of runs without a result that a report lists, by fate.
_CAUSES, _MAX_CAUSE_CHARS = 5, 200


class Results(BaseModel):
    """All tasks of one evaluation; every task has the same number of runs.

    Attributes:
      benchmark: the benchmark's name; empty in results from before it was recorded.
      judges: what judged the runs, each version once; empty in results from before it was recorded.
      verdicts: number of verdicts of each of `judges`; empty in results from before they were counted.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str
    model: str
    runs: int
    tasks: tuple[TaskResult, ...]
    benchmark: str = ""
    judges: tuple[JudgeFingerprint, ...] = ()
    verdicts: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _every_task_once_with_all_runs(self) -> Results:
        if any(len(task.successes) != self.runs for task in self.tasks):
            raise ValueError(f"a task does not have {self.runs} runs")
        if len({task.task_id for task in self.tasks}) < len(self.tasks):
            raise ValueError("a task is repeated")
        if self.verdicts and len(self.verdicts) != len(self.judges):
            raise ValueError("a judge has no number of verdicts")
        return self

    @property
    def successes(self) -> np.ndarray:
        """[T, runs] booleans."""
        return np.array([task.successes for task in self.tasks], bool).reshape(-1, self.runs)

    @property
    def has_result(self) -> np.ndarray:
        """[T, runs] booleans; False for runs that were blocked, unreachable, crashed or not judged."""
        rows = [[fate not in WITHOUT_RESULT for fate in task.fates] for task in self.tasks]
        return np.array(rows, bool).reshape(-1, self.runs)

    @property
    def missing(self) -> int:
        """Number of runs without a result."""
        return int((~self.has_result).sum())

    @property
    def judged_by(self) -> Judges:
        """The judges with their numbers of verdicts; 1 each if these were not counted."""
        return tuple(zip(self.judges, self.verdicts or (1,) * len(self.judges), strict=True))

    @property
    def steps(self) -> np.ndarray:
        """[T, runs] ints."""
        return np.array([task.steps for task in self.tasks], int).reshape(-1, self.runs)

    def recorded(self, field: str) -> np.ndarray | None:
        """[T, runs] floats of a `TaskResult` field that older results lack; None if a task lacks it."""
        values = [getattr(task, field) for task in self.tasks]
        return np.array(values, np.float64).reshape(-1, self.runs) if values and all(values) else None

    def select(self, task_ids: Sequence[str]) -> Results:
        """Returns the results on `task_ids` only, in that order."""
        by_id = {task.task_id: task for task in self.tasks}
        return self.model_copy(update={"tasks": tuple(by_id[task_id] for task_id in task_ids)})

    def groups(self, field: str) -> dict[str, Results]:
        """Groups the results by a `TaskResult` field, sorted by value; tasks without a value are left out."""
        names: dict[str, list[str]] = {}
        for task in self.tasks:
            names.setdefault(getattr(task, field), []).append(task.task_id)
        return {name: self.select(names[name]) for name in sorted(names) if name}

    def priced(self, prompt: float, response: float) -> Results:
        """Returns the results with costs at these prices (US dollars per million tokens).

        For policies on one's own server, whose calls have no recorded price.

        Raises:
          UserError: the tokens were not recorded.
        """
        if self.recorded("prompt_tokens") is None or self.recorded("response_tokens") is None:
            raise UserError(
                f"{self.label}: these results hold no tokens that a price could apply to: evaluate again, or "
                "give no price for it"
            )

        def cost(task: TaskResult) -> tuple[float, ...]:
            pairs = zip(task.prompt_tokens, task.response_tokens, strict=True)
            return tuple((prompt * asked + response * answered) / 1e6 for asked, answered in pairs)

        tasks = tuple(task.model_copy(update={"costs": cost(task)}) for task in self.tasks)
        return self.model_copy(update={"tasks": tasks})


def gather_results(
    label: str,
    model: str,
    runs: int,
    trajectories: Iterable[Trajectory],
    benchmark: str = "",
    levels: Mapping[str, str] = MappingProxyType({}),
) -> Results:
    """Collects trajectories of attempts 1..`runs` of each task, in the order tasks first appear.

    Args:
      benchmark: the benchmark's name.
      levels: task id -> difficulty in the benchmark.

    Raises:
      UserError: a task lacks a run or has one twice; rates over such a set would be biased.
    """
    by_task: dict[str, dict[int, TaskResult]] = {}
    judged: list[tuple[JudgeFingerprint | None, bool]] = []
    for trajectory in trajectories:
        task_id, attempt = trajectory.task.task_id, trajectory.attempt
        attempts = by_task.setdefault(task_id, {})
        if attempt in attempts:
            raise UserError(
                f"{trajectory.trajectory_id}: evaluated twice; evaluate again in an empty --workdir"
            )
        attempts[attempt] = run_result(trajectory, levels.get(task_id, ""))
        judged.append((trajectory.judge_fingerprint, gave_verdict(trajectory)))
    for task_id, attempts in by_task.items():
        if sorted(attempts) != list(range(1, runs + 1)):
            raise UserError(
                f"{task_id}: has runs {sorted(attempts)} instead of 1..{runs}; "
                "run the same command again to finish the evaluation"
            )
    tasks = tuple(join_runs([attempts[n] for n in range(1, runs + 1)]) for attempts in by_task.values())
    counts = count_verdicts(judged)
    return Results(
        label=label,
        model=model,
        runs=runs,
        tasks=tasks,
        benchmark=benchmark,
        judges=tuple(judge for judge, _ in counts),
        verdicts=tuple(count for _, count in counts),
    )


def load_results(folder: AnyPath) -> Results:
    """Reads `results.json` of an evaluation's data set.

    Raises:
      UserError: the file is missing or damaged.
    """
    path = folder / RESULTS
    if not path.exists():
        raise UserError(f"{path} is missing next to report.json: copy it too, or evaluate again")
    try:
        return Results.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UserError(
            f"{path}: not evaluation results ({error.error_count()} errors); evaluate again"
        ) from error


def score(results: Results, seed: int = 0) -> dict[str, Any]:
    """Computes all figures of one policy: rates with intervals, steps, cost and outcomes; and rates by group.

    Rates, steps and cost are of the runs that have a result; each task weighs the same. pass@k leaves out
    tasks with fewer than k such runs.

    Returns:
      `judges` with their numbers of `verdicts`, `pass_at_<k>` (with `least` and `most`, the rates if all runs
      without a result had failed and had been solved; None if no task has k results), `mean_steps_solved`,
      numbers of runs (`missing`, those without a result, and `never_done`), `cost`, what `fates` returns, and
      in `by_site`, `by_kind` and `by_level` the rates of each group.
    """
    return {
        "label": results.label,
        "model": results.model,
        "benchmark": results.benchmark,
        "tasks": len(results.tasks),
        "runs": results.runs,
        "judges": [
            {"id": judge.id, "verdicts": verdicts, **judge.model_dump(mode="json")}
            for judge, verdicts in results.judged_by
        ],
        **_rates(results, seed),
        "cost": _cost(results, seed),
        **{
            grouping: {
                name: {"tasks": len(group.tasks), **_rates(group, seed)}
                for name, group in results.groups(field).items()
            }
            for grouping, field in GROUPINGS.items()
        },
        "outcomes": dict(_outcomes(results).most_common()),
        **fates(results),
    }


def fates(results: Results) -> dict[str, Any]:
    """Says what happened to the runs.

    Returns:
      `fates`: number of runs by fate; `causes`: for each fate without a result the most frequent causes, with
      the number of runs.
    """
    counts = Counter(fate for task in results.tasks for fate in task.fates)
    causes: dict[str, Counter[str]] = {name: Counter() for name in FATES if name in WITHOUT_RESULT}
    for task in results.tasks:
        for name, cause in zip(task.fates, task.causes, strict=False):
            if cause:
                causes[name][cause[:_MAX_CAUSE_CHARS]] += 1
    return {
        "fates": {name: counts[name] for name in FATES},
        "causes": {name: dict(found.most_common(_CAUSES)) for name, found in causes.items() if found},
    }


def missing_runs(report: Mapping[str, Any]) -> str:
    """Formats the number of runs without a result and their kinds; of what `score` returns."""
    kinds = [f"{count} {name}" for name, count in report["fates"].items() if name in WITHOUT_RESULT and count]
    return f"{report['missing']}" + (f" ({', '.join(kinds)})" if kinds else "")


def compare(first: Results, second: Results, seed: int = 0, across_judges: bool = False) -> dict[str, Any]:
    """`first - second` on the tasks both were evaluated on, paired by task.

    A run counts if it has a result on both sides: of each task, both sides have the same runs.

    Args:
      across_judges: compare results of different judges, or of judges that were not recorded, all the same.

    Three tests: `permutation_p` is of pass@1, `mcnemar_p` of "solved at least once" in as many runs as both
    have (pass@k), `missing_p` of whether one side misses more runs of a task than the other (the exact sign
    test over tasks, which is McNemar's). All take one value per task, because the runs of a task are not
    independent trials.

    Returns:
      `across_judges` (what differs between the judges; "" if they are the same), `tasks` (shared ones, the
      basis of the rest), `first_tasks` and `second_tasks` (all of each), intervals
      of `pass_at_<k>` (with `least` and `most` over all runs) and steps, `permutation_p`, `only_first`,
      `only_second`, `mcnemar_p`, `missing` (runs without a result on each side), `missing_p` and `uneven`
      (`missing_p` is below 5 %); and the same
      by site, kind and level for groups of `MIN_GROUP_TASKS` tasks or more, with `holm_p`: `permutation_p`
      corrected over a grouping's groups.

    Raises:
      UserError: no task is shared, or the judges differ.
    """
    differ = judges_differ(first.judged_by, second.judged_by)
    if differ and not across_judges:
        raise UserError(
            f"{first.label} and {second.label} may not have the same judge ({differ}): judge the runs of "
            "both by one (experiments.judge), or compare all the same with --config.across_judges=True"
        )
    known = {task.task_id for task in second.tasks}
    shared = [task.task_id for task in first.tasks if task.task_id in known]
    if not shared:
        raise UserError(
            f"{first.label} and {second.label} have no task in common: evaluate both on the same tasks"
        )
    counts = {"first_tasks": len(first.tasks), "second_tasks": len(second.tasks)}
    first, second = first.select(shared), second.select(shared)
    return {
        "across_judges": differ,
        "tasks": len(shared),
        **counts,
        **_difference(first, second, seed),
        **{
            grouping: _grouped_differences(first.groups(field), second, seed)
            for grouping, field in GROUPINGS.items()
        },
    }


def to_json(content: dict[str, Any]) -> bytes:
    """Encodes readable JSON: indented, floats unrounded, NaN refused."""
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()


def _rates(results: Results, seed: int) -> dict[str, Any]:
    successes, has_result, outcomes = results.successes, results.has_result, _outcomes(results)
    return {
        **{
            f"pass_at_{k}": _as_dict(statistics.pass_rate(successes, has_result, k))
            for k in range(1, results.runs + 1)
        },
        "mean_steps_solved": _as_dict(statistics.steps_on_solved(successes, results.steps, seed)),
        "missing": results.missing,
        "never_done": sum(outcomes[name] for name in NEVER_DONE),
    }


def _cost(results: Results, seed: int) -> dict[str, Any]:
    """Returns mean costs per run; `usd_at_<k>` is the budget of k runs, `C_k = k C_1` (RMSWeb, figure 1).

    Runs without a result are left out. Dollars are None if every recorded cost is 0, which means that prices
    are unknown.
    """
    fields = {"prompt_tokens": "prompt_tokens", "response_tokens": "response_tokens"}
    fields |= {"usd": "costs", "judge_usd": "judge_costs"}
    cost: dict[str, Any] = {}
    there = results.has_result
    played = there.any(axis=1)
    for name, field in fields.items():
        cost[name], values = None, results.recorded(field)
        if values is not None and (values.any() or not name.endswith("usd")):
            means = (values * there).sum(axis=1)[played] / there.sum(axis=1)[played]
            cost[name] = _as_dict(statistics.bootstrap_mean(means, seed))
    usd = cost["usd"]
    return cost | {f"usd_at_{k}": usd and k * usd["mean"] for k in range(1, results.runs + 1)}


def _difference(first: Results, second: Results, seed: int) -> dict[str, Any]:
    runs = min(first.runs, second.runs)  # More runs would give one policy more chances to solve a task.
    won, other_won = (one.successes[:, :runs] for one in (first, second))
    there, other_there = (one.has_result[:, :runs] for one in (first, second))
    both = there & other_there
    solved = (won & both, first.steps[:, :runs], other_won & both, second.steps[:, :runs])
    mine, theirs = (np.asarray(one.any(axis=1)) for one in (solved[0], solved[2]))
    only_first, only_second = statistics.disagreements(mine, theirs)
    missed, other_missed = (np.asarray((~one).sum(axis=1)) for one in (there, other_there))
    more, fewer = (np.asarray(one) for one in (missed > other_missed, missed < other_missed))
    missing_p = statistics.mcnemar(more, fewer)
    return {
        **{
            f"pass_at_{k}": _as_dict(statistics.pass_difference(won, other_won, there, other_there, k))
            for k in range(1, runs + 1)
        },
        "permutation_p": statistics.permutation_p(won, other_won, both, seed),
        "step_reduction": _as_dict(statistics.step_reduction(*solved, seed)),
        "steps_saved": _as_dict(statistics.steps_saved(*solved, seed)),
        "only_first": only_first,
        "only_second": only_second,
        "mcnemar_p": statistics.mcnemar(mine, theirs),
        "missing": [int(missed.sum()), int(other_missed.sum())],
        "missing_p": missing_p,
        "uneven": missing_p < UNEVEN_P,
    }


def _grouped_differences(groups: Mapping[str, Results], second: Results, seed: int) -> dict[str, Any]:
    found = {
        name: {
            "tasks": len(group.tasks),
            **_difference(group, second.select([task.task_id for task in group.tasks]), seed),
        }
        for name, group in groups.items()
        if len(group.tasks) >= MIN_GROUP_TASKS
    }
    # Each grouping is one family of tests: sites, kinds and levels are separate questions.
    corrected = statistics.holm([one["permutation_p"] for one in found.values()])
    return {name: {**one, "holm_p": p} for (name, one), p in zip(found.items(), corrected, strict=True)}


def _outcomes(results: Results) -> Counter[str]:
    return Counter(outcome for task in results.tasks for outcome in task.outcomes)


def _as_dict(interval: Interval | None) -> dict[str, float | int] | None:
    return None if interval is None else interval.as_dict()
