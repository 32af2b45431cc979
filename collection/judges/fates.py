"""What happened to a run: one word for each way in which it may have ended."""

from __future__ import annotations

from typing import Literal, get_args

from collection.judges.base import unjudged
from rmsweb_jax.records.schema import Trajectory

# `blocked`: the site refused the agent or asked for a captcha; `unreachable`: the start page did not open;
# `crashed`: browser or process were lost; `unjudged`: it may be a success, and there is no verdict.
Fate = Literal["solved", "failed", "unjudged", "blocked", "unreachable", "crashed"]
FATES: tuple[Fate, ...] = get_args(Fate)
# Runs that the site, the network or the machine ended: they say nothing about the agent.
KEPT_OUT: frozenset[Fate] = frozenset({"blocked", "unreachable", "crashed"})
# Runs without a result.
WITHOUT_RESULT: frozenset[Fate] = KEPT_OUT.union(("unjudged",))

_OF_OUTCOME: dict[str, Fate] = {
    "blocked": "blocked",
    "captcha": "blocked",
    "unreachable": "unreachable",
    "crashed": "crashed",
}


def fate_of(outcome: str, success: bool, judged: bool) -> Fate:
    """Returns the fate of a run.

    Args:
      outcome: `Trajectory.outcome`.
      judged: False if the run may be a success and has no verdict.
    """
    if success:
        return "solved"
    return _OF_OUTCOME.get(outcome) or ("failed" if judged else "unjudged")


def fate(trajectory: Trajectory) -> Fate:
    return fate_of(trajectory.outcome, trajectory.success, not unjudged(trajectory))


def cause(trajectory: Trajectory) -> str:
    """Returns one line on why a run has no result; empty for all others.

    The last line of the judge's reply says why there is no verdict.
    """
    what = fate(trajectory)
    if what in KEPT_OUT:
        return " ".join((trajectory.detail or trajectory.outcome).split())
    if what == "unjudged":
        return " ".join(trajectory.judge_text.strip().rpartition("\n")[2].split()) or "no judge was asked"
    return ""


def awaits_verdict(trajectory: Trajectory) -> bool:
    """Returns True for a run on live pages that a judge has to see and has not seen."""
    return (
        trajectory.task.environment == "web"
        and trajectory.reward is None
        and not (trajectory.judge or trajectory.judge_text)
        and fate(trajectory) not in KEPT_OUT
    )
