"""`own_rubric`: our judge by points for each criterion of a task's rubric, and a separate outcome.

After the verifier of WebTailBench (Awadallah et al. 2025, Fara-7B), whose tasks come with rubrics. The prompt
is our own, and it is not the benchmark's official verifier.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from collection.agent.prompt import fenced_line, fenced_text
from collection.judges.asking import ModelJudge, NoVerdictError, Questions
from collection.judges.base import Verdict
from collection.judges.evidence import TEXT_LIMITS, history, page, render, screenshots
from collection.judges.notes import Criterion, TaskNotes
from collection.judges.reading import read_object
from rmsweb_jax.actions.json_schema import plain_schema
from rmsweb_jax.records.schema import Trajectory

# The agent also reads pages as text, so the last pages and the history suffice for most criteria.
SCREENSHOTS = 10
NO_RUBRIC = "[no verdict: this task comes without a rubric; take config.judge.method=own_outcome for it]"
_MAX_TEXT_CHARS = 2_000
_OUTCOMES: dict[str, bool | None] = {"success": True, "failure": False, "unknown": None}


class _RubricModel(BaseModel):
    """Base of answer models. Fields are in writing order, so that the model reasons before it decides."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Score(_RubricModel):
    """Points of a run for one criterion."""

    number: int
    reason: str
    applies: bool
    points: float = Field(ge=0, allow_inf_nan=False)


class RubricAnswer(_RubricModel):
    """Scores of all criteria, and the outcome."""

    criteria: list[Score]
    reason: str
    outcome: Literal["success", "failure", "unknown"]


class OwnRubricJudge(ModelJudge):
    """Asks one question, answered in JSON. `Verdict.score` is the share of points of applicable criteria."""

    method = "own_rubric"
    templates = ("rubric.j2",)
    evidence = (("screenshots", SCREENSHOTS), *TEXT_LIMITS)
    sees = (
        "a rubric, the actions, the final answer, the last page as text and the last "
        f"{SCREENSHOTS} screenshots"
    )

    def _decide(self, trajectory: Trajectory, notes: TaskNotes, questions: Questions) -> Verdict:
        rubric = notes.rubric
        if not rubric:
            raise NoVerdictError(NO_RUBRIC)
        shots = [shot for _, shot in screenshots(trajectory)][-SCREENSHOTS:]
        text = render(
            "rubric.j2",
            trajectory,
            screenshots=len(shots),
            rubric=[_fenced(criterion) for criterion in rubric],
            steps=history(trajectory),
            page=page(trajectory.steps[-1]),
        )
        read = functools.partial(read_answer, rubric=rubric)
        words, answer = questions.decide(text, read, shots, answer_schema(len(rubric)))
        return Verdict(_OUTCOMES[answer.outcome], words, score=process_score(answer, rubric))


def read_answer(text: str, rubric: Sequence[Criterion]) -> RubricAnswer:
    """Parses an answer with points for each criterion.

    Raises:
      ValueError: another form; a missing, duplicate or unknown criterion; too many points; an unconditional
        criterion marked as not applicable; no applicable criterion.
    """
    try:
        answer = RubricAnswer.model_validate(read_object(text))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    numbers = [score.number for score in answer.criteria]
    if sorted(numbers) != list(range(1, len(rubric) + 1)):
        raise ValueError(f"criteria {numbers} instead of each of 1 to {len(rubric)} once")
    for score in answer.criteria:
        criterion = rubric[score.number - 1]
        if score.points > criterion.max_points:
            raise ValueError(f"criterion {score.number}: {score.points:g} points of {criterion.max_points:g}")
        if not score.applies and not criterion.condition:
            raise ValueError(f"criterion {score.number} has no condition, and always applies")
    if not any(score.applies for score in answer.criteria):
        raise ValueError("no criterion applies")
    return answer


def process_score(answer: RubricAnswer, rubric: Sequence[Criterion]) -> float:
    """Returns the share of possible points, in [0, 1]; criteria that do not apply are excluded."""
    counted = [score for score in answer.criteria if score.applies]
    return sum(score.points for score in counted) / sum(
        rubric[score.number - 1].max_points for score in counted
    )


def answer_schema(criteria: int) -> dict[str, Any]:
    """Returns the JSON schema of an answer to a rubric with so many `criteria`."""
    score = plain_schema(Score.model_json_schema())
    del score["description"]  # The docstring is not meant for the model.
    scores = {"type": "array", "items": score, "minItems": criteria, "maxItems": criteria}
    outcome = {"type": "string", "enum": list(_OUTCOMES)}
    properties = {"criteria": scores, "reason": {"type": "string"}, "outcome": outcome}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _fenced(criterion: Criterion) -> dict[str, Any]:
    return {
        "criterion": fenced_line(criterion.criterion, _MAX_TEXT_CHARS),
        "description": fenced_text(criterion.description, _MAX_TEXT_CHARS),
        "condition": fenced_line(criterion.condition, _MAX_TEXT_CHARS),
        "max_points": f"{criterion.max_points:g}",
    }
