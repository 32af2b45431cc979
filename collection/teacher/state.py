"""Parser of the state message: the scripted teacher's only source of information, as for a model."""

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
class StateElement:
    """An element with an index.

    Attributes:
      text: visible text inside it, outside other indexed elements.
      before, after: the nearest visible text line on either side of its own line.
      follows: tag of the element without attributes on the line above, for example a folder's icon.
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
        """Name of the element in goals; the tiny base's corpus uses the same names.

        The name is the element's own text or an attribute, for a box the text after it, and for a field
        without a name the text before it. The content of a field or a list is never its name.
        """
        attributes = [
            value
            for name in _NAMING
            if (value := self.attributes.get(name)) and (name != "value" or self.is_button)
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
        """True for elements that take typed text."""
        kind = self.attributes.get("type", "text")
        return self.tag == "textarea" or (
            self.tag == "input" and kind in ("text", "password", "search", "email", "tel", "url", "number")
        )

    @property
    def is_box(self) -> bool:
        """True for checkboxes and radio buttons."""
        return self.tag == "input" and self.attributes.get("type") in ("checkbox", "radio")

    @property
    def is_button(self) -> bool:
        """True for all elements but fields, boxes and lists."""
        return not (self.is_field or self.is_box or self.tag == "select")

    @property
    def ticked(self) -> bool:
        return self.attributes.get("checked", "false") != "false"


@dataclasses.dataclass(frozen=True)
class PastGoal:
    """A finished step in `<agent_history>`."""

    goal: str
    failed: bool


@dataclasses.dataclass(frozen=True)
class ParsedState:
    """A parsed state message."""

    request: str
    history: tuple[PastGoal, ...]
    step: int
    elements: tuple[StateElement, ...]
    lines: tuple[str, ...]
    pages_above: float
    pages_below: float
    done_only: bool
    guidance: str

    @functools.cached_property
    def goals(self) -> tuple[str, ...]:
        """Goals of the successful steps, oldest first."""
        return tuple(past.goal for past in self.history if not past.failed)

    @property
    def covered(self) -> bool:
        """True if the page shows its START cover, which means that its episode is over."""
        return any(line.strip() == "START" for line in self.lines)


def parse_state(text: str, done_only_notice: str) -> ParsedState:
    """Parses a user message written by `collection.agent.prompt`.

    Args:
      done_only_notice: the line that allows only `done`.

    Raises:
      UserError: the text is not a state message.
    """
    request = _between(text, "<user_request>\n", "\n</user_request>")
    page = _PAGE_INFO.search(text)
    if request is None or page is None:
        raise UserError("scripted teacher: the message is not a state message; use another config.actor.kind")
    start = text.index("\n", page.end()) + 1
    # The first and the last line mark the page's start and end; a fence is not part of the page.
    page_lines = text[start : text.rindex("\n</browser_state>")].removesuffix("\n</untrusted_content>")
    lines = tuple(page_lines.split("\n")[1:-1])
    step = re.search(r"<step_info>Step (\d+) of", text)
    tail = text[text.rindex("</browser_state>") :]
    return ParsedState(
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


def _elements(lines: tuple[str, ...]) -> list[StateElement]:
    parsed = [_ELEMENT.fullmatch(line) for line in lines]
    found = []
    for number, match in enumerate(parsed):
        index = match and (match["index"] or match["scroll_index"])
        if not (match and index):
            continue
        found.append(
            StateElement(
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
