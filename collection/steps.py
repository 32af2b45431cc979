"""Recorded steps, read again: their parsed replies and what came of them."""

from __future__ import annotations

import dataclasses
import functools

from rmsweb_jax.actions import Reply, ReplyError, composition, render_reply, repair_reply
from rmsweb_jax.records.schema import Step

INVALID = ("invalid",)


@dataclasses.dataclass(frozen=True)
class StepView:
    """A recorded step with its reply parsed; `reply` is None when it could not be used."""

    step: Step
    reply: Reply | None

    @property
    def composition(self) -> tuple[str, ...]:
        """What the step did, comparable between steps; an unusable reply is `("invalid",)`."""
        return composition(self.reply.executable) if self.reply else INVALID

    @functools.cached_property
    def action_names(self) -> tuple[str, ...]:
        return tuple(action.name for action in self.reply.executable) if self.reply else INVALID

    @property
    def is_done(self) -> bool:
        return "done" in self.action_names

    @property
    def complete(self) -> bool:
        """Whether state, parsed reply and results are all there (a `done` needs no result)."""
        return bool(self.reply and self.step.messages and (self.step.results or self.is_done))

    @property
    def effective(self) -> bool:
        """Whether the step changed something or produced output; the final answer is output too."""
        return self.is_done or any(result.changed or result.output for result in self.step.results)

    @property
    def failed(self) -> bool:
        """Whether nothing the step tried worked."""
        results = self.step.results
        return self.reply is None or (bool(results) and all(result.error for result in results))

    @property
    def target(self) -> str:
        """The canonical text of the reply: what a model is trained on.

        Raises:
          ValueError: the reply could not be used.
        """
        if self.reply is None:
            raise ValueError(f"step {self.step.number} has no usable reply")
        return render_reply(self.reply)


def view(step: Step) -> StepView:
    """Parses a step's reply as collection did: repaired only where collection had to."""
    if step.error:
        return StepView(step, None)
    try:
        reply, repaired = repair_reply(step.response)
    except ReplyError:
        return StepView(step, None)
    return StepView(step, reply if step.repaired or not repaired else None)
