"""Reads a state message back: all that the scripted teacher knows, it reads here, as a model would."""

from __future__ import annotations

import dataclasses
import functools
import re

from rmsweb_jax.errors import UserError

_ELEMENT = re.compile(
    r"(?P<tabs>\t*)(?P<new>\*)?(?:\|(?P<marker>[\w()]+)(?:\||\+(?P<scroll_index>\d+)\])|\[(?P<index>\d+)\])?"
    r"<(?P<tag>[a-z][\w-]*)(?P<attributes>(?: [\w:.-]+=.*?)?) />(?: \(.*\))?"
)
_ATTRIBUTE = re.compile(r" ([\w:.-]+)=(.*?)(?= [\w:.-]+=|$)")
_PAST = re.compile(r"<step_(\d+)>\n(.*?)</step_\1>", re.DOTALL)
_PAGE_INFO = re.compile(r"<page_info>([\d.]+) pages above, ([\d.]+) pages below")
_NAMING = ("aria-label", "placeholder", "value", "name", "id", "title")


@dataclasses.dataclass(frozen=True)
class Element:
    """An element that can be acted on.

    Attributes:
      text: visible text inside it, outside other indexed elements.
      before, after: the nearest visible text line on either side of its own line.
      follows: tag of the bare element on the line above, for example the mark that opens a folder.
    """

    index: int
    tag: str
    attributes: dict[str, str] = dataclasses.field(hash=False)
    text: str
    before: str
    after: str
    follows: str = ""

    @property
    def label(self) -> str:
        """What a goal calls the element by; `collection.base_corpus.targets` names elements the same way.

        Its own text, or an attribute; boxes go by the text behind them, fields without a name by the
        text before them. What a field or a list holds is its content, not its name.
        """
        attributes = [
            value
            for name in _NAMING
            if (value := self.attributes.get(name)) and (name != "value" or self.pressed)
        ]
        if self.is_box:
            choices = [self.text or self.after, *attributes]
        elif self.tag == "select" or self.is_field:
            choices = [*attributes, self.before]
        else:
            choices = [self.text, *attributes, self.before]
        return next(filter(None, choices), "")

    @property
    def is_field(self) -> bool:
        """Whether text can be typed into it."""
        kind = self.attributes.get("type", "text")
        return self.tag == "textarea" or (
            self.tag == "input" and kind in ("text", "password", "search", "email", "tel", "url", "number")
        )

    @property
    def is_box(self) -> bool:
        """Whether it is ticked."""
        return self.tag == "input" and self.attributes.get("type") in ("checkbox", "radio")

    @property
    def pressed(self) -> bool:
        """Whether it is neither filled in, nor ticked, nor a list."""
        return not (self.is_field or self.is_box or self.tag == "select")

    @property
    def ticked(self) -> bool:
        return self.attributes.get("checked", "false") != "false"


@dataclasses.dataclass(frozen=True)
class PastGoal:
    """A finished step as `<agent_history>` tells it."""

    goal: str
    failed: bool


@dataclasses.dataclass(frozen=True)
class View:
    """One state message."""

    request: str
    history: tuple[PastGoal, ...]
    step: int
    elements: tuple[Element, ...]
    lines: tuple[str, ...]
    pages_above: float
    pages_below: float
    done_only: bool
    guidance: str

    @functools.cached_property
    def goals(self) -> tuple[str, ...]:
        """Goals of the steps that worked, oldest first."""
        return tuple(past.goal for past in self.history if not past.failed)

    @property
    def covered(self) -> bool:
        """Whether the page shows its START cover: its own episode is over."""
        return any(line.strip() == "START" for line in self.lines)


def read_state(text: str, done_only_notice: str) -> View:
    """Parses a user message written by `collection.agent.prompt`.

    Args:
      done_only_notice: the line that asks for `done` alone.

    Raises:
      UserError: the text is no state message.
    """
    request = _between(text, "<user_request>\n", "\n</user_request>")
    page = _PAGE_INFO.search(text)
    if request is None or page is None:
        raise UserError("scripted teacher: the message is no state message; use another config.actor.kind")
    start = text.index("\n", page.end()) + 1
    # The first and the last line are the marks of the page's start and end; a fence is no part of the page.
    page_lines = text[start : text.rindex("\n</browser_state>")].removesuffix("\n</untrusted_content>")
    lines = tuple(page_lines.split("\n")[1:-1])
    step = re.search(r"<step_info>Step (\d+) of", text)
    tail = text[text.rindex("</browser_state>") :]
    return View(
        request=request,
        history=tuple(_past_goal(match[2]) for match in _PAST.finditer(text[: text.index("<agent_state>")])),
        step=int(step[1]) if step else 1,
        elements=tuple(_elements(lines)),
        lines=lines,
        pages_above=float(page[1]),
        pages_below=float(page[2]),
        done_only=done_only_notice in text,
        guidance=_between(tail, "<reflection_guidance>\n", "\n</reflection_guidance>") or "",
    )


def _between(text: str, start: str, end: str) -> str | None:
    _, found, rest = text.partition(start)
    inner, closed, _ = rest.partition(end)
    return inner if found and closed else None


def _past_goal(body: str) -> PastGoal:
    goal = re.search(r"^Next goal: (.*)$", body, re.MULTILINE)
    failed = goal is None or re.search(r"^Result: Error", body, re.MULTILINE) is not None
    return PastGoal(goal[1] if goal else "", failed)


def _elements(lines: tuple[str, ...]) -> list[Element]:
    parsed = [_ELEMENT.fullmatch(line) for line in lines]
    found = []
    for number, match in enumerate(parsed):
        index = match and (match["index"] or match["scroll_index"])
        if not (match and index):
            continue
        found.append(
            Element(
                index=int(index),
                tag=match["tag"],
                attributes=dict(_ATTRIBUTE.findall(match["attributes"])),
                text=_own_text(lines, parsed, number),
                before=_neighbour(lines, parsed, range(number - 1, -1, -1)),
                after=_neighbour(lines, parsed, range(number + 1, len(lines))),
                follows=_sibling_above(parsed, number),
            )
        )
    return found


def _own_text(lines: tuple[str, ...], parsed: list[re.Match[str] | None], number: int) -> str:
    depth = len(lines[number]) - len(lines[number].lstrip("\t"))
    texts, hidden_below = [], None
    for line, match in zip(lines[number + 1 :], parsed[number + 1 :], strict=True):
        level = len(line) - len(line.lstrip("\t"))
        if level <= depth:
            break
        if hidden_below is not None and level > hidden_below:
            continue
        hidden_below = level if match and (match["index"] or match["scroll_index"]) else None
        if match is None:
            texts.append(line.strip())
    return " ".join(texts)


def _neighbour(lines: tuple[str, ...], parsed: list[re.Match[str] | None], numbers: range) -> str:
    return next((lines[number].strip() for number in numbers if parsed[number] is None), "")


def _sibling_above(parsed: list[re.Match[str] | None], number: int) -> str:
    match, above = parsed[number], parsed[number - 1] if number else None
    same_depth = match is not None and above is not None and match["tabs"] == above["tabs"]
    return above["tag"] if same_depth and above is not None else ""
