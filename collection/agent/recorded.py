"""Episodes that begin with the replies of another one."""

from __future__ import annotations

from collections.abc import Iterable

from collection.agent.query import UNUSABLE
from collection.llm.actor import ActorModel, ActorReply, ExtractionRequest, StepRequest


class RecordedActor(ActorModel):
    """Gives recorded replies, then leaves the steps to another actor.

    Args:
      recorded: texts of the replies, each with its `Step.error`.
    """

    def __init__(self, recorded: Iterable[tuple[str, str]], then: ActorModel):
        self._recorded, self._then = tuple(recorded), then

    @property
    def name(self) -> str:
        return self._then.name

    def reply(self, request: StepRequest) -> ActorReply:
        if request.step > len(self._recorded):
            return self._then.reply(request)
        text, error = self._recorded[request.step - 1]
        # One that was cut off must not be repaired now.
        return ActorReply(text, problem=error.removeprefix(UNUSABLE) if error.startswith(UNUSABLE) else "")

    def extract(self, request: ExtractionRequest) -> ActorReply:
        return self._then.extract(request)
