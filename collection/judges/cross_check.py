"""Cross-check: re-examines runs that a judge failed, with more evidence (RMSWeb, "Cross-harness check").

A failure that is not confirmed is a false negative, of one of three kinds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

from collection.agent.prompt import fenced_text
from collection.judges.base import WITHOUT_A_CALL
from collection.judges.evidence import history, page, render, screenshots
from collection.judges.judgements import Judgement
from collection.judges.model_judge import Answer, NoVerdictError, Questions, answer_schema, read_answer
from collection.llm.model import ImageSource, Model
from rmsweb_jax.records.schema import CallUsage, Step, Trajectory

# Evidence only in the page's text; evidence in screenshots that the judge missed or did not get; evidence
# that the judge got and misread; and a confirmed failure.
Finding = Literal["dom_only_evidence", "incomplete_screenshots", "judge_error", "confirmed_failure"]
FINDINGS: tuple[Finding, ...] = get_args(Finding)
FALSE_NEGATIVES = FINDINGS[:3]
SCREENSHOTS = 30  # The limit of WebJudge.
# Characters (about 4 per token) of all pages together, shared equally; minimum per page.
_PAGES_CHARS = 80_000
_LEAST_PAGE_CHARS = 1_000
_MAX_WORDS_CHARS = 8_000


class CrossChecked(BaseModel):
    """The result for one failure; a line of `cross_check.jsonl`.

    Attributes:
      judge: the judge that failed the run.
      finding: None if the reply was unusable.
      text: the model's reply, followed by the reason if it was unusable.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    trajectory_id: str
    task_id: str
    judge: str
    finding: Finding | None
    text: str
    usage: CallUsage
    key: str


class FindingAnswer(Answer):
    reason: str
    finding: Finding


class CrossCheck:
    """Re-examines failures with a model that sees the pages of all steps, and, if it may, screenshots."""

    def __init__(self, model: Model, screenshots: bool = True):
        self.model, self._screenshots = model, screenshots

    def check(self, run: Trajectory, judgement: Judgement, seen: str, images: ImageSource) -> CrossChecked:
        """Asks one question about a failed run.

        Args:
          seen: the evidence that the judge had, as a phrase.

        Raises:
          UserError: no model call can succeed.
        """
        shots = _spread(screenshots(run), SCREENSHOTS) if self._screenshots else []
        text = render(
            "cross_check.j2",
            run,
            seen=seen,
            verdict=fenced_text(judgement.text, _MAX_WORDS_CHARS),
            steps=history(run),
            pages=_pages(run),
            shots=[step for step, _ in shots],
        )
        questions, finding = Questions(self.model, run, images), None
        try:
            words, answer = questions.decide(
                text,
                [shot for _, shot in shots],
                answer_schema(FindingAnswer),
                lambda reply: read_answer(reply, FindingAnswer),
            )
            finding = answer.finding
        except NoVerdictError as error:
            words = str(error)
        return CrossChecked(
            trajectory_id=run.trajectory_id,
            task_id=run.task.task_id,
            judge=judgement.judge,
            finding=finding,
            text=words,
            usage=questions.usage,
            key=questions.key,
        )


def is_worth_it(run: Trajectory, judgement: Judgement) -> bool:
    """Returns True if a judge looked at a run that the agent had finished, and failed it."""
    finished = run.outcome == "done" and bool(run.steps)
    return finished and judgement.success is False and judgement.text not in WITHOUT_A_CALL


def summarize(checked: Iterable[CrossChecked]) -> dict[str, Any]:
    """Counts the findings, and the shares of the three kinds among the false negatives."""
    found = [one.finding for one in checked]
    counts = {finding: found.count(finding) for finding in FINDINGS}
    false = sum(counts[finding] for finding in FALSE_NEGATIVES)
    return {
        "checked": len(found),
        "without_finding": found.count(None),
        "findings": counts,
        "false_negatives": false,
        "shares": {finding: counts[finding] / false if false else None for finding in FALSE_NEGATIVES},
    }


def _pages(run: Trajectory) -> list[dict[str, Any]]:
    """Renders every distinct page at its last occurrence; long pages are cut so that all fit."""
    last: dict[str, Step] = {step.observation.fingerprint: step for step in run.steps}
    steps = sorted(last.values(), key=lambda step: step.number)
    limit = max(_LEAST_PAGE_CHARS, _PAGES_CHARS // max(1, len(steps)))
    return [page(step, limit) for step in steps]


def _spread(shots: list[tuple[int, str]], most: int) -> list[tuple[int, str]]:
    """Selects at most `most` items, evenly spaced from the first to the last."""
    if len(shots) <= most:
        return shots
    return [shots[round(at * (len(shots) - 1) / (most - 1))] for at in range(most)]
