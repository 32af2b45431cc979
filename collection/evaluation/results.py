"""Outcomes of one policy on every run of every task, and the figures computed from them."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, model_validator

from collection.evaluation import statistics
from collection.evaluation.judged_by import Judges, count_verdicts, gave_verdict, judges_differ
from collection.evaluation.statistics import Interval
from collection.judges.base import FATES, WITHOUT_RESULT, cause, fate_of, unjudged
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import JudgeFingerprint, Trajectory
from rmsweb_jax.storage import AnyPath

if TYPE_CHECKING:
    import pandas

RESULTS = "results.jsonl"
# Key in a report -> field of a run that groups the tasks.
GROUPINGS = {"by_site": "site", "by_kind": "kind", "by_level": "level"}
# Minimum size of a group of tasks to compare two policies on: fewer tasks show hardly any difference.
MIN_GROUP_TASKS = 10
# Outcomes of a run that a limit ended.
NEVER_DONE = ("max_steps", "failures", "timeout")
# Runs without a result are uneven between two policies if the test's p-value is below this.
UNEVEN_P = 0.05
# Causes of runs without a result that a report lists, by fate.
_CAUSES, _MAX_CAUSE_CHARS = 5, 200


class TaskRun(BaseModel):
    """One run of one task: a row of `Results.table`.

    Attributes:
      kind: the task's category.
      level: difficulty of the task in the benchmark.
      attempt: 1, 2, ...
      judged: False if the agent declared success and there is no verdict.
      outcome: how the run ended (`rmsweb_jax.records.schema.Outcome`).
      cause: one line on why the run has no result; empty where it has one.
      steps: decisions taken.
      prompt_tokens, response_tokens: of all calls in which the agent acted or read a page.
      cost: of the same calls, in US dollars; 0 where their price is unknown.
      judge_cost: of judging the run, in US dollars.
      judge: id of the judge's fingerprint; empty if it was not recorded.
      trajectory_id: id of the run in the trajectory data set next to the results.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    task_id: str
    site: str
    kind: str = ""
    level: str = ""
    attempt: int
    success: bool
    judged: bool = True
    outcome: str
    cause: str = ""
    steps: int
    prompt_tokens: int = 0
    response_tokens: int = 0
    cost: float = 0.0
    judge_cost: float = 0.0
    judge: str = ""
    trajectory_id: str = ""

    @model_validator(mode="after")
    def _success_has_a_verdict(self) -> TaskRun:
        if self.success and not self.judged:
            raise ValueError(f"{self.task_id}: a success without a verdict")
        return self


