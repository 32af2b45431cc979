"""The rounds of one task, the reflections between them (RMSWeb, section 3.1), and a report of the yield."""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from collection.fleet.scheduler import REFUSED
from collection.judges.base import Fate, awaits_verdict, fate
from collection.llm.actor import ActorModel, ReflectionRequest
from collection.teacher.mistakes import warnings_in
from rmsweb_jax.actions import ReplyError, recorded_reply
from rmsweb_jax.records.episodes import Fork
from rmsweb_jax.records.schema import CallUsage, Outcome, Record, Reflection, Step, Task, Trajectory

SOLVED_BY = 2  # Number of successes that make a task solved: RMSWeb's solve@2.


@dataclasses.dataclass(frozen=True)
class Job:
    """A task and its rules for rounds.

    Attributes:
      attempts: maximum number of rounds.
      stop_after: number of successes that end it early; 0 always plays `attempts` rounds.
      reflective: a round's reflection guides the next one.
      replays: number of times that a round is played again that site, network or machine ended; it is played
        when the run is resumed.
      fork: each round goes on from here (`collection.fleet.forks`).
    """

    task: Task
    attempts: int
    stop_after: int = 0
    reflective: bool = False
    replays: int = 0
    fork: Fork | None = None

    @property
    def needs_verdicts(self) -> bool:
        """True if a round's verdict must be known before the next round; other rounds are played at once."""
        return self.reflective or self.stop_after > 0

    def is_over(self, successes: Sequence[bool]) -> bool:
        """Returns True if no further round is due after rounds with these successes."""
        return len(successes) >= self.attempts or 0 < self.stop_after <= sum(successes)


class Reflected(Record):
    """A journaled reflection: guidance and its cost."""

    reflection: Reflection
    usage: CallUsage = CallUsage()


class SetAside(Record):
    """A journaled decision: a task that is not played to its end.

    Attributes:
      set_aside: its id.
    """

    set_aside: str
    reason: str


def guidance_of(job: Job, rounds: Mapping[int, Round], reflections: Mapping[int, Reflected]) -> str | Round:
    """Returns the guidance of a task's next round (the paper's rho), or the round to reflect on before it.

    A refused round teaches the agent nothing about the task, so the guidance stays as it was.

    Args:
      rounds, reflections: of the task, by attempt.
    """
    guidance = ""
    for attempt, played in sorted(rounds.items()):
        if job.reflective and played.outcome not in REFUSED:
            if attempt not in reflections:
                return played
            guidance = reflections[attempt].reflection.guidance
    return guidance


_OUTCOMES = {
    "done": "it declared completion",
    "max_steps": "the step limit was reached",
    "failures": "too many steps failed in a row",
    "timeout": "the time limit was reached",
    "blocked": "the site refused access",
    "captcha": "the site asked for a captcha",
    "unreachable": "the start page could not be opened",
    "crashed": "the browser crashed",
}


def summarize(trajectory: Trajectory) -> str:
    """Returns one line per step: `number. URL | thinking | goal: GOAL | N actions` (RMSWeb, section 3.1)."""
    return "\n".join(_summarize_step(step) for step in trajectory.steps)


def _summarize_step(step: Step) -> str:
    thinking = goal = "?"
    try:
        reply, _ = recorded_reply(step.response)
    except ReplyError:
        goal = step.error or goal
    else:
        thinking, goal = reply.thinking or reply.memory, reply.next_goal
    cells = (step.observation.url, thinking, f"goal: {goal}", f"{len(step.results)} actions")
    return f"{step.number}. " + " | ".join(" ".join(cell.split()) for cell in cells)


def describe_outcome(trajectory: Trajectory) -> str:
    """Describes the end of a round; starts with `reached the goal` if and only if it was a success."""
    if trajectory.success:
        return "reached the goal"
    text = f"did not reach the goal: {_OUTCOMES[trajectory.outcome]}"
    if trajectory.outcome == "done" and trajectory.declared_success:
        text += ", but the request was not fulfilled"
    return text + (f" ({trajectory.detail})" if trajectory.detail else "")


def reflect(trajectory: Trajectory, guidance: str, actor: ActorModel) -> Reflected:
    """Asks for the guidance of the next round: tau_N, rho_{N-1} -> rho_N (RMSWeb, section 3.1).

    Without a usable answer (blocked, cut off) the guidance stays as it was.
    """
    reply = actor.reflect(
        ReflectionRequest(
            task_id=trajectory.task.task_id,
            attempt=trajectory.attempt,
            objective=trajectory.task.objective,
            summary=summarize(trajectory),
            outcome=describe_outcome(trajectory),
            guidance=guidance,
        )
    )
    text = guidance if reply.problem else reply.text.strip()
    reflection = Reflection(task_id=trajectory.task.task_id, attempt=trajectory.attempt, guidance=text)
    return Reflected(reflection=reflection, usage=reply.usage)


