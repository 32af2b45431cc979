"""Judges that ask a model one question, which it answers in JSON, and the handling of unusable replies.

The prompts of `own_outcome` and `own_rubric` are our own: they are no benchmark's official judge. They hold
to the rules that official judges have, in our words (`prompts/rules.j2`). `own_outcome` is made after the
outcome judge of RMSWeb's appendix, `own_rubric` after the verifier of WebTailBench (Fara-7B).
"""

from __future__ import annotations

import abc
import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

import rmsweb_jax
from collection.agent.prompt import fenced_line, fenced_text
from collection.judges.base import Verdict, failed_without_a_call
from collection.judges.evidence import (
    MAX_ANSWER_CHARS,
    TEXT_LIMITS,
    history,
    page,
    prompt_sha256,
    render,
    screenshots,
)
from collection.judges.notes import Criterion, Reference, TaskNotes
from collection.llm.calls import NoAnswerError
from collection.llm.model import ImageSource, Model, ModelReply, ModelRequest, call_seed, content_key
from rmsweb_jax.actions.json_schema import plain_schema
from rmsweb_jax.records.schema import CallUsage, ImagePart, JudgeFingerprint, Message, TextPart, Trajectory

# Added to a question that is asked again: the cache goes by its words, which a seed does not change.
_AGAIN = "again.j2"
NO_RUBRIC = "[no verdict: this task comes without a rubric; take config.judge.method=own_outcome for it]"
UNDECIDED = "[no verdict: the evidence does not allow a decision]"
_MAX_RUBRIC_CHARS = 2_000
# The Markdown fence that some models put around JSON.
_FENCED = re.compile(r"\A\s*```(?:json)?\s(.*)```\s*\Z", re.DOTALL)


class NoVerdictError(Exception):
    """A judgement ended without a verdict; the message gives the reason."""


class UnusableReplyError(NoVerdictError):
    """A reply came, and it cannot be used: refused, blocked, truncated, empty, or in another form."""


