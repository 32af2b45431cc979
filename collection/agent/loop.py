"""One episode: look, ask, act, until the agent is done or a limit ends it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Protocol

import orjson

from collection.agent import notices
from collection.agent.prompt import AgentState, PastStep, PromptConfig, build_messages
from collection.llm.base import ImageSource, Teacher, TeacherRequest
from rmsweb_jax.actions import Action, Reply, ReplyError, action_catalogue, repair_reply
from rmsweb_jax.records.schema import (
    ActionResult,
    CallUsage,
    Message,
    Observation,
    Outcome,
    Step,
    Task,
    Trajectory,
)

# Some pages pay in part for a task done in part; what trains on successes needs it done in full.
FULL_REWARD = 1.0


@dataclasses.dataclass(frozen=True)
class Limits:
    """What ends an episode.

    Attributes:
      max_steps: the last of them may only be `done`.
      max_failures: after so many failed steps in a row there is one `done`-only step, then the end.
      max_seconds: wall-clock; checked between steps.
    """

    max_steps: int = 100
    max_failures: int = 3
    max_seconds: float = 1800.0


@dataclasses.dataclass(frozen=True)
class Look:
    """What the agent is shown before a step."""

    observation: Observation
    page_stats: str


class Environment(Protocol):
    """A browser at a task, as the loop sees it."""

    def reset(self, task: Task) -> Task:
        """Goes to the task's start; returns the task with its objective."""
        ...

    def look(self) -> Look: ...

    def act(self, actions: Sequence[Action]) -> tuple[ActionResult, ...]:
        """Executes actions, stopping early where the page changes under them. `done` is not among them."""
        ...

    def reward(self) -> float | None:
        """The environment's own verdict; None while, or where, it has none."""
        ...


@dataclasses.dataclass
class _Episode:
    task: Task
    history: list[PastStep] = dataclasses.field(default_factory=list)
    steps: list[Step] = dataclasses.field(default_factory=list)
    failures: int = 0
    read_state: str = ""
    done: Action | None = None


@dataclasses.dataclass(frozen=True)
class _Answer:
    """A reply, as sent and as understood; `reply` is None when `error` says why not."""

    messages: tuple[Message, ...]
    text: str
    reply: Reply | None
    error: str
    repaired: bool
    usage: CallUsage


