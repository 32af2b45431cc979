"""Forks: episodes that begin with the replies of another one, to see what its next action is worth."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

from collection.agent.recorded import RecordedActor
from collection.llm.actor import ActorModel, ActorReply, ExtractionRequest, StepRequest
from rmsweb_jax.actions import repair_reply
from rmsweb_jax.records.episodes import Fork
from rmsweb_jax.records.schema import Step, Trajectory


def parting(runs: Sequence[Trajectory]) -> Fork | None:
    """Finds where the episodes of a task part; None if they act alike.

    Those that come to another page by the same actions are left out.
    """
    together, number = list(runs), 0
    while together := [run for run in together if len(run.steps) > number]:
        by_page = defaultdict(list)
        for run in together:
            by_page[run.steps[number].observation.fingerprint].append(run)
        page, together = max(by_page.items(), key=lambda one: len(one[1]))
        if len({_actions(run.steps[number]) for run in together}) > 1:
            before = together[0].steps[:number]
            return Fork(
                task_id=together[0].task.task_id,
                replies=tuple(step.response for step in before),
                errors=tuple(step.error for step in before),
                page=page,
            )
        number += 1
    return None


def _actions(step: Step) -> str:
    """What was carried out; "" if nothing was."""
    return "" if step.error else repr(repair_reply(step.response)[0].executable)


def fork_actor(fork: Fork, drawn: ActorModel, greedy: ActorModel) -> ActorModel:
    """Gives recorded replies, then draws one, and goes on greedily.

    Args:
      drawn, greedy: the policy at its temperature, and at 0.
    """
    recorded = tuple(zip(fork.replies, fork.errors, strict=True))
    return RecordedActor(recorded, _DrawnOnce(len(recorded) + 1, drawn, greedy))


class _DrawnOnce(ActorModel):
    # Seeds follow from the attempt: others than those of the episodes before.
    _APART = 1_000_000

    def __init__(self, step: int, drawn: ActorModel, greedy: ActorModel):
        self._step, self._drawn, self._greedy = step, drawn, greedy

    @property
    def name(self) -> str:
        return self._drawn.name

    def reply(self, request: StepRequest) -> ActorReply:
        if request.step > self._step:
            return self._greedy.reply(request)
        return self._drawn.reply(dataclasses.replace(request, attempt=request.attempt + self._APART))

    def extract(self, request: ExtractionRequest) -> ActorReply:
        return self._greedy.extract(request)
