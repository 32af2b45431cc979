"""Scripted policies that are played in one environment and, from a snapshot on, in another."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from collection.agent.config import PromptConfig
from collection.agent.prompt import AgentState, PastStep, build_messages
from collection.environments.base import Environment
from collection.llm.actor import DONE_ONLY
from collection.teacher.parts import make_plan, next_move
from collection.teacher.state import parse_state
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.records.schema import Task
from tests.apps.actor import Move, Page, Policy

MAX_STEPS = 30
_TAB = re.compile(r"^Current tab: (\w+)$", re.MULTILINE)
# A state message -> a goal and the actions of a step.
Decide = Callable[[str], Move]


def page_of(text: str) -> Page:
    current = _TAB.search(text)
    tab = current and re.search(rf"^Tab {current[1]}: (\S*) - ", text, re.MULTILINE)
    return Page(parse_state(text, DONE_ONLY), tab[1] if tab else "")


def oracle(policy: Policy) -> Decide:
    """Decides as a policy, which has to be asked at each step."""
    moves: list[Any] = []

    def decide(text: str) -> Move:
        if moves:
            return moves[0].send(page_of(text))
        moves.append(policy(page_of(text)))
        return next(moves[0])

    return decide


def teacher(text: str) -> Move:
    """Decides as the scripted teacher of MiniWoB++ without mistakes."""
    state = parse_state(text, DONE_ONLY)
    move = next_move(state, make_plan(state.request))
    return move.goal, [move.action]


@dataclasses.dataclass
class Episode:
    """An episode, at its beginning or in the middle.

    Attributes:
      texts: state messages of the steps so far.
    """

    environment: Environment
    task: Task
    history: tuple[PastStep, ...] = ()
    texts: tuple[str, ...] = ()

    def steps(self, decide: Decide) -> Iterator[None]:
        """Plays to the end; yields before each step."""
        while len(self.history) < MAX_STEPS:
            yield
            view = self.environment.observe()
            number = len(self.history) + 1
            state = AgentState(self.task, self.history, number, MAX_STEPS)
            prompt = PromptConfig(date="2027-01-05")
            text = build_messages(state, view.observation, view.page_stats, prompt)[-1].text
            self.texts = (*self.texts, text)
            goal, written = decide(text)
            actions = [normalize_action(one) for one in written]
            if actions[0].name == "done":
                self.environment.finish(actions[0])
                return
            results = self.environment.act(actions, _no_reader, math.inf).results
            lines = tuple(f"Error: {one.text}" if one.error else one.text for one in results)
            self.history = (*self.history, PastStep(number, next_goal=goal, results=lines))

    def fork(self, environment: Environment) -> Episode:
        """The same episode in another environment, which has to be restored first."""
        return dataclasses.replace(self, environment=environment)


def _no_reader(query: str, text: str) -> tuple[str, float]:
    raise AssertionError("no policy asks a model")
