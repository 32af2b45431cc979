"""An actor made of hand-written policies that read the agent's messages and answer in its format."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Generator
from typing import Any

from collection.llm.actor import DONE_ONLY, ActorReply, ExtractionRequest, ReflectionRequest, StepRequest
from collection.teacher.state import ParsedState, StateElement, parse_state
from rmsweb_jax.actions import Reply, normalize_action, render_reply

_TAB = re.compile(r"^Current tab: (\w+)$", re.MULTILINE)


class NotShownError(Exception):
    """The page does not show what a policy looks for; the message names it."""


@dataclasses.dataclass(frozen=True)
class Page:
    """A state message.

    Attributes:
      url: of the current tab.
      lines: of the page, without their tabs.
    """

    view: ParsedState
    url: str

    @property
    def request(self) -> str:
        return self.view.request

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(line.strip() for line in self.view.lines)

    def all(self, text: str | None = None, tag: str = "", **attributes: str) -> list[StateElement]:
        """Returns elements by their own text, tag and attributes (`class_` and similar are not shown)."""
        return [
            element
            for element in self.view.elements
            if (text is None or element.text == text)
            and (not tag or element.tag == tag)
            and all(element.attributes.get(name) == value for name, value in attributes.items())
        ]

    def one(self, text: str | None = None, tag: str = "", **attributes: str) -> int:
        """Returns the index of the first match.

        Raises:
          NotShownError: there is none.
        """
        found = self.all(text, tag, **attributes)
        if not found:
            raise NotShownError(f"no {tag or 'element'} {text or ''} {attributes or ''} at {self.url}")
        return found[0].index

    def match(self, pattern: str) -> re.Match[str]:
        """Returns the match in the first line that has one; raises NotShownError."""
        found = next(filter(None, (re.search(pattern, line) for line in self.lines)), None)
        if found is None:
            raise NotShownError(f"nothing like {pattern} at {self.url}")
        return found


def read_page(request: StepRequest) -> Page:
    text = request.messages[-1].text
    current = _TAB.search(text)
    tab = current and re.search(rf"^Tab {current[1]}: (\S*) - ", text, re.MULTILINE)
    return Page(parse_state(text, DONE_ONLY), tab[1] if tab else "")


# A goal and the step's actions; the page after them is sent back. The last one is `done`.
Move = tuple[str, list[dict[str, dict[str, Any]]]]
Moves = Generator[Move, Page, Page]
Policy = Callable[[Page], Generator[Move, Page, None]]


def click(index: int) -> dict[str, dict[str, Any]]:
    return {"click_element_by_index": {"index": index}}


def type_in(index: int, text: str) -> dict[str, dict[str, Any]]:
    return {"input_text": {"index": index, "text": text}}


def done(text: str) -> Move:
    return "Answer", [{"done": {"text": text, "success": True}}]


class ScriptedActor:
    """`collection.llm.actor.ActorModel` that plays the policies of its tasks.

    Args:
      policy_of: returns the policy of a task id.
    """

    name = "scripted-policies"

    def __init__(self, policy_of: Callable[[str], Policy]) -> None:
        self._policy_of = policy_of
        self._playing: dict[tuple[str, int], Generator[Move, Page, None]] = {}

    def reply(self, request: StepRequest) -> ActorReply:
        page = read_page(request)
        key = request.task_id, request.attempt
        try:
            if request.step == 1:
                self._playing[key] = self._policy_of(request.task_id)(page)
                goal, actions = next(self._playing[key])
            else:
                goal, actions = self._playing[key].send(page)
        except (NotShownError, AssertionError, LookupError, RuntimeError, StopIteration) as problem:
            goal, actions = (
                "Give up",
                [{"done": {"text": f"{type(problem).__name__}: {problem}", "success": False}}],
            )
        reply = Reply(
            thinking=None,
            evaluation_previous_goal="Start" if request.step == 1 else "Success",
            memory=f"step {request.step}",
            next_goal=goal,
            actions=tuple(normalize_action(action) for action in actions),
        )
        return ActorReply(render_reply(reply))

    def reflect(self, request: ReflectionRequest) -> ActorReply:
        raise NotImplementedError("episodes of applications are played once")

    def extract(self, request: ExtractionRequest) -> ActorReply:
        raise NotImplementedError("the policies extract nothing")