class Answer(BaseModel):
    """Base of answers. Fields are in writing order, so that the model reasons before it decides."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


A = TypeVar("A", bound=Answer)
Outcome = Literal["success", "failure", "unknown"]
_SUCCESS: dict[Outcome, bool | None] = {"success": True, "failure": False, "unknown": None}


class OutcomeAnswer(Answer):
    """Answer to a question without a rubric."""

    reason: str
    outcome: Outcome


class Score(Answer):
    """Points of a run for one criterion."""

    number: int
    reason: str
    applies: bool
    points: float = Field(ge=0, allow_inf_nan=False)


class RubricAnswer(Answer):
    """Scores of all criteria, and the outcome."""

    criteria: list[Score]
    reason: str
    outcome: Outcome

    def score(self, rubric: Sequence[Criterion]) -> float:
        """Returns the share of possible points, in [0, 1]; criteria that do not apply are excluded.

        Raises:
          ValueError: a criterion is missing, repeated or unknown, has too many points, or does not apply
            although it has no condition; or none applies.
        """
        numbers = [one.number for one in self.criteria]
        if sorted(numbers) != list(range(1, len(rubric) + 1)):
            raise ValueError(f"criteria {numbers} instead of each of 1 to {len(rubric)} once")
        earned = most = 0.0
        for one in self.criteria:
            criterion = rubric[one.number - 1]
            if one.points > criterion.max_points:
                raise ValueError(f"criterion {one.number}: {one.points:g} points of {criterion.max_points:g}")
            if one.applies:
                earned, most = earned + one.points, most + criterion.max_points
            elif not criterion.condition:
                raise ValueError(f"criterion {one.number} has no condition, and always applies")
        if not most:
            raise ValueError("no criterion applies")
        return earned / most


def answer_schema(answer: type[Answer], items: int = 0) -> dict[str, Any]:
    """Returns the JSON schema of an answer, as APIs take it: without references and descriptions.

    Args:
      items: length of its list, if it has one.
    """
    schema = answer.model_json_schema()

    def inline(part: Any) -> Any:
        if isinstance(part, list):
            return [inline(one) for one in part]
        if not isinstance(part, dict):
            return part
        part = schema["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        return {name: inline(one) for name, one in part.items() if name != "description"}

    found = plain_schema(inline(schema))
    for one in found["properties"].values():
        if one["type"] == "array":
            one |= {"minItems": items, "maxItems": items}
    return found


def read_answer(text: str, answer: type[A]) -> A:
    """Parses a reply that is one JSON object, optionally in a Markdown fence.

    Raises:
      ValueError: anything else, also a repeated key, of which a plain parser would drop one.
    """
    fenced = _FENCED.match(text)
    try:
        return answer.model_validate(json.loads(fenced[1] if fenced else text, object_pairs_hook=_each_once))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is repeated")
    return found


class Questions:
    """The model calls of one judgement.

    Args:
      keep_rejected: keep replies that cannot be used; else a later run asks for them again.

    Attributes:
      images: resolves the run's screenshots.
      key: cache key of the last call.
      model_version: name of the model in its last answer.
    """

    def __init__(self, model: Model, trajectory: Trajectory, images: ImageSource, keep_rejected: bool = True):
        self._model, self._trajectory, self.images = model, trajectory, images
        self._keep_rejected = keep_rejected
        self._usages: dict[str, CallUsage] = {}
        self.key = self.model_version = ""

    @property
    def usage(self) -> CallUsage:
        """Tokens of all calls, cached ones included; summed in an order that does not depend on time."""
        usages = [self._usages[key] for key in sorted(self._usages)]
        return CallUsage(
            **{name: sum(getattr(one, name) for one in usages) for name in CallUsage.model_fields}
        )

    def decide(
        self, text: str, pictures: Sequence[str], schema: dict[str, Any], read: Callable[[str], A]
    ) -> tuple[str, A]:
        """Asks a question, and once more, with another seed, if the reply cannot be used.

        Args:
          pictures: SHA-256 of the screenshots that follow the text.
          read: parses a reply; raises ValueError if it has another form.

        Returns:
          The reply, and what `read` made of it.

        Raises:
          UnusableReplyError: both replies were refused, blocked, truncated, empty or in another form.
          NoVerdictError: all attempts at a call failed.
          UserError: no call can succeed: an invalid key, a spent budget, a wait of hours.
        """
        again = f"{text}\n\n{render(_AGAIN, self._trajectory)}"
        unusable = UnusableReplyError()
        requests = self._request(text, pictures, schema), self._request(again, pictures, schema, "again")
        for request in requests:
            try:
                words = self._send(request)
                try:
                    return words, read(words)
                except ValueError as error:
                    raise UnusableReplyError(f"{words}\n[no verdict: {error}]".strip()) from error
            except UnusableReplyError as error:
                unusable = error
        if not self._keep_rejected:
            for request in requests:
                self._model.reject(request)
        raise unusable

    def pass_on(self, chat: Mapping[str, Any], repeat: int) -> str:
        """Sends another program's chat-completions request as it is; returns the reply, usable or not.

        Args:
          chat: as `ModelRequest.chat`.
          repeat: number of equal requests before it, whose replies are not wanted again.

        Raises:
          NoVerdictError, UserError: as `decide`.
        """
        return self._reply(ModelRequest((), "judge", self._seed(repeat), chat=chat, repeat=repeat))[0]

    def _request(
        self, text: str, pictures: Sequence[str], schema: dict[str, Any], *marks: str
    ) -> ModelRequest:
        parts = (TextPart(text=text), *(ImagePart(sha256=picture) for picture in pictures))
        message = Message(role="user", content=parts)
        return ModelRequest((message,), "judge", self._seed(*marks), self.images, schema)

    def _seed(self, *marks: object) -> int:
        # Fixed per run, so that a repeated judgement sends the same requests.
        run = self._trajectory
        return call_seed("judge", run.task.task_id, run.actor, run.attempt, *marks)

    def _reply(self, request: ModelRequest) -> tuple[str, ModelReply]:
        # Threads of an official judge's code ask at once.
        self.key = key = content_key(self._model.name, request)
        try:
            reply, _ = self._model.ask(request)
        except NoAnswerError as error:
            raise NoVerdictError(f"[no answer: {error}]") from error
        self._usages[key] = reply.usage
        self.model_version = reply.model_version or self.model_version
        # A lone surrogate cannot be encoded as UTF-8.
        return reply.text.encode(errors="replace").decode(), reply

    def _send(self, request: ModelRequest) -> str:
        words, reply = self._reply(request)
        problem = reply.problem or ("" if words.strip() else "the reply holds no text")
        if problem:
            raise UnusableReplyError(f"{words}\n[{problem}]".strip())
        return words


class ModelJudge(abc.ABC):
    """Base of judges that ask a model; implements `collection.judges.base.Judge`.

    Args:
      method: its name in configs.
      notes: benchmark notes by task id.
      keep_rejected: as for `Questions`.

    Attributes:
      sees: the evidence it gets, as a phrase.
      needs_answer: a run without a final answer is a failure.
      fingerprint: what the judge is; the model's version is known after an answer.
    """

    sees: str
    needs_answer: bool
    fingerprint: JudgeFingerprint

    def __init__(
        self,
        method: str,
        model: Model,
        notes: Mapping[str, TaskNotes] | None = None,
        keep_rejected: bool = True,
    ):
        self.method, self.model, self._notes = method, model, notes or {}
        self._keep_rejected = keep_rejected

    @property
    def name(self) -> str:
        return f"{self.method} ({self.model.name})"

    def judge(self, trajectory: Trajectory, images: ImageSource) -> Verdict:
        """Judges a finished episode; an unfinished one fails without a model call.

        Raises:
          UserError: no model call can succeed.
        """
        notes = self._notes.get(trajectory.task.task_id, TaskNotes())
        failed = failed_without_a_call(trajectory, notes, self.needs_answer)
        if failed is not None:
            return dataclasses.replace(failed, fingerprint=self.fingerprint)
        questions = Questions(self.model, trajectory, images, self._keep_rejected)
        try:
            verdict = self._decide(trajectory, notes, questions)
        except NoVerdictError as error:
            verdict = Verdict(None, str(error))
        fingerprint = self.fingerprint.model_copy(update={"model_version": questions.model_version})
        return dataclasses.replace(verdict, usage=questions.usage, key=questions.key, fingerprint=fingerprint)

    @abc.abstractmethod
    def _decide(self, trajectory: Trajectory, notes: TaskNotes, questions: Questions) -> Verdict:
        """Asks the model; the caller fills in usage, key and fingerprint. Raises as `Questions.decide`."""


@dataclasses.dataclass(frozen=True)
class Prompt:
    """What a judge of ours asks; `sees` and `needs_answer` are as of `ModelJudge`.

    Attributes:
      texts: what it gets to read.
      screenshots: number of the last ones that it sees.
    """

    template: str
    texts: str
    screenshots: int
    needs_answer: bool = False

    @property
    def sees(self) -> str:
        return f"{self.texts} and the last {self.screenshots} screenshots" if self.screenshots else self.texts


PROMPTS = {
    # RMSWeb, appendix: the last four screenshots.
    "own_outcome": Prompt(
        "outcome.j2",
        "the actions, the final answer, the last page as text",
        4,
        needs_answer=True,
    ),
    # The agent also reads pages as text, so the last pages and the history suffice for most criteria.
    "own_rubric": Prompt(
        "rubric.j2",
        "a rubric, the actions, the final answer, the last page as text",
        10,
    ),
}


class OwnJudge(ModelJudge):
    """Asks one question with a prompt of ours, a key of `PROMPTS`.

    With the task's reference answer, if `own_outcome`'s notes have one; `own_rubric` scores by the task's
    rubric: `Verdict.score` is the share of points of applicable criteria.
    """

    def __init__(
        self,
        method: str,
        model: Model,
        notes: Mapping[str, TaskNotes] | None = None,
        temperature: float = 0.0,
        keep_rejected: bool = True,
        with_screenshots: bool = True,
    ):
        super().__init__(method, model, notes, keep_rejected)
        prompt = PROMPTS[method]
        if not with_screenshots:
            prompt = dataclasses.replace(prompt, screenshots=0)
        self._prompt = prompt
        self.sees, self.needs_answer = prompt.sees, prompt.needs_answer
        self.fingerprint = JudgeFingerprint(
            method=method,
            source=f"rmsweb-jax {rmsweb_jax.__version__}",
            model=model.name,
            prompt_sha256=prompt_sha256((prompt.template, _AGAIN)),
            temperature=temperature,
            evidence={
                "screenshots": str(prompt.screenshots),
                **{name: str(limit) for name, limit in TEXT_LIMITS},
                "references": str(any(one.reference is not None for one in self._notes.values())),
            },
        )

    def _decide(self, trajectory: Trajectory, notes: TaskNotes, questions: Questions) -> Verdict:
        scored, rubric = self.method == "own_rubric", notes.rubric
        if scored and not rubric:
            raise NoVerdictError(NO_RUBRIC)
        # RMSWeb's judge gets those of the last steps; a rubric is better served by different ones.
        shown = [step.observation.screenshot for step in trajectory.steps]
        shots = [shot for _, shot in screenshots(trajectory)] if scored else list(filter(None, shown))
        shots = shots[len(shots) - min(len(shots), self._prompt.screenshots) :]
        text = render(
            self._prompt.template,
            trajectory,
            screenshots=len(shots),
            steps=history(trajectory),
            page=page(trajectory.steps[-1]),
            reference=notes.reference and _fenced_reference(notes.reference),
            rubric=[_fenced_criterion(criterion) for criterion in rubric],
        )
        if not scored:
            words, answer = questions.decide(
                text, shots, answer_schema(OutcomeAnswer), lambda reply: read_answer(reply, OutcomeAnswer)
            )
            return _verdict(answer.outcome, words)

        def read(reply: str) -> RubricAnswer:
            answer = read_answer(reply, RubricAnswer)
            answer.score(rubric)  # Raises if it does not fit.
            return answer

        words, answer = questions.decide(text, shots, answer_schema(RubricAnswer, len(rubric)), read)
        return _verdict(answer.outcome, words, answer.score(rubric))


def _verdict(outcome: Outcome, words: str, score: float | None = None) -> Verdict:
    # Reports count the last lines of runs without a verdict as causes.
    return Verdict(_SUCCESS[outcome], words if outcome != "unknown" else f"{words}\n{UNDECIDED}", score=score)


def _fenced_reference(reference: Reference) -> Reference:
    return Reference(
        answer=fenced_text(reference.answer, MAX_ANSWER_CHARS),
        golden=reference.golden,
        notice=fenced_line(reference.notice),
    )


def _fenced_criterion(criterion: Criterion) -> dict[str, Any]:
    return {
        "criterion": fenced_line(criterion.criterion, _MAX_RUBRIC_CHARS),
        "description": fenced_text(criterion.description, _MAX_RUBRIC_CHARS),
        "condition": fenced_line(criterion.condition, _MAX_RUBRIC_CHARS),
        "max_points": f"{criterion.max_points:g}",
    }
