"""Base of judges that ask a model: their calls, and the handling of unusable replies."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import rmsweb_jax
from collection.judges.base import Verdict, failed_without_a_call
from collection.judges.evidence import prompt_sha256
from collection.judges.notes import TaskNotes
from collection.llm.cached import CachedModel, content_key
from collection.llm.metered import NoAnswerError
from collection.llm.model import ImageSource, ModelRequest, call_seed
from rmsweb_jax.records.schema import CallUsage, ImagePart, JudgeFingerprint, Message, TextPart, Trajectory


class NoVerdictError(Exception):
    """A judgement ended without a verdict; the message gives the reason."""


class Questions:
    """The model calls of one judgement.

    Attributes:
      usage: tokens of all calls, cached ones included.
      key: cache key of the last call.
      model_version: name of the model in its last answer.
    """

    def __init__(self, model: CachedModel, trajectory: Trajectory, images: ImageSource):
        self._model, self._images = model, images
        # A fixed seed per run, so that a repeated judgement sends the same request.
        self._seed = call_seed("judge", trajectory.task.task_id, trajectory.actor, trajectory.attempt)
        self.usage, self.key, self.model_version = CallUsage(), "", ""

    def ask(self, text: str, pictures: Sequence[str] = (), schema: dict[str, Any] | None = None) -> str:
        """Sends one message and returns the reply.

        Args:
          pictures: SHA-256 of the screenshots that follow the text.

        Raises:
          NoVerdictError: the reply is unusable (refused, blocked, truncated, empty), or all attempts failed.
          UserError: no call can succeed: an invalid key, a spent budget, a wait of hours.
        """
        parts = (TextPart(text=text), *(ImagePart(sha256=picture) for picture in pictures))
        message = Message(role="user", content=parts)
        request = ModelRequest((message,), "judge", self._seed, self._images, schema)
        self.key = content_key(self._model.name, request)
        try:
            reply, _ = self._model.ask(request)
        except NoAnswerError as error:
            raise NoVerdictError(f"[no answer: {error}]") from error
        self.usage = _sum(self.usage, reply.usage)
        self.model_version = reply.model_version or self.model_version
        # A lone surrogate cannot be encoded as UTF-8.
        words = reply.text.encode(errors="replace").decode()
        problem = reply.problem or ("" if words.strip() else "the reply holds no text")
        if problem:
            raise NoVerdictError(f"{words}\n[{problem}]".strip())
        return words


class ModelJudge(abc.ABC):
    """Base class of judges that ask a model; implements `collection.judges.base.Judge`.

    Args:
      model: with a cache of its replies.
      notes: benchmark notes by task id.
      temperature: of the model's replies, for the record.

    Attributes:
      method: its name in configs.
      sees: the evidence it gets, as a phrase.
      templates: the prompts that it renders.
      evidence: names and values of the limits on the evidence, for the record.
    """

    method: ClassVar[str]
    sees: ClassVar[str]
    templates: ClassVar[tuple[str, ...]]
    evidence: ClassVar[tuple[tuple[str, int], ...]]
    # A run without a final answer is a failure.
    needs_answer: ClassVar[bool] = False

    def __init__(
        self, model: CachedModel, notes: Mapping[str, TaskNotes] | None = None, temperature: float = 0.0
    ):
        self.model, self._notes, self._temperature = model, notes or {}, temperature

    @property
    def name(self) -> str:
        return f"{self.method} ({self.model.name})"

    @property
    def fingerprint(self) -> JudgeFingerprint:
        """What the judge is; the model's version is known after an answer."""
        return JudgeFingerprint(
            method=self.method,
            source=f"rmsweb-jax {rmsweb_jax.__version__}",
            model=self.model.name,
            prompt_sha256=prompt_sha256(self.templates),
            temperature=self._temperature,
            evidence={
                **dict(self.evidence),
                "references": any(one.reference is not None for one in self._notes.values()),
            },
        )

    def judge(self, trajectory: Trajectory, images: ImageSource) -> Verdict:
        """Judges a finished episode; an unfinished one fails without a model call.

        Raises:
          UserError: no model call can succeed.
        """
        failed = failed_without_a_call(trajectory, self.needs_answer)
        if failed is not None:
            return dataclasses.replace(failed, fingerprint=self.fingerprint)
        notes = self._notes.get(trajectory.task.task_id, TaskNotes())
        questions = Questions(self.model, trajectory, images)
        try:
            verdict = self._decide(trajectory, notes, questions)
        except NoVerdictError as error:
            verdict = Verdict(None, str(error))
        fingerprint = self.fingerprint.model_copy(update={"model_version": questions.model_version})
        return dataclasses.replace(verdict, usage=questions.usage, key=questions.key, fingerprint=fingerprint)

    @abc.abstractmethod
    def _decide(self, trajectory: Trajectory, notes: TaskNotes, questions: Questions) -> Verdict:
        """Asks the model; the caller fills in usage, key and fingerprint. Raises as `Questions.ask`."""


def _sum(one: CallUsage, other: CallUsage) -> CallUsage:
    return CallUsage(**{name: getattr(one, name) + getattr(other, name) for name in CallUsage.model_fields})