@dataclasses.dataclass(frozen=True, eq=False)
class Results:
    """One evaluation: a row for each run, by task and attempt; every task has attempts 1 to `runs`.

    Attributes:
      judges: versions of the judges, and the number of verdicts that each gave.
      table: the fields of `TaskRun`, and `fate` (`collection.judges.base.Fate`).
    """

    label: str
    model: str
    benchmark: str
    runs: int
    judges: Judges
    table: pandas.DataFrame

    @classmethod
    def of(
        cls, label: str, model: str, benchmark: str, runs: int, judges: Judges, rows: Iterable[TaskRun]
    ) -> Results:
        """Sorts the rows by attempt; tasks are in the order in which they first appear.

        Raises:
          ValueError: a task lacks a run, or has one twice: rates over such a set would be biased.
        """
        # Imported here: it takes half a second to load, and most commands have no results.
        import pandas

        table = pandas.DataFrame([row.model_dump() for row in rows], columns=list(TaskRun.model_fields))
        attempts = table.groupby("task_id", sort=False)["attempt"].agg(sorted)
        for task_id, found in attempts.to_dict().items():
            if found != list(range(1, runs + 1)):
                twice = next((n for n, count in Counter(found).items() if count > 1), None)
                raise ValueError(
                    f"{task_id}: has run {twice} twice" if twice else f"has runs {found}, not 1..{runs}"
                )
        order = np.lexsort((table["attempt"], pandas.factorize(table["task_id"])[0]))
        table = table.iloc[order].reset_index(drop=True)
        fates = map(fate_of, table["outcome"], table["success"], table["judged"])
        return cls(label, model, benchmark, runs, judges, table.assign(fate=list(fates)))

    @property
    def tasks(self) -> list[str]:
        """Ids of the tasks."""
        return self.table["task_id"].unique().tolist()

    def values(self, field: str) -> np.ndarray:
        """Returns a column as [T, runs]."""
        return self.table[field].to_numpy().reshape(-1, self.runs)

    def by_task(self, field: str) -> dict[str, tuple[Any, ...]]:
        """Returns a column's values by task, in order of attempt."""
        return dict(zip(self.tasks, map(tuple, self.values(field).tolist()), strict=True))

    @property
    def successes(self) -> np.ndarray:
        """[T, runs] booleans."""
        return self.values("success").astype(bool)

    @property
    def has_result(self) -> np.ndarray:
        """[T, runs] booleans; False for runs that were blocked, unreachable, crashed or not judged."""
        return ~np.isin(self.values("fate").astype(str), list(WITHOUT_RESULT))

    @property
    def missing(self) -> int:
        """Number of runs without a result."""
        return int((~self.has_result).sum())

    def select(self, task_ids: Sequence[str]) -> Results:
        """Returns the results on `task_ids` only, in that order."""
        table = self.table.set_index("task_id", drop=False).loc[list(task_ids)].reset_index(drop=True)
        return dataclasses.replace(self, table=table)

    def groups(self, field: str) -> dict[str, Results]:
        """Groups the results by a field, sorted by its value; tasks without a value are left out."""
        return {
            str(name): dataclasses.replace(self, table=table)
            for name, table in self.table.groupby(field)
            if name
        }

    def priced(self, prompt: float, response: float) -> Results:
        """Returns the results with costs at these prices (US dollars per million tokens).

        For policies on one's own server, whose calls have no recorded price.
        """
        asked, answered = self.table["prompt_tokens"], self.table["response_tokens"]
        cost = (prompt * asked + response * answered) / 1e6
        return dataclasses.replace(self, table=self.table.assign(cost=cost))

    def write(self, folder: Path) -> None:
        """Writes `RESULTS`: a line on the evaluation, then one for each run."""
        head = {"label": self.label, "model": self.model, "benchmark": self.benchmark, "runs": self.runs}
        lines = [head | {"judges": judges_report(self.judges)}]
        lines += self.table.drop(columns="fate").to_dict(orient="records")
        write_atomic(folder / RESULTS, "".join(json.dumps(line) + "\n" for line in lines).encode())


def judges_report(judges: Judges) -> list[dict[str, Any]]:
    return [{"id": judge.id, "verdicts": count, **judge.model_dump(mode="json")} for judge, count in judges]


