"""Forks: episodes that begin with the replies of another one, to see what its next action is worth."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

from collection.llm.actor import ActorModel, ActorReply, ExtractionRequest, StepRequest
from rmsweb_jax.actions import ReplyError, recorded_reply
from rmsweb_jax.records.schema import Step, Trajectory


def parting(runs: Sequence[Trajectory]) -> tuple[str, ...] | None:
    """Returns the replies before the first step at which the episodes of a task act differently.

    Episodes that come to another page by the same actions do not count.

    Returns:
      None if all act alike.
    """
    together, number = list(runs), 0
    while together := [run for run in together if len(run.steps) > number]:
        by_page = defaultdict(list)
        for run in together:
            by_page[run.steps[number].observation.fingerprint].append(run)
        together = max(by_page.values(), key=len)
        if len({_actions(run.steps[number]) for run in together}) > 1:
            return tuple(step.response for step in together[0].steps[:number])
        number += 1
    return None


def _actions(step: Step) -> str:
    try:
        return repr(recorded_reply(step.response)[0].executable)
    except ReplyError:
        return step.error


class ForkActor(ActorModel):
    """Gives recorded replies, then draws one, and goes on greedily.

    Args:
      drawn, greedy: the policy at its temperature, and at 0.
    """

    # Seeds follow from the attempt: others than those of the episodes before.
    _APART = 1_000_000

    def __init__(self, replies: Sequence[str], drawn: ActorModel, greedy: ActorModel):
        self._replies, self._drawn, self._greedy = tuple(replies), drawn, greedy

    @property
    def name(self) -> str:
        return self._drawn.name

    def reply(self, request: StepRequest) -> ActorReply:
        if request.step <= len(self._replies):
            return ActorReply(self._replies[request.step - 1])
        if request.step > len(self._replies) + 1:
            return self._greedy.reply(request)
        return self._drawn.reply(dataclasses.replace(request, attempt=request.attempt + self._APART))

    def extract(self, request: ExtractionRequest) -> ActorReply:
        return self._greedy.extract(request)
