"""Plays a recorded run again up to a step, and lets another actor go on from there."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Literal

from collection.agent.config import EpisodeLimits, PromptConfig
from collection.agent.loop import EpisodeRunner
from collection.browser.config import BrowserConfig
from collection.browser.guard.config import GuardConfig
from collection.browser.session import BrowserLostError, PageError
from collection.environments.miniwob import MiniWobEnvironment
from collection.fleet.browser_pool import BrowserPool
from collection.fleet.config import RecyclePolicy
from collection.llm.actor import ActorModel, ActorReply, ExtractionRequest, ReflectionRequest, StepRequest
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Task, Trajectory

# `differs`: a page is not the recorded one. `lost`: no browser could play the episode.
Outcome = Literal["success", "failure", "differs", "lost"]
# Environments that a seed or a snapshot sets back to the same state.
RESETTABLE = frozenset(("miniwob",))


class ReplayActor:
    """An `ActorModel` that gives recorded replies first and then leaves the steps to another actor."""

    name = "replay"

    def __init__(self, replies: Sequence[str], then: ActorModel):
        self._replies, self._then = tuple(replies), then

    def reply(self, request: StepRequest) -> ActorReply:
        if request.step <= len(self._replies):
            return ActorReply(self._replies[request.step - 1])
        return self._then.reply(request)

    def reflect(self, request: ReflectionRequest) -> ActorReply:
        return self._then.reflect(request)

    def extract(self, request: ExtractionRequest) -> ActorReply:
        return self._then.extract(request)


@dataclasses.dataclass(frozen=True)
class Trial:
    """A run to be played again.

    Attributes:
      kept: number of its first steps that are played as recorded.
      reply: text of the reply at the next step; "" leaves that step to the other actor, too.
    """

    run: Trajectory
    kept: int
    reply: str = ""


class Player(contextlib.AbstractContextManager["Player"]):
    """Plays trials in a browser; created and used in one thread.

    Args:
      images: takes the screenshots of the trials.
      then: plays the steps after the recorded ones.
      further_steps: maximum number of these.
      label: value of `Trajectory.actor`.
    """

    def __init__(
        self,
        browser: BrowserConfig,
        prompt: PromptConfig,
        limits: EpisodeLimits,
        images: ImageStore,
        then: ActorModel,
        further_steps: int,
        label: str = "replay",
    ):
        self._pool = BrowserPool(browser, GuardConfig(), RecyclePolicy())
        self._prompt, self._limits, self._images, self._then = prompt, limits, images, then
        self._further_steps, self._label = further_steps, label

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._pool.close()

    def play(self, trial: Trial) -> Outcome:
        """Plays a trial; a lost browser is replaced once.

        Raises:
          UserError: the actor cannot answer, or no browser starts.
        """
        replies = [step.response for step in trial.run.steps[: trial.kept]] + [trial.reply] * bool(
            trial.reply
        )
        for _ in range(2):
            try:
                return _judge(trial, self.run(trial.run.task, replies, trial.run.attempt))
            except (BrowserLostError, PageError):
                self._pool.discard()
        return "lost"

    def run(self, task: Task, replies: Sequence[str] = (), attempt: int = 1) -> Trajectory:
        """Plays an episode that begins with some replies; raises as `EpisodeRunner.run_episode`."""
        runner = EpisodeRunner(
            environment=MiniWobEnvironment(self._pool.browser(task), self._images),
            actor=ReplayActor(replies, self._then),
            images=self._images,
            label=self._label,
            prompt=self._prompt,
            limits=self._limits.model_copy(update={"max_steps": len(replies) + self._further_steps}),
        )
        return runner.run_episode(task, attempt)


def _judge(trial: Trial, played: Trajectory) -> Outcome:
    """The outcome of a trial, once its pages up to the step at which it parts are those of the record."""
    recorded = trial.run.steps[: trial.kept + 1]
    again = played.steps[: len(recorded)]
    pages = [step.observation.fingerprint for step in recorded]
    if [step.observation.fingerprint for step in again] != pages:
        return "differs"
    return "success" if played.success else "failure"
