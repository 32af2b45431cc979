"""The interface of judges, their verdicts, and what happened to a run (its fate)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Literal, Protocol, get_args

from collection.judges.notes import TaskNotes
from collection.llm.model import ImageSource
from rmsweb_jax.records.schema import CallUsage, JudgeFingerprint, Task, Trajectory

NO_ANSWER = "Failed without a call: no final answer."
GAVE_UP = "Failed without a call: the agent itself declared that it had not succeeded."
# Texts of verdicts that no model was asked for.
WITHOUT_A_CALL = (NO_ANSWER, GAVE_UP)


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


def with_verdict(
    trajectory: Trajectory, judge: Judge, images: ImageSource, redact: Callable[[str], str] = str
) -> Trajectory:
    """Asks a judge about a run; returns the run with its verdict.

    Args:
      redact: removes secrets from the judge's words.

    Raises:
      UserError: no call to the judge's model can succeed.
    """
    verdict = judge.judge(trajectory, images)
    return trajectory.model_copy(
        update={
            "success": trajectory.outcome == "done" and verdict.success is True,
            "judge": "" if verdict.success is None else judge.name,
            "judge_text": redact(verdict.text),
            "judge_usage": verdict.usage,
            "judge_score": verdict.score,
            "judge_fingerprint": verdict.fingerprint,
        }
    )


def declared(trajectory: Trajectory) -> bool:
    """Returns True if the agent declared success."""
    return trajectory.outcome == "done" and trajectory.declared_success is True


# A request with a condition, which may fail to hold: "..., if it is offered", "let me know if none are left".
_CONDITION = re.compile(r"\b(?:if|whether|unless|otherwise)\b", re.IGNORECASE)
# Words for what cannot be had, in a request or a rubric.
_ABSENCE = re.compile(
    r"\b(?:unavailab\w+|impossible|sold[ -]out|no longer|fully booked|none (?:exists?|(?:is|are) )"
    r"|no (?:available|matching|suitable|such|results?|match(?:es)?)\b)"
    r"|(?:\bnot|\bcannot|n['\u2019]t) (?:be )?(?:available|possible|offered|exist|found)",
    re.IGNORECASE,
)


def allows_no(task: Task, notes: TaskNotes) -> bool:
    """Returns True if "that is not available" may be the right answer to a task.

    It may be if the request has a condition (if, whether, unless, otherwise), or if the request or a line of
    the task's rubric speaks of something that cannot be had. The rule only decides whether a judge is asked
    about a run that the agent ended with `done(success=false)`; the judge decides whether the answer is
    right. So a rule that says yes too often costs a call and no wrong verdict. It holds for all 189 tasks of
    WebTailBench that ask for it. Reference answers are not looked at: they may be withheld from a judge.
    """
    request = "\n".join((task.objective, *task.constraints))
    rubric = (text for line in notes.rubric for text in (line.criterion, line.description, line.condition))
    return bool(_CONDITION.search(request)) or any(map(_ABSENCE.search, (request, *rubric)))


def failed_without_a_call(
    trajectory: Trajectory, notes: TaskNotes, needs_answer: bool = False
) -> Verdict | None:
    """Returns the verdict on a run that needs no judge, or None if a judge must be asked.

    A run fails that did not end in `done`, or in which the agent declared that it had not succeeded, unless
    its answer says so and the task allows that. An imported run may not record what the agent declared; such
    runs are judged.

    Args:
      notes: of the task.
      needs_answer: a run that ends without an answer also fails.
    """
    answered = bool(trajectory.final_text.strip())
    if trajectory.outcome != "done" or not trajectory.steps or (needs_answer and not answered):
        return Verdict(False, NO_ANSWER)
    said_no = trajectory.declared_success is False and answered and allows_no(trajectory.task, notes)
    unknown = trajectory.declared_success is None and "declared_success" in trajectory.missing
    return None if declared(trajectory) or said_no or unknown else Verdict(False, GAVE_UP)


def unjudged(trajectory: Trajectory) -> bool:
    """Returns True if a run may have succeeded but has no verdict.

    Such a run was on live pages and has neither reward nor verdict, although the agent declared success or a
    judge was asked about it. It does not count as a success; reports give their number.
    """
    return (
        trajectory.task.environment == "web"
        and trajectory.outcome == "done"
        and (declared(trajectory) or bool(trajectory.judge_text))
        and trajectory.reward is None
        and not trajectory.judge
    )


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