def load_results(folder: AnyPath) -> Results:
    """Reads `RESULTS` of an evaluation's data set.

    Raises:
      UserError: the file is missing or damaged.
    """
    path = folder / RESULTS
    again = (
        "delete report.json next to it and run the command of the evaluation again, which scores the "
        "recorded episodes without playing them"
    )
    if not path.exists():
        raise UserError(f"{path} is missing: copy it too, or {again}")
    try:
        head, *rows = path.read_bytes().splitlines()
        about = json.loads(head)
        fields = JudgeFingerprint.model_fields
        judges = tuple(
            (JudgeFingerprint(**{name: judge[name] for name in fields}), judge["verdicts"])
            for judge in about.pop("judges")
        )
        return Results.of(**about, judges=judges, rows=map(TaskRun.model_validate_json, rows))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path}: not evaluation results; {again}") from error


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
      UserError: a task lacks a run or has one twice.
    """
    rows: list[TaskRun] = []
    judged: list[tuple[JudgeFingerprint | None, bool]] = []
    for trajectory in trajectories:
        rows.append(_row(trajectory, levels.get(trajectory.task.task_id, "")))
        judged.append((trajectory.judge_fingerprint, gave_verdict(trajectory)))
    try:
        return Results.of(label, model, benchmark, runs, count_verdicts(judged), rows)
    except ValueError as error:
        raise UserError(
            f"{error}; run the same command again to finish the evaluation, or evaluate in an empty --workdir"
        ) from error


def _row(trajectory: Trajectory, level: str) -> TaskRun:
    calls = [step.usage for step in trajectory.steps]
    calls += [call.usage for step in trajectory.steps for call in step.extractions]
    judge = trajectory.judge_fingerprint
    return TaskRun(
        task_id=trajectory.task.task_id,
        site=trajectory.task.site,
        kind=trajectory.task.category,
        level=level,
        attempt=trajectory.attempt,
        success=trajectory.success,
        judged=not unjudged(trajectory),
        outcome=trajectory.outcome,
        cause=cause(trajectory),
        steps=len(trajectory.steps),
        prompt_tokens=sum(call.prompt_tokens for call in calls),
        response_tokens=sum(call.response_tokens for call in calls),
        cost=sum(call.cost for call in calls),
        judge_cost=trajectory.judge_usage.cost,
        judge=judge.id if judge else "",
        trajectory_id=trajectory.trajectory_id,
    )


def score(results: Results, seed: int = 0) -> dict[str, Any]:
    """Computes all figures of one policy: rates with intervals, steps, cost and outcomes; and rates by group.

    Rates, steps and cost are of the runs that have a result; each task weighs the same. pass@k leaves out
    tasks with fewer than k such runs.

    Returns:
      `judges` with their numbers of `verdicts`, `pass_at_<k>` (with `least` and `most`, the rates if all runs
      without a result had failed and had been solved; None if no task has k results), `mean_steps_solved`,
      numbers of runs (`missing`, those without a result, and `never_done`), `cost`, `outcomes`, `fates` (runs
      by fate), `causes` (of each fate without a result the most frequent causes), and in `by_site`, `by_kind`
      and `by_level` the rates of each group.
    """
    table = results.table
    fates = Counter(table["fate"])
    causes = {
        name: Counter(cause[:_MAX_CAUSE_CHARS] for cause in table["cause"][table["fate"] == name] if cause)
        for name in FATES
        if name in WITHOUT_RESULT
    }
    return {
        "label": results.label,
        "model": results.model,
        "benchmark": results.benchmark,
        "tasks": len(results.tasks),
        "runs": results.runs,
        "judges": judges_report(results.judges),
        **_rates(results, seed),
        "cost": _cost(results, seed),
        **{
            grouping: {
                name: {"tasks": len(group.tasks), **_rates(group, seed)}
                for name, group in results.groups(field).items()
            }
            for grouping, field in GROUPINGS.items()
        },
        "outcomes": dict(Counter(table["outcome"]).most_common()),
        "fates": {name: fates[name] for name in FATES},
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
    differ = judges_differ(first.judges, second.judges)
    if differ and not across_judges:
        raise UserError(
            f"{first.label} and {second.label} may not have the same judge ({differ}): judge the runs of "
            "both by one (experiments.judge), or compare all the same with --config.across_judges=True"
        )
    known = set(second.tasks)
    shared = [task for task in first.tasks if task in known]
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
    successes, has_result = results.successes, results.has_result
    return {
        **{
            f"pass_at_{k}": _as_dict(statistics.pass_rate(successes, has_result, k))
            for k in range(1, results.runs + 1)
        },
        "mean_steps_solved": _as_dict(statistics.steps_on_solved(successes, results.values("steps"), seed)),
        "missing": results.missing,
        "never_done": int(np.isin(results.values("outcome").astype(str), NEVER_DONE).sum()),
    }


def _cost(results: Results, seed: int) -> dict[str, Any]:
    """Returns mean costs per run; `usd_at_<k>` is the budget of k runs, `C_k = k C_1` (RMSWeb, figure 1).

    Runs without a result are left out. Dollars are None if every recorded cost is 0, which means that prices
    are unknown.
    """
    fields = {"prompt_tokens": "prompt_tokens", "response_tokens": "response_tokens"}
    fields |= {"usd": "cost", "judge_usd": "judge_cost"}
    cost: dict[str, Any] = {}
    there = results.has_result
    played = there.any(axis=1)
    for name, field in fields.items():
        cost[name], values = None, results.values(field)
        if values.any() or not name.endswith("usd"):
            means = (values * there).sum(axis=1)[played] / there.sum(axis=1)[played]
            cost[name] = _as_dict(statistics.bootstrap_mean(means, seed))
    usd = cost["usd"]
    return cost | {f"usd_at_{k}": usd and k * usd["mean"] for k in range(1, results.runs + 1)}


def _difference(first: Results, second: Results, seed: int) -> dict[str, Any]:
    runs = min(first.runs, second.runs)  # More runs would give one policy more chances to solve a task.
    won, other_won = (one.successes[:, :runs] for one in (first, second))
    there, other_there = (one.has_result[:, :runs] for one in (first, second))
    both = there & other_there
    solved = (won & both, first.values("steps")[:, :runs], other_won & both, second.values("steps")[:, :runs])
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
            **_difference(group, second.select(group.tasks), seed),
        }
        for name, group in groups.items()
        if len(group.tasks) >= MIN_GROUP_TASKS
    }
    # Each grouping is one family of tests: sites, kinds and levels are separate questions.
    corrected = statistics.holm([one["permutation_p"] for one in found.values()])
    return {name: {**one, "holm_p": p} for (name, one), p in zip(found.items(), corrected, strict=True)}


def _as_dict(interval: Interval | None) -> dict[str, float | int] | None:
    return None if interval is None else interval.as_dict()