@dataclasses.dataclass(frozen=True)
class EpisodeRunner:
    """Runs episodes that differ in task, attempt and guidance only.

    Attributes:
      actor: `Trajectory.actor`: `teacher`, or a policy's label.
      images: where `environment` puts its screenshots.
    """

    environment: Environment
    teacher: Teacher
    images: ImageSource
    actor: str
    prompt: PromptConfig
    limits: Limits

    def run_episode(self, task: Task, attempt: int, guidance: str = "") -> Trajectory:
        """One attempt at a task (RMSWeb, section 3.1).

        Args:
          guidance: shown in every live message and in no record.

        Returns:
          The trajectory; it counts as success when the agent declared success and the environment
          paid its full reward.

        Raises:
          BrowserLostError, PageError: the browser or the start page failed; nothing of the episode is kept.
          UserError: the teacher cannot answer.
        """
        start = time.monotonic()
        episode = _Episode(self.environment.reset(task))
        outcome = self._steps(episode, attempt, guidance, start)
        reward = self.environment.reward()
        params = {} if episode.done is None else episode.done.params.model_dump()
        declared = params.get("success")
        return Trajectory(
            trajectory_id=trajectory_id(task, self.actor, attempt),
            task=episode.task,
            actor=self.actor,
            model=self.teacher.name,
            attempt=attempt,
            steps=tuple(episode.steps),
            outcome=outcome,
            declared_success=declared,
            final_text=params.get("text", ""),
            reward=reward,
            success=outcome == "done" and declared is True and reward is not None and reward >= FULL_REWARD,
            judge="" if reward is None else "reward",
            seconds=time.monotonic() - start,
        )

    def _steps(self, episode: _Episode, attempt: int, guidance: str, start: float) -> Outcome:
        for number in range(1, self.limits.max_steps + 1):
            if time.monotonic() - start > self.limits.max_seconds:
                return "timeout"
            given_up = episode.failures >= self.limits.max_failures
            self._step(episode, attempt, guidance, number, given_up or number == self.limits.max_steps)
            if episode.done is not None:
                return "done"
            if given_up:
                return "failures"
        return "max_steps"

    def _step(self, episode: _Episode, attempt: int, guidance: str, number: int, done_only: bool) -> None:
        look = self.environment.look()
        answer = self._ask(episode, attempt, guidance, number, look, notices.DONE_ONLY if done_only else "")
        results: tuple[ActionResult, ...] = ()
        error = answer.error
        if answer.reply is not None:
            actions = answer.reply.executable
            if actions[0].name == "done":
                episode.done = actions[0]
                results = (ActionResult(action="done", text="Done"),)
            elif done_only:
                error = "Only done was allowed."
            else:
                results = self.environment.act(actions)
        failed = bool(error) or any(result.error for result in results[-1:])
        episode.failures = episode.failures + 1 if failed else 0
        episode.read_state = "\n".join(result.output for result in results if result.output)
        episode.history.append(_past_step(number, answer.reply, error, results))
        episode.steps.append(
            Step(
                number=number,
                observation=look.observation,
                messages=answer.messages,
                response=answer.text,
                results=results,
                error=error,
                repaired=answer.repaired,
                usage=answer.usage,
            )
        )

    def _ask(
        self, episode: _Episode, attempt: int, guidance: str, number: int, look: Look, notice: str
    ) -> _Answer:
        """Asks the teacher; a reply with an empty action list is asked for once more."""
        answer = self._ask_once(episode, attempt, guidance, number, look, notice)
        if not _has_no_action(answer.text):
            return answer
        notice = f"{notice} {notices.NO_ACTION}".strip()
        again = self._ask_once(episode, attempt, guidance, number, look, notice)
        return dataclasses.replace(again, usage=_add(answer.usage, again.usage))

    def _ask_once(
        self, episode: _Episode, attempt: int, guidance: str, number: int, look: Look, notice: str
    ) -> _Answer:
        state = AgentState(
            task=episode.task,
            history=tuple(episode.history),
            step_number=number,
            max_steps=self.limits.max_steps,
            read_state=episode.read_state,
            notice=notice,
        )
        actions = action_catalogue() if self.prompt.style == "full" else ()
        recorded = build_messages(state, look.observation, look.page_stats, self.prompt, actions=actions)
        live = recorded
        if guidance:
            live = build_messages(
                state, look.observation, look.page_stats, self.prompt, guidance, actions=actions
            )
        sent = self.teacher.reply(TeacherRequest(episode.task.task_id, attempt, number, live, self.images))
        try:
            reply, repaired = repair_reply(sent.text)
        except ReplyError as error:
            return _Answer(recorded, sent.text, None, f"Unusable reply: {error}", False, sent.usage)
        return _Answer(recorded, sent.text, reply, "", repaired, sent.usage)


def trajectory_id(task: Task, actor: str, attempt: int) -> str:
    """`{task_id}#{actor}-{attempt}`."""
    return f"{task.task_id}#{actor}-{attempt}"


def crashed_trajectory(task: Task, actor: str, model: str, attempt: int, detail: str) -> Trajectory:
    """Stands for an episode whose browser or process kept crashing."""
    return Trajectory(
        trajectory_id=trajectory_id(task, actor, attempt),
        task=task,
        actor=actor,
        model=model,
        attempt=attempt,
        steps=(),
        outcome="crashed",
        detail=detail,
    )


def _past_step(number: int, reply: Reply | None, error: str, results: Sequence[ActionResult]) -> PastStep:
    lines = tuple(f"Error: {result.text}" if result.error else result.text for result in results)
    if reply is None:
        return PastStep(number, error=error)
    return PastStep(
        number=number,
        evaluation_previous_goal=reply.evaluation_previous_goal,
        memory=reply.memory,
        next_goal=reply.next_goal,
        error=error,
        results=lines,
    )


def _has_no_action(text: str) -> bool:
    """Whether a reply is sound but for its empty action list."""
    try:
        reply = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return isinstance(reply, dict) and reply.get("action") == []


def _add(first: CallUsage, second: CallUsage) -> CallUsage:
    return CallUsage(
        prompt_tokens=first.prompt_tokens + second.prompt_tokens,
        response_tokens=first.response_tokens + second.response_tokens,
        seconds=first.seconds + second.seconds,
        cost=first.cost + second.cost,
    )
