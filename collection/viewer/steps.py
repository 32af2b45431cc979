"""An episode prepared for reading: what the agent saw, did and got, what is new, and where attempts part."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

from rmsweb_jax.actions import ReplyError, render_reply, repair_reply
from rmsweb_jax.records.schema import Step, Trajectory

# Lines of the next page that are shown at once.
_MOST_APPEARED = 3
_INDEX = re.compile(r"\s*\[(\d+)\]")


@dataclasses.dataclass(frozen=True)
class TextLine:
    """A line of the page text; `new` ones were not on the page before, `acted` ones name an acted element."""

    text: str
    new: bool
    acted: bool


@dataclasses.dataclass(frozen=True)
class StepPage:
    """A step as the page shows it.

    Attributes:
      thoughts: (field, text) of the reply, such as `next_goal`.
      actions: the actions as compact JSON.
      acted: words of the elements that were acted on.
      boxes: their places in the screenshot: left,top,right,bottom in pixels, one after the other.
      appeared: the first lines of the next page that are not on this one.
      changes: numbers of lines that appeared, and that went.
    """

    step: Step
    lines: tuple[TextLine, ...]
    thoughts: tuple[tuple[str, str], ...]
    actions: tuple[str, ...]
    acted: tuple[str, ...]
    boxes: str = ""
    appeared: tuple[str, ...] = ()
    changes: tuple[int, int] = (0, 0)


def step_pages(run: Trajectory) -> list[StepPage]:
    """The steps of an episode in order."""
    pages: list[StepPage] = []
    before: set[str] = set()
    for step in run.steps:
        thoughts, actions = read_reply(step.response)
        indices = {number for action in actions for number in _indices(action)}
        texts = step.observation.page_text.splitlines()
        lines = tuple(
            TextLine(text, bool(pages) and _plain(text) not in before, _number(text) in indices)
            for text in texts
        )
        before = set(map(_plain, texts))
        elements = [one for one in step.observation.elements if one.index in indices]
        acted = tuple(dict.fromkeys(f"[{one.index}] <{one.tag}> {one.text}".strip() for one in elements))
        boxes = " ".join(",".join(map(str, one.box)) for one in elements if one.box)
        compact = tuple(json.dumps(action, ensure_ascii=False) for action in actions)
        pages.append(StepPage(step, lines, thoughts, compact, acted, boxes))
    for at, (one, following) in enumerate(itertools.pairwise(pages)):
        new = [line.text for line in following.lines if line.new]
        left = {_plain(line.text) for line in following.lines}
        gone = sum(_plain(line.text) not in left for line in one.lines)
        pages[at] = dataclasses.replace(one, appeared=tuple(new[:_MOST_APPEARED]), changes=(len(new), gone))
    return pages


def read_reply(text: str) -> tuple[tuple[tuple[str, str], ...], tuple[dict[str, Any], ...]]:
    """Fields of thought, and actions, of a reply; nothing of one that cannot be read."""
    try:
        fields = json.loads(render_reply(repair_reply(text)[0]))
    except (ReplyError, ValueError):
        return (), ()
    actions = tuple(action for action in fields.pop("action", ()) if isinstance(action, dict))
    return tuple((name, str(value)) for name, value in fields.items() if value), actions


def parting(first: Trajectory, second: Trajectory) -> int | None:
    """The first step (from 1) at which two runs act differently; None if one only goes on longer."""
    for number, (one, other) in enumerate(zip(first.steps, second.steps, strict=False), start=1):
        if read_reply(one.response)[1] != read_reply(other.response)[1]:
            return number
    return None


def heeded(guidance: str, run: Trajectory) -> list[str]:
    """Words of the guidance, of five letters or more, that the replies of the next attempt use, too."""
    replies = " ".join(step.response for step in run.steps).lower()
    words = dict.fromkeys(re.findall(r"[^\W\d_]{5,}", guidance.lower()))
    return [word for word in words if word in replies]


def changed(before: str, after: str) -> list[tuple[str, str]]:
    """(kind, words) of two texts, word by word: kind is "same", "gone" or "new"."""
    old, new = before.split(), after.split()
    parts = []
    for kind, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            parts.append(("same", " ".join(old[i:j])))
            continue
        parts += [(name, " ".join(words)) for name, words in (("gone", old[i:j]), ("new", new[k:m])) if words]
    return parts


def _plain(line: str) -> str:
    return _INDEX.sub("", line, count=1)


def _number(line: str) -> int | None:
    found = _INDEX.match(line)
    return int(found[1]) if found else None


def _indices(value: Any) -> Sequence[int]:
    """Every `index` in the parameters of an action."""
    if isinstance(value, dict):
        own = [one for name, one in value.items() if name == "index" and isinstance(one, int)]
        return own + [number for one in value.values() for number in _indices(one)]
    return []
