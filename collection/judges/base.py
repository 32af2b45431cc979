"""The judge interface and its verdict."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from collection.llm.model import ImageSource
from rmsweb_jax.records.schema import CallUsage, JudgeFingerprint, Trajectory

NO_ANSWER = "Failed without a call: no final answer."
GAVE_UP = "Failed without a call: the agent itself declared that it had not succeeded."


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A judge's verdict on an episode.

    Attributes:
      success: None when the judge was undecided, gave no reply, or not in the required form.
      text: the judge's reply, or the reason why there is none; never empty without a verdict.
      usage: tokens of all calls, cached ones included.
      score: share of the task that was done, in [0, 1], independent of the verdict; None if not scored.
      key: cache key of the last call; empty without a call.
      fingerprint: what the judge was; None if that is unknown.
    """

    success: bool | None
    text: str
    usage: CallUsage = dataclasses.field(default_factory=CallUsage)
    score: float | None = None
    key: str = ""
    fingerprint: JudgeFingerprint | None = None

    def __post_init__(self) -> None:
        # The record must give a reason.
        if self.success is None and not self.text.strip():
            raise ValueError("no verdict and no reason")


class Judge(Protocol):
    """Judges finished episodes. Raises `UserError` when no call to its model can succeed."""

    @property
    def name(self) -> str:
        """Name of the judge in `Trajectory.judge`."""
        ...

    def judge(self, trajectory: Trajectory, images: ImageSource) -> Verdict: ...


def declared(trajectory: Trajectory) -> bool:
    """Returns True if the agent declared success."""
    return trajectory.outcome == "done" and trajectory.declared_success is True


def failed_without_a_call(trajectory: Trajectory, needs_answer: bool) -> Verdict | None:
    """Returns the verdict on a run that the agent did not finish, or None if a judge must be asked.

    An imported run may not record whether the agent declared success; such runs are judged.

    Args:
      needs_answer: a run that ends without an answer also fails.
    """
    ended = trajectory.outcome == "done" and trajectory.steps
    if not ended or (needs_answer and not trajectory.final_text.strip()):
        return Verdict(False, NO_ANSWER)
    unknown = trajectory.declared_success is None and "declared_success" in trajectory.missing
    return None if declared(trajectory) or unknown else Verdict(False, GAVE_UP)


def unjudged(trajectory: Trajectory) -> bool:
    """Returns True if a run may have succeeded but has no verdict.

    Such a run was on live pages, declared success, and has neither reward nor verdict. It does not count
    as a success; reports give their number.
    """
    return (
        trajectory.task.environment == "web"
        and declared(trajectory)
        and trajectory.reward is None
        and not trajectory.judge
    )


# Some pages give partial rewards; training data must contain full successes only.
FULL_REWARD = 1.0
NO_REWARD = "The environment paid no reward."
NO_VERDICT = "No verdict recorded."


class EnvironmentReward:
    """Passes runs with declared success and full reward; implements `Judge`."""

    name = "reward"
    fingerprint = JudgeFingerprint(method="reward")

    def judge(self, trajectory: Trajectory, images: ImageSource) -> Verdict:
        if trajectory.reward is None:
            return Verdict(None, NO_REWARD, fingerprint=self.fingerprint)
        success = declared(trajectory) and trajectory.reward >= FULL_REWARD
        return Verdict(success, "", fingerprint=self.fingerprint)


class Recorded:
    """Returns the verdict stored in the record; implements `Judge`."""

    name = "recorded"

    def judge(self, trajectory: Trajectory, images: ImageSource) -> Verdict:
        text, usage = trajectory.judge_text, trajectory.judge_usage
        fingerprint = trajectory.judge_fingerprint
        if not trajectory.judge:
            return Verdict(None, text or NO_VERDICT, usage, fingerprint=fingerprint)
        return Verdict(trajectory.success, text, usage, trajectory.judge_score, fingerprint=fingerprint)
