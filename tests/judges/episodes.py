"""Forty episodes written by hand, with a known right verdict and the evidence that decides it.

`episodes.yaml` has twenty requests, each with a run that fulfils it (`right`) and one that does not:

    why: the reason for the verdict, for people
    declared: the agent's own flag; true if left out
    asked: a judge is asked; true if left out
    steps: where the agent was (`at`), what it read there (`page`) and what it did (`do`); the last step is
      `done`. A line `[input] Date = 3 May` is an element that can be acted on, with its name and value. An
      action names its element: `click Search`, `type Date: 3 May`, `choose Sort by: price`; or is
      `read QUERY`, with what that gave to read, or `scroll`.
    answer: the final answer
    evidence: texts that a judge must see
    shots: steps whose screenshots it must see; the last one if left out
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from collection.browser.page import PageNode, render_page
from rmsweb_jax.records.schema import ActionResult, Element, Trajectory
from tests.judges.runs import run
from tests.trajectories import step

_ELEMENT = re.compile(r"\[([a-z]+)(?: ([a-z]+))?\] (.*?)(?: = (.*))?")
_ACTIONS = {"click": "click_element_by_index", "type": "input_text", "choose": "select_dropdown_option"}
# Elements whose name is a label, not a text of their own.
_FIELDS = ("input", "select", "textarea")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WrittenStep(_Part):
    at: str
    page: tuple[str, ...]
    do: str = "done"
    gives: str = ""


class WrittenRun(_Part):
    why: str
    steps: tuple[WrittenStep, ...]
    answer: str
    evidence: tuple[str, ...]
    declared: bool = True
    asked: bool = True
    shots: tuple[int, ...] = ()


class _Pair(_Part):
    request: str
    kind: str
    right: WrittenRun
    wrong: WrittenRun


class Episode(_Part):
    """One run.

    Attributes:
      number: of the request, from 1.
      kind: what decides.
      success: the right verdict.
    """

    number: int
    request: str
    kind: str
    success: bool
    written: WrittenRun

    @property
    def name(self) -> str:
        return f"{self.number} {self.kind}, {'right' if self.success else 'wrong'}"

    @functools.cached_property
    def trajectory(self) -> Trajectory:
        steps = tuple(self._step(number, one) for number, one in enumerate(self.written.steps, start=1))
        made = run(
            task_id=f"web/episodes.test/{self.number}",
            objective=self.request,
            final_text=self.written.answer,
            declared_success=self.written.declared,
        )
        return made.model_copy(update={"steps": steps})

    @property
    def shots(self) -> list[str]:
        """Names of the screenshots that a judge must see."""
        return [self.screenshot(number) for number in self.written.shots or (len(self.written.steps),)]

    def screenshot(self, number: int) -> str:
        return f"{self.number:032x}{number:032x}"

    def _step(self, number: int, written: WrittenStep) -> Any:
        nodes, elements = _read_page(written.page)
        action = self._action(written.do, elements)
        (name,) = action
        output = ActionResult(action=name, text="ok", output=written.gives, changed=True)
        made = step(
            number,
            action,
            page=render_page(nodes),
            url=f"https://{written.at}",
            screenshot=self.screenshot(number),
            results=(output,),
        )
        seen = made.observation.model_copy(update={"elements": elements})
        return made.model_copy(update={"observation": seen})

    def _action(self, words: str, elements: tuple[Element, ...]) -> dict[str, Any]:
        verb, _, rest = words.partition(" ")
        if verb == "done":
            return {"done": {"text": self.written.answer, "success": self.written.declared}}
        if verb == "scroll":
            return {"scroll": {"down": True, "num_pages": 1.0}}
        if verb == "read":
            return {"extract_structured_data": {"query": rest}}
        name, _, text = (rest, "", "") if verb == "click" else rest.partition(": ")
        (index,) = [one.index for one in elements if name in (one.text, one.attributes.get("aria-label"))]
        actions = {
            "click": "click_element_by_index",
            "type": "input_text",
            "choose": "select_dropdown_option",
        }
        return {actions[verb]: {"index": index} | ({"text": text} if text else {})}


def _read_page(lines: tuple[str, ...]) -> tuple[list[PageNode], tuple[Element, ...]]:
    nodes, elements = [], []
    for line in lines:
        found = _ELEMENT.fullmatch(line)
        if found is None:
            nodes.append(PageNode(0, "", line))
            elements.append(Element(index=None, tag="", text=line))
            continue
        tag, kind, name, value = found.groups()
        field = tag in _FIELDS
        pairs = (("type", kind), ("aria-label", name if field else None), ("value", value))
        attributes = {key: one for key, one in pairs if one}
        index = sum(one.index is not None for one in elements) + 1
        nodes.append(PageNode(0, tag, index=index, attributes=attributes))
        if not field:
            nodes.append(PageNode(1, "", name))
        elements.append(Element(index=index, tag=tag, text="" if field else name, attributes=attributes))
    return nodes, tuple(elements)


def episodes() -> list[Episode]:
    """All episodes, in pairs."""
    path = Path(__file__).with_suffix(".yaml")
    pairs = [_Pair.model_validate(one) for one in yaml.safe_load(path.read_text(encoding="utf-8"))]
    return [
        Episode(number=number, request=pair.request, kind=pair.kind, success=success, written=written)
        for number, pair in enumerate(pairs, start=1)
        for success, written in ((True, pair.right), (False, pair.wrong))
    ]
