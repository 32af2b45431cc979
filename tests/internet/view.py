"""What a scripted agent sees of a state message, and the actions that it can answer with."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from collection.llm.actor import DONE_ONLY
from collection.teacher.state import ParsedState, StateElement, parse_state

CODE = re.compile(r"Confirmation code: ([A-Z]{3}-\d+-\d+)")
_REFUSED = re.compile(r"Access denied|verify you are human|cannot be reached|status 50\d", re.IGNORECASE)

Actions = list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class View:
    """A state message.

    Attributes:
      text: all of the page that can be read.
      message: the whole message, with history, files and guidance.
    """

    state: ParsedState
    text: str
    message: str

    @classmethod
    def of(cls, message: str) -> View:
        state = parse_state(message, DONE_ONLY)
        return cls(state, "\n".join(state.lines), message)

    @property
    def code(self) -> str:
        """The confirmation code on the page or in what was read last; "" if there is none."""
        found = CODE.search(self.message[self.message.index("<browser_state>") :])
        return found[1] if found else ""

    @property
    def refused(self) -> bool:
        return _REFUSED.search(self.text) is not None and len(self.text) < 600

    def find(self, name: str) -> StateElement | None:
        """Returns the first element whose name or attributes match a pattern."""
        pattern = re.compile(name, re.IGNORECASE)
        for element in self.state.elements:
            if pattern.search(" ".join((element.label, element.text, *element.attributes.values()))):
                return element
        return None

    def click(self, *names: str) -> Actions:
        """Returns a click on the first of these that is there; no action if none is."""
        for name in names:
            if (element := self.find(name)) is not None:
                return [{"click_element_by_index": {"index": element.index}}]
        return []

    def type(self, name: str, text: str) -> Actions:
        element = self.find(name)
        return [] if element is None else [{"input_text": {"index": element.index, "text": text}}]


def done(text: str, success: bool) -> Actions:
    return [{"done": {"text": text, "success": success}}]
