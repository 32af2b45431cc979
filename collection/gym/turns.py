"""Tasks that are played by texts, a turn at a time: what all harnesses have in common."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any, Literal, cast

from collection.agent.config import EpisodeLimits, PromptConfig
from collection.agent.loop import EpisodeRunner
from collection.browser.config import BrowserConfig
from collection.environments.base import Environment, SiteUnreachableError, View
from collection.gym.calls import parse_actions
from collection.gym.errors import EpisodeLostError
from collection.gym.session import NO_READER, Session, Stepped, find
from collection.llm.actor import ActorReply, ExtractionRequest, ReflectionRequest, StepRequest
from rmsweb_jax.actions import Action, Reply, ReplyError, render_reply, repair_reply
from rmsweb_jax.records.schema import Message, Task, Trajectory

PromptStyle = Literal["", "compact", "full"]


@dataclasses.dataclass(frozen=True)
class Turn:
    """What a text has led to.

    Attributes:
      goal: what is to be done.
      view: the page now.
      messages: our prompt of the next step, where prompts are shown; () after the last step.
      error: why the text could not be read or carried out; our prompts say the latter in their history.
      reward: 0 to 1 when the agent has said that it is done, else 0.
      ended: the agent has said that it is done.
      cut: a limit has ended the episode.
    """

    goal: str
    view: View
    messages: tuple[Message, ...] = ()
    error: str = ""
    reward: float = 0.0
    ended: bool = False
    cut: bool = False


class Turns(contextlib.AbstractContextManager["Turns"]):
    """Episodes in a browser of their own.

    A text is BrowserGym's calls, such as `click('3')`, a line each, or a reply of our agents, a JSON object.

    Args:
      task: `miniwob/PAGE`, or `APPLICATION/TEMPLATE` of an installed application; `reset` may name another.
      max_steps: an episode ends after so many steps.
      prompt: with `compact` or `full`, `EpisodeRunner` plays the episodes: turns have its prompts, with the
        steps so far, its limits hold, and only who declares success is paid.
      apps: folder in which applications are installed; "" is the user's cache.

    Attributes:
      task: of the episode, with its objective.

    Raises:
      UserError: there is no such task, or its application is not installed.
    """

    def __init__(
        self,
        task: str,
        max_steps: int = 20,
        prompt: PromptStyle = "",
        browser: BrowserConfig | None = None,
        apps: str = "",
    ):
        find(task, 0, apps)
        self._name, self._max_steps, self._apps = task, max_steps, apps
        self._prompt: PromptStyle = prompt
        self.session = Session(browser, apps=apps)
        self.task: Task | None = None
        self._played: _Played | None = None
        self._turn: Turn | None = None
        self._steps = 0

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends browser, guard and applications."""
        self._leave()
        self.session.close()

    def reset(self, seed: int, task: str = "") -> Turn:
        """Begins the episode of a seed.

        Raises:
          UserError: there is no browser or application, or no such task.
          EpisodeLostError: the start page does not open, twice.
        """
        found = find(task or self._name, seed, self._apps)
        self._leave()
        try:
            return self._begin(found)
        except EpisodeLostError:
            # What was lost since the last episode is no part of this one.
            return self._begin(found)

    def step(self, text: str) -> Turn:
        """Carries out a text; one that cannot be read is an error of the turn.

        Raises:
          UserError: no episode is open.
          EpisodeLostError: the episode was lost, now or before.
        """
        environment = self.session.environment
        self._steps += 1
        self._turn = self._step(text) if self._played is None else self._reply(environment.redact(text))
        return self._turn

    def _begin(self, task: Task) -> Turn:
        self._steps, self._played = 0, None
        if self._prompt != "":
            prompt = PromptConfig(style=self._prompt)
            self._played = _Played(self.session, task, prompt, EpisodeLimits(max_steps=self._max_steps))
            self._turn = self._played.next_turn()
            self.task = self._played.task
        else:
            self.task, view = self.session.reset(task)
            self._turn = Turn(self.task.objective, view)
        return self._turn

    def _step(self, text: str) -> Turn:
        assert self.task is not None
        try:
            try:
                actions = self._calls(text)
            except ReplyError:
                if not text.lstrip().startswith("{"):
                    raise
                actions = repair_reply(text)[0].executable
        except ReplyError as problem:
            stepped, error = Stepped(self.session.look(), (), 0.0, ended=False), str(problem)
        else:
            stepped = self.session.step(actions)
            error = next((result.text for result in stepped.results[-1:] if result.error), "")
        cut = not stepped.ended and self._steps >= self._max_steps
        return Turn(
            self.task.objective, stepped.view, (), error, stepped.reward, ended=stepped.ended, cut=cut
        )

    def _reply(self, text: str) -> Turn:
        assert self._played is not None
        error = ""
        try:
            actions = self._calls(text)
            reply = Reply(evaluation_previous_goal="", memory="", next_goal="", actions=tuple(actions))
            text = render_reply(reply)
        except ReplyError:
            try:
                repair_reply(text)
            except ReplyError as problem:
                error = str(problem)
        return dataclasses.replace(self._played.next_turn(text), error=error)

    def _calls(self, text: str) -> list[Action]:
        assert self._turn is not None
        page = self._turn.view.observation
        return parse_actions(text, tuple(tab.tab_id for tab in page.tabs), page.current_tab)

    def _leave(self) -> None:
        if self._played is not None:
            self._played.leave()


