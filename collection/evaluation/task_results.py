"""Outcomes of a task's runs, extracted from trajectories; without their prompts and pages."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, model_validator

from collection.judges.base import Fate, cause, fate_of, unjudged
from rmsweb_jax.records.schema import Trajectory

# Outcomes of a run that a limit ended.
NEVER_DONE = ("max_steps", "failures", "timeout")
_ALWAYS = ("successes", "steps", "outcomes", "trajectory_ids")
_LATER = ("judged", "causes", "prompt_tokens", "response_tokens", "costs", "judge_costs")


class TaskResult(BaseModel):
    """A task's runs in order of attempt.

    Fields from `kind` on are empty in results from before they were recorded.

    Attributes:
      steps: decisions taken in each run.
      outcomes: how each run ended (`rmsweb_jax.records.schema.Outcome`).
      trajectory_ids: ids of the runs in the trajectory data set next to `results.json`.
      kind: the task's category.
      level: difficulty of the task in the benchmark.
      judged: False if the agent declared success and there is no verdict.
      causes: one line on why the run has no result; empty where it has one.
      prompt_tokens, response_tokens: of all calls in which the agent acted or read a page.
      costs: of the same calls, in US dollars; 0 where their price is unknown.
      judge_costs: of judging each run, in US dollars.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    task_id: str
    site: str
    successes: tuple[bool, ...]
    steps: tuple[int, ...]
    outcomes: tuple[str, ...]
    trajectory_ids: tuple[str, ...]
    kind: str = ""
    level: str = ""
    judged: tuple[bool, ...] = ()
    causes: tuple[str, ...] = ()
    prompt_tokens: tuple[int, ...] = ()
    response_tokens: tuple[int, ...] = ()
    costs: tuple[float, ...] = ()
    judge_costs: tuple[float, ...] = ()

    @property
    def fates(self) -> tuple[Fate, ...]:
        """What happened to each run."""
        judged = self.judged or (True,) * len(self.outcomes)
        runs = zip(self.outcomes, self.successes, judged, strict=True)
        return tuple(fate_of(*run) for run in runs)

    @model_validator(mode="after")
    def _one_value_a_run(self) -> TaskResult:
        given = [getattr(self, name) for name in _ALWAYS]
        given += [values for name in _LATER if (values := getattr(self, name))]
        if len({len(values) for values in given}) > 1:
            raise ValueError(f"{self.task_id}: a field does not have one value per run")
        if any(won and not judged for won, judged in zip(self.successes, self.judged, strict=False)):
            raise ValueError(f"{self.task_id}: a success without a verdict")
        return self


def run_result(trajectory: Trajectory, level: str) -> TaskResult:
    """Extracts the outcome of one run of a task."""
    calls = [step.usage for step in trajectory.steps]
    calls += [call.usage for step in trajectory.steps for call in step.extractions]
    return TaskResult(
        task_id=trajectory.task.task_id,
        site=trajectory.task.site,
        successes=(trajectory.success,),
        steps=(len(trajectory.steps),),
        outcomes=(trajectory.outcome,),
        trajectory_ids=(trajectory.trajectory_id,),
        kind=trajectory.task.category,
        level=level,
        judged=(not unjudged(trajectory),),
        causes=(cause(trajectory),),
        prompt_tokens=(sum(call.prompt_tokens for call in calls),),
        response_tokens=(sum(call.response_tokens for call in calls),),
        costs=(sum(call.cost for call in calls),),
        judge_costs=(trajectory.judge_usage.cost,),
    )


def join_runs(runs: Sequence[TaskResult]) -> TaskResult:
    """Joins the runs of one task, in the order given."""
    values = {
        name: tuple(itertools.chain.from_iterable(getattr(run, name) for run in runs))
        for name in (*_ALWAYS, *_LATER)
    }
    return runs[0].model_copy(update=values)
