"""What all judges that ask a model share: their questions, and what becomes of answers that are none."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from collection.judges.base import Verdict, failed_without_a_call
from collection.judges.notes import TaskNotes
from collection.llm.base import call_seed
from collection.llm.cached import Cached, content_key
from collection.llm.metered import NoAnswerError
from collection.llm.model import ImageSource, ModelRequest
from rmsweb_jax.records.schema import CallUsage, ImagePart, Message, TextPart, Trajectory


class NoVerdictError(Exception):
    """A judgement that came to nothing; the message says why."""


class Questions:
    """The calls of one judgement.

    Attributes:
      usage: of all of them, whenever they were made.
      key: of the last one, in the cache of replies.
    """

    def __init__(self, model: Cached, trajectory: Trajectory, images: ImageSource):
        self._model, self._images = model, images
        self._seed = call_seed("judge", trajectory.task.task_id, trajectory.actor, trajectory.attempt)
        self.usage, self.key = CallUsage(), ""

    def ask(self, text: str, pictures: Sequence[str] = (), schema: dict[str, Any] | None = None) -> str:
        """The reply to one message.

        Args:
          pictures: SHA-256 of the screenshots behind the text.

        Raises:
          NoVerdictError: there is no proper answer (refused, blocked, cut off, empty), or none came in all
            attempts.
          UserError: no question will be answered: a refused key, a spent budget, a wait of hours.
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
        # Half a surrogate pair cannot be written down.
        words = reply.text.encode(errors="replace").decode()
        problem = reply.problem or ("" if words.strip() else "the reply holds no text")
        if problem:
            raise NoVerdictError(f"{words}\n[{problem}]".strip())
        return words


class ModelJudge(abc.ABC):
    """A judge that asks a model; `collection.judges.base.Judge`.

    Args:
      model: with the cache of its replies.
      notes: what is known of tasks, by id.

    Attributes:
      method: what it is called in configs.
      sees: what it goes by, in words.
    """

    method: ClassVar[str]
    sees: ClassVar[str]
    # Whether a run without a final answer is a failure.
    needs_answer: ClassVar[bool] = False

    def __init__(self, model: Cached, notes: Mapping[str, TaskNotes] | None = None):
        self.model, self._notes = model, notes or {}

    @property
    def name(self) -> str:
        return f"{self.method} ({self.model.name})"

    def judge(self, trajectory: Trajectory, images: ImageSource) -> Verdict:
        """The verdict on a finished episode; where its agent did not finish, nobody is asked.

        Raises:
          UserError: the model will answer no question.
        """
        failed = failed_without_a_call(trajectory, self.needs_answer)
        if failed is not None:
            return failed
        notes = self._notes.get(trajectory.task.task_id, TaskNotes())
        questions = Questions(self.model, trajectory, images)
        try:
            verdict = self._decide(trajectory, notes, questions)
        except NoVerdictError as error:
            verdict = Verdict(None, str(error))
        return dataclasses.replace(verdict, usage=questions.usage, key=questions.key)

    @abc.abstractmethod
    def _decide(self, trajectory: Trajectory, notes: TaskNotes, questions: Questions) -> Verdict:
        """Asks; the verdict's usage and key are filled in. Raises as `Questions.ask`."""


def _sum(one: CallUsage, other: CallUsage) -> CallUsage:
    return CallUsage(**{name: getattr(one, name) + getattr(other, name) for name in CallUsage.model_fields})