class _LeftError(Exception):
    """The harness begins another episode."""


class _Played:
    """An episode that `EpisodeRunner` plays in a thread; the actor, this object, is asked for turns.

    The runner is a loop that asks, a harness a loop that is asked: each waits while the other one runs.
    """

    name = "harness"

    def __init__(self, session: Session, task: Task, prompt: PromptConfig, limits: EpisodeLimits):
        self._session, self.task = session, task
        self._prompt, self._limits = prompt, limits
        self._texts = queue.SimpleQueue[str | None]()
        self._asked = queue.SimpleQueue[StepRequest | Trajectory | BaseException]()
        self._view: View | None = None
        self._thread = threading.Thread(target=self._run, name=task.task_id, daemon=True)
        self._thread.start()

    def next_turn(self, text: str | None = None) -> Turn:
        """Gives the runner a text, if it has asked for one; returns the turn that it comes to."""
        if text is not None:
            self._texts.put(text)
        try:
            found = self._asked.get()
        except BaseException:  # Ctrl-C: what the runner comes to belongs to no later turn.
            self.leave()
            self._session.end()
            raise
        if isinstance(found, BaseException):
            self._thread.join()
            raise found
        assert self._view is not None
        turn = Turn(self.task.objective, self._view)
        if isinstance(found, StepRequest):
            return dataclasses.replace(turn, messages=found.messages)
        self._thread.join()
        self._session.end()
        ended = found.outcome == "done"
        paid = ended and found.declared_success is True
        reward = max(0.0, found.reward or 0.0) if paid else 0.0
        return dataclasses.replace(turn, reward=reward, ended=ended, cut=not ended)

    def leave(self) -> None:
        """Ends the episode where it is."""
        self._texts.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            with self._session.losses(), self._left():
                self._session.open(self.task)
                runner = EpisodeRunner(
                    environment=cast(Environment, self._Watched(self)),
                    actor=self,
                    images=self._session.images,
                    prompt=self._prompt,
                    limits=self._limits,
                )
                trajectory = runner.run_episode(self.task)
                if trajectory.outcome == "unreachable":
                    raise SiteUnreachableError(trajectory.detail)
                self._asked.put(trajectory)
        except BaseException as error:
            self._asked.put(error)

    @contextlib.contextmanager
    def _left(self) -> Iterator[None]:
        """Ends the runner where the harness has left the episode; a caller that waits gets an error."""
        try:
            yield
        except _LeftError:
            self._asked.put(EpisodeLostError("the episode was left"))

    def reply(self, request: StepRequest) -> ActorReply:
        start = time.monotonic()
        self._asked.put(request)
        text = self._texts.get()
        if text is None:
            raise _LeftError
        # The limits of an episode do not count the time in which its model does not answer.
        return ActorReply(text, outage_s=time.monotonic() - start)

    def reflect(self, request: ReflectionRequest) -> ActorReply:
        raise AssertionError(request)

    def extract(self, request: ExtractionRequest) -> ActorReply:
        return ActorReply("", problem=NO_READER)

    class _Watched:
        """The environment, whose task and page are remembered for turns."""

        def __init__(self, played: _Played):
            self._played, self._environment = played, played._session.environment

        def __getattr__(self, name: str) -> Any:
            return getattr(self._environment, name)

        def reset(self, task: Task) -> Task:
            self._played.task = self._environment.reset(task)
            return self._played.task

        def observe(self) -> View:
            self._played._view = self._environment.observe()
            return self._played._view
