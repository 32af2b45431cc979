"""What a judge is asked and what it says."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from collection.llm.model import ImageSource
from rmsweb_jax.records.schema import CallUsage, Trajectory

NO_ANSWER = "Failed without a call: no final answer."
GAVE_UP = "Failed without a call: the agent itself declared that it had not succeeded."


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a judge made of an episode.

    Attributes:
      success: None when it could not tell, did not say it in the form asked for, or did not answer.
      text: its own words, or why there are none; where there is no verdict, never empty.
      usage: of all its calls, whenever they were made.
      score: how much of the task was done, in [0, 1], apart from the verdict; None where nobody said.
      key: of the last question, in the cache of replies; empty when nobody was asked.
    """

    success: bool | None
    text: str
    usage: CallUsage = dataclasses.field(default_factory=CallUsage)
    score: float | None = None
    key: str = ""

    def __post_init__(self) -> None:
        # The record is to say why.
        if self.success is None and not self.text.strip():
            raise ValueError("no verdict and no reason")


class Judge(Protocol):
    """Judges finished episodes. Raises `UserError` when no question to its model will be answered."""

    @property
    def name(self) -> str:
        """As written to `Trajectory.judge`."""
        ...

    def judge(self, trajectory: Trajectory, images: ImageSource) -> Verdict: ...


def declared(trajectory: Trajectory) -> bool:
    """Whether the agent said that it had done the task."""
    return trajectory.outcome == "done" and trajectory.declared_success is True


def failed_without_a_call(trajectory: Trajectory, needs_answer: bool) -> Verdict | None:
    """The verdict on a run that its agent did not bring to an end; None where a judge has to be asked.

    Of imported runs it may not be known whether the agent thought that it had succeeded; those are judged.

    Args:
      needs_answer: an end without words is a failure, too.
    """
    ended = trajectory.outcome == "done" and trajectory.steps
    if not ended or (needs_answer and not trajectory.final_text.strip()):
        return Verdict(False, NO_ANSWER)
    unknown = trajectory.declared_success is None and "declared_success" in trajectory.missing
    return None if declared(trajectory) or unknown else Verdict(False, GAVE_UP)


def unjudged(trajectory: Trajectory) -> bool:
    """Whether a run may have been a success and nobody could say so, or nobody was asked.

    That is: on live pages, declared a success, without reward or verdict. Such a run counts as no success;
    reports tell how many there are.
    """
    return (
        trajectory.task.environment == "web"
        and declared(trajectory)
        and trajectory.reward is None
        and not trajectory.judge
    )
