"""Base of judges that ask a model: their calls, and the handling of replies that cannot be used."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import rmsweb_jax
from collection.judges.base import Verdict, failed_without_a_call
from collection.judges.evidence import prompt_sha256, render
from collection.judges.notes import TaskNotes
from collection.llm.calls import NoAnswerError
from collection.llm.model import ImageSource, Model, ModelReply, ModelRequest, call_seed, content_key
from rmsweb_jax.records.schema import CallUsage, ImagePart, JudgeFingerprint, Message, TextPart, Trajectory

T = TypeVar("T")
# Added to a question that is asked again: the cache goes by its words, which a seed does not change.
_AGAIN = "again.j2"


class NoVerdictError(Exception):
    """A judgement ended without a verdict; the message gives the reason."""


class UnusableReplyError(NoVerdictError):
    """A reply came, and it cannot be used: refused, blocked, truncated, empty, or in another form."""


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

    def ask(self, text: str, pictures: Sequence[str] = (), schema: dict[str, Any] | None = None) -> str:
        """Sends one message and returns the reply.

        Args:
          pictures: SHA-256 of the screenshots that follow the text.

        Raises:
          UnusableReplyError: the reply was refused, blocked or truncated, or is empty.
          NoVerdictError: all attempts failed.
          UserError: no call can succeed: an invalid key, a spent budget, a wait of hours.
        """
        return self._send(self._request(text, pictures, schema))

    def decide(
        self,
        text: str,
        read: Callable[[str], T],
        pictures: Sequence[str] = (),
        schema: dict[str, Any] | None = None,
    ) -> tuple[str, T]:
        """Asks for a verdict, and once more, with another seed, if the reply cannot be used.

        Args:
          read: parses a reply; raises ValueError if it has another form.

        Returns:
          The reply, and what `read` made of it.

        Raises:
          As `ask`; UnusableReplyError also if `read` can parse neither reply.
        """
        first = self._request(text, pictures, schema)
        try:
            return self._decide(first, read)
        except UnusableReplyError:
            again = self._request(f"{text}\n\n{render(_AGAIN, self._trajectory)}", pictures, schema, "again")
            try:
                return self._decide(again, read)
            except UnusableReplyError:
                if not self._keep_rejected:
                    self._model.reject(first)
                    self._model.reject(again)
                raise

    def pass_on(self, chat: Mapping[str, Any], repeat: int) -> str:
        """Sends another program's chat-completions request as it is; returns the reply, usable or not.

        Args:
          chat: as `ModelRequest.chat`.
          repeat: number of equal requests before it, whose replies are not wanted again.

        Raises:
          NoVerdictError: all attempts failed.
          UserError: as `ask`.
        """
        run = self._trajectory
        seed = call_seed("judge", run.task.task_id, run.actor, run.attempt, repeat)
        request = ModelRequest((), "judge", seed, chat=chat, repeat=repeat)
        self.key = content_key(self._model.name, request)
        reply = self._reply(request)
        # A lone surrogate cannot be encoded as UTF-8.
        return reply.text.encode(errors="replace").decode()

    def _decide(self, request: ModelRequest, read: Callable[[str], T]) -> tuple[str, T]:
        words = self._send(request)
        try:
            return words, read(words)
        except ValueError as error:
            raise UnusableReplyError(f"{words}\n[no verdict: {error}]".strip()) from error

    def _request(
        self, text: str, pictures: Sequence[str], schema: dict[str, Any] | None, *marks: str
    ) -> ModelRequest:
        run = self._trajectory
        # Fixed per run, so that a repeated judgement sends the same requests.
        seed = call_seed("judge", run.task.task_id, run.actor, run.attempt, *marks)
        parts = (TextPart(text=text), *(ImagePart(sha256=picture) for picture in pictures))
        request = ModelRequest((Message(role="user", content=parts),), "judge", seed, self.images, schema)
        self.key = content_key(self._model.name, request)
        return request

    def _reply(self, request: ModelRequest) -> ModelReply:
        try:
            reply, _ = self._model.ask(request)
        except NoAnswerError as error:
            raise NoVerdictError(f"[no answer: {error}]") from error
        self._usages[content_key(self._model.name, request)] = reply.usage
        self.model_version = reply.model_version or self.model_version
        return reply

    def _send(self, request: ModelRequest) -> str:
        reply = self._reply(request)
        # A lone surrogate cannot be encoded as UTF-8.
        words = reply.text.encode(errors="replace").decode()
        problem = reply.problem or ("" if words.strip() else "the reply holds no text")
        if problem:
            raise UnusableReplyError(f"{words}\n[{problem}]".strip())
        return words


class ModelJudge(abc.ABC):
    """Base class of judges that ask a model; implements `collection.judges.base.Judge`.

    The verdicts of our own judges (`own_*`) are not those of a benchmark's official judge. They hold to the
    rules that official judges have, in our words (`prompts/rules.j2`). Official judges are in
    `collection.judges.official`.

    Args:
      notes: benchmark notes by task id.
      temperature: of the model's replies, for the record.
      keep_rejected: as for `Questions`.

    Attributes:
      method: its name in configs.
      sees: the evidence it gets, as a phrase.
      templates: the prompts that it renders.
      evidence: names and values of the limits on the evidence, for the record.
    """

    method: str
    sees: str
    templates: ClassVar[tuple[str, ...]]
    evidence: ClassVar[tuple[tuple[str, int], ...]]
    # A run without a final answer is a failure.
    needs_answer: bool = False

    def __init__(
        self,
        model: Model,
        notes: Mapping[str, TaskNotes] | None = None,
        temperature: float = 0.0,
        keep_rejected: bool = True,
    ):
        self.model, self._notes, self._temperature = model, notes or {}, temperature
        self._keep_rejected = keep_rejected

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
            prompt_sha256=prompt_sha256((*self.templates, _AGAIN)),
            temperature=self._temperature,
            evidence={
                **{name: str(limit) for name, limit in self.evidence},
                "references": str(any(one.reference is not None for one in self._notes.values())),
            },
        )

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
        """Asks the model; the caller fills in usage, key and fingerprint. Raises as `Questions.ask`."""
