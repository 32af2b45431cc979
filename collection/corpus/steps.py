"""Views of recorded steps, with the reply parsed."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Generic, TypeVar

from collection.agent.prompt import GUIDANCE_TAG
from collection.corpus import lean
from rmsweb_jax.actions import Reply, ReplyError, composition, recorded_reply, render_reply
from rmsweb_jax.records.schema import Message, Step, Trajectory

INVALID = ("invalid",)

S = TypeVar("S", Step, lean.LeanStep)


@dataclasses.dataclass(frozen=True)
class StepView(Generic[S]):
    """A recorded step with its reply parsed; `reply` is None when it could not be used."""

    step: S
    reply: Reply | None

    @functools.cached_property
    def composition(self) -> tuple[str, ...]:
        """The step's actions in a comparable form; an unusable reply is `("invalid",)`."""
        return composition(self.reply.executable) if self.reply else INVALID

    @functools.cached_property
    def action_names(self) -> tuple[str, ...]:
        return tuple(action.name for action in self.reply.executable) if self.reply else INVALID

    @property
    def is_done(self) -> bool:
        return "done" in self.action_names

    @property
    def fault(self) -> str:
        """The missing part of the step: `unusable_reply`, `no_messages`, `no_results`, or empty.

        A step needs the state as it was sent, a usable reply, and results (`done` needs none).
        """
        messages = self.step.messages
        if self.reply is None:
            return "unusable_reply"
        if not messages or messages[-1].role != "user" or not messages[-1].text.strip():
            return "no_messages"
        return "" if self.step.results or self.is_done else "no_results"

    @property
    def complete(self) -> bool:
        """True if the step has a state, a parsed reply and results."""
        return not self.fault

    @property
    def guided(self) -> bool:
        """True if the recorded state contains reflection guidance, which must not get into a corpus."""
        return guided(self.step.messages)

    @property
    def effective(self) -> bool:
        """True if the step changed something or produced output; the final answer counts as output."""
        return self.is_done or any(result.changed or result.output for result in self.step.results)

    @property
    def failed(self) -> bool:
        """True if all actions of the step failed."""
        results = self.step.results
        return self.reply is None or (bool(results) and all(result.error for result in results))

    @property
    def target(self) -> str:
        """The canonical text of the reply with the actions that were executed, as a target of training.

        Raises:
          ValueError: the reply could not be used.
        """
        if self.reply is None:
            raise ValueError(f"step {self.step.number} has no usable reply")
        return render_reply(self.reply.model_copy(update={"actions": self.reply.executable}))


def full_success(run: Trajectory | lean.Run) -> bool:
    """Returns True if a run may be training data: it passed, and not as a right answer that says no."""
    return run.success and run.declared_success is not False


def guided(messages: Iterable[Message]) -> bool:
    """Returns True if a prompt contains reflection guidance."""
    return any(f"<{GUIDANCE_TAG}>" in message.text for message in messages)


def view(step: S) -> StepView[S]:
    """Parses a step's reply as collection did: with repairs only where collection made them."""
    if step.error:
        return StepView(step, None)
    try:
        reply, repaired = recorded_reply(step.response)
    except ReplyError:
        return StepView(step, None)
    return StepView(step, reply if step.repaired or not repaired else None)