@dataclasses.dataclass(frozen=True)
class Round:
    """Summary of an episode: enough to go on and to report, without its pages.

    Attributes:
      tokens: of acting and judging, of prompts and responses.
      cost: of the same calls, in US dollars.
      disallowed: robots.txt disallows the start page.
      place: of its record in the journal.
    """

    trajectory_id: str
    task_id: str
    site: str
    attempt: int
    success: bool
    outcome: Outcome
    fate: Fate
    awaits_verdict: bool
    steps: int
    seconds: float
    tokens: int
    cost: float
    detail: str = ""
    disallowed: bool = False
    place: int = -1

    @classmethod
    def of(cls, trajectory: Trajectory, place: int = -1) -> Round:
        task, calls = trajectory.task, list(_calls(trajectory))
        return cls(
            trajectory_id=trajectory.trajectory_id,
            task_id=task.task_id,
            site=task.site,
            attempt=trajectory.attempt,
            success=trajectory.success,
            outcome=trajectory.outcome,
            fate=fate(trajectory),
            awaits_verdict=awaits_verdict(trajectory),
            steps=len(trajectory.steps),
            seconds=trajectory.seconds,
            tokens=sum(call.tokens for call in calls),
            cost=sum(call.cost for call in calls),
            detail=trajectory.detail,
            disallowed=any(one.kind == "robots_refused" for one in trajectory.incidents),
            place=place,
        )


def yield_report(trajectories: Iterable[Trajectory], rounds: int) -> dict[str, Any]:
    """Reports the yield of collection; reads trajectories one at a time.

    Returns:
      Counts, success by round, solve@2 by round over the tasks that failed round 1, mean steps of
      successes, outcomes, success by site, and the price of acting and judging in US dollars.
    """
    played = [Round.of(trajectory) for trajectory in trajectories]
    tasks = group_rounds(played)
    wins = [one for one in played if one.success]
    return {
        "tasks": len(tasks),
        "trajectories": len(played),
        "steps": sum(one.steps for one in played),
        "successes": len(wins),
        "solved_tasks": sum(any(one.success for one in runs) for runs in tasks.values()),
        "failed_first_round": sum(not runs[0].success for runs in tasks.values()),
        "success_by_round": _success_by_round(played, rounds),
        "solve_at_2_by_round": _solve_by_round(tasks, rounds),
        "mean_steps_of_successes": statistics.fmean(one.steps for one in wins) if wins else None,
        "outcomes": dict(Counter(one.outcome for one in played).most_common()),
        "first_round_success_by_site": {
            site: _share([runs[0].success for runs in tasks.values() if runs[0].site == site])
            for site in sorted({one.site for one in played})
        },
        "episode_seconds": sum(one.seconds for one in played),
        "episode_cost_usd": sum(one.cost for one in played),
    }


def group_rounds(played: Iterable[Round]) -> dict[str, list[Round]]:
    """Groups rounds by task, in order of attempt."""
    tasks: defaultdict[str, list[Round]] = defaultdict(list)
    for one in sorted(played, key=lambda one: (one.task_id, one.attempt)):
        tasks[one.task_id].append(one)
    return dict(tasks)


def _success_by_round(played: Sequence[Round], rounds: int) -> dict[str, float | None]:
    return {
        str(attempt): _share([one.success for one in played if one.attempt == attempt])
        for attempt in range(1, rounds + 1)
    }


def _solve_by_round(tasks: Mapping[str, Sequence[Round]], rounds: int) -> dict[str, float | None]:
    # RMSWeb reports solve@2 on the tasks that failed round 1.
    failed = [runs for runs in tasks.values() if not runs[0].success]
    return {
        str(last): _share([sum(one.success for one in runs[:last]) >= SOLVED_BY for runs in failed])
        for last in range(1, rounds + 1)
    }


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


def _calls(trajectory: Trajectory) -> Iterator[CallUsage]:
    for step in trajectory.steps:
        yield step.usage
        yield from (extraction.usage for extraction in step.extractions)
    yield trajectory.judge_usage


def reflection_report(reflections: Sequence[Reflected]) -> dict[str, Any]:
    """Counts reflections, their cost, and the kinds of mistake that guidance names."""
    named = Counter(kind for one in reflections for kind in warnings_in(one.reflection.guidance))
    return {
        "reflections": len(reflections),
        "reflection_cost_usd": sum(one.usage.cost for one in reflections),
        "mistakes_named_in_guidance": dict(named.most_common()),
    }
