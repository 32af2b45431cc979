"""A page as the agent sees it: its snapshot, its indexed elements, and its rendering as text.

Every element that the agent can act on has a line; its visible text is on lines of its own, one tab deeper:

    [3]<button id=submit aria-label=Send />
        Send the form        (one tab deeper)
    *[4]<a href=/help />        a star marks an element that was not in the previous snapshot

Text of the page passes `neutralize`, so that a page cannot imitate the prompt's lines, tags or chat markers.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from rmsweb_jax.records.schema import Element

MAX_PAGE_CHARS = 40_000  # browser-use's `max_clickable_elements_length`.
MAX_ATTRIBUTE_CHARS = 100
_SPACE = re.compile(r"\s+")
# All tags of the state message; `test_page_text` compares them with the templates.
RESERVED_TAGS = (
    "agent_history",
    "agent_state",
    "browser_state",
    "file_system",
    "page_info",
    "page_stats",
    "read_state",
    "reflection_guidance",
    "secret",
    "step_info",
    r"step_\d+",
    "system",
    "think",
    "todo_contents",
    "tool_call",
    "tool_response",
    "tools",
    r"untrusted\w*",
    "user_request",
)
_FORGED = re.compile(
    rf"<(?=\s*/?\s*(?:{'|'.join(RESERVED_TAGS)})\b)"  # a tag of the prompt
    r"|<(?=\|)"  # <|im_start|> and similar
    r"|(?<=\d\])<|(?<=[A-Z)]\|)<"  # [12]<button, |IFRAME|<iframe
    r"|\[(?=(?:Start|End) of page\])",
    re.IGNORECASE,
)
_LOOK_ALIKE = {"<": "\u2039", "[": "("}
# Control characters (terminals interpret them) and invisible tag characters (they can hide instructions).
_INVISIBLE = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\U000e0000-\U000e007f]")
# Halves of surrogate pairs, which UTF-8 cannot encode.
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclasses.dataclass(frozen=True)
class PageNode:
    """One line of a page: an element, or (with an empty `tag`) a piece of visible text.

    Attributes:
      depth: number of tabs before the line.
      index: number by which the agent refers to the element; None if it cannot be acted on.
      is_new: the element was not in the previous snapshot of this page.
      marker: `SCROLL`, `IFRAME`, `SHADOW(open)`, `SHADOW(closed)` or empty.
      pages_above, pages_below: for `SCROLL`, the hidden content of the container in units of its height.
    """

    depth: int
    tag: str
    text: str = ""
    index: int | None = None
    attributes: dict[str, str] = dataclasses.field(default_factory=dict)
    is_new: bool = False
    marker: str = ""
    pages_above: float = 0.0
    pages_below: float = 0.0


def render_page(nodes: Iterable[PageNode], max_chars: int = MAX_PAGE_CHARS) -> str:
    """Returns the element lines of a page, cut after the last whole line within `max_chars`."""
    lines, size = [], 0
    for node in nodes:
        line = render_node(node)
        size += len(line) + 1
        if size > max_chars:
            lines.append("... (page text cut here)")
            break
        lines.append(line)
    return "\n".join(lines)


def render_node(node: PageNode) -> str:
    """Returns one line, without its newline."""
    tabs = "\t" * node.depth
    if not node.tag:
        return tabs + neutralize(squeeze(node.text))
    new = "*" if node.is_new and node.index is not None else ""
    marker = f"|{node.marker}" if node.marker else ""
    index = f"[{node.index}]" if node.index is not None else ""
    if node.marker and node.index is not None:
        index = f"+{node.index}]"
    elif node.marker:
        marker += "|"
    attributes = "".join(f" {name}={short_value(value)}" for name, value in node.attributes.items() if value)
    scroll = ""
    if node.marker == "SCROLL":
        scroll = f" ({node.pages_above:.1f} pages above, {node.pages_below:.1f} pages below)"
    return f"{tabs}{new}{marker}{index}<{node.tag}{attributes} />{scroll}"


def neutralize(text: str) -> str:
    """Returns untrusted text (of pages, titles, addresses, tools) that cannot imitate the prompt.

    The opening `<` of the prompt's tags and markers becomes a look-alike character, as does the `[` of the
    page's start and end markers. Control and invisible tag characters are removed; half a surrogate pair
    becomes U+FFFD. All other text stays, and a second call changes nothing.
    """
    if not text.isascii():
        text = _SURROGATES.sub("\ufffd", text)
    text = _INVISIBLE.sub("", text)
    if "<" not in text and "[" not in text:
        return text
    return _FORGED.sub(lambda found: _LOOK_ALIKE[found[0]], text)


def squeeze(text: str) -> str:
    """Replaces runs of white space by one space, as browsers do."""
    return _SPACE.sub(" ", text).strip()


def short_value(value: str) -> str:
    """Returns an attribute value on one line, neutralised, at most `MAX_ATTRIBUTE_CHARS` long."""
    value = neutralize(squeeze(value))
    return value if len(value) <= MAX_ATTRIBUTE_CHARS else value[: MAX_ATTRIBUTE_CHARS - 3] + "..."


_LINE = re.compile(r"^(\t*)(\*?)(?:\|([A-Z()a-z]+)\+)?\[?(\d+)\]<([\w-]+)(.*?) />(?: \(.*\))?$")
_ATTRIBUTE = re.compile(r" ([\w-]+)=")


def parse_page(page_text: str) -> list[PageNode]:
    """Returns the nodes of a rendered page; the inverse of `render_page`."""
    nodes = []
    for line in page_text.split("\n"):
        match = _LINE.match(line)
        if match is None:
            nodes.append(PageNode(depth=len(line) - len(line.lstrip("\t")), tag="", text=line.strip("\t")))
            continue
        tabs, star, marker, index, tag, rest = match.groups()
        pieces = _ATTRIBUTE.split(rest)
        attributes = dict(zip(pieces[1::2], pieces[2::2], strict=True))
        nodes.append(
            PageNode(len(tabs), tag, "", int(index), attributes, is_new=bool(star), marker=marker or "")
        )
    return nodes


@dataclasses.dataclass(frozen=True)
class ActionTarget:
    """The element behind an index.

    Attributes:
      uid: number of the element in its frame; it does not change while the element exists.
      document: creation time of its document; a new document starts its numbers again.
      frames: numbers of the enclosing frame elements, outermost first.
      text: visible text of its own.
      label: attributes that identify it, as opposed to those that give its state.
      box: left, top, right, bottom of the part inside the viewport, in CSS pixels.
    """

    uid: int
    document: float
    frames: tuple[int, ...]
    tag: str
    text: str
    label: tuple[str, ...]
    box: tuple[int, int, int, int]

    def looks_like(self, other: ActionTarget) -> bool:
        """Returns True for an element that another one may have been replaced by, in the same frame."""
        same = (self.document, self.frames, self.tag) == (other.document, other.frames, other.tag)
        return same and (self.text, self.label) == (other.text, other.label)

    @property
    def identity(self) -> tuple[float, tuple[int, ...], int]:
        return self.document, self.frames, self.uid


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A document of a tab at one moment.

    Attributes:
      target: DevTools' id of the tab, which is the driver's handle.
      document: creation time of the document.
      status: HTTP status of the document; None if it is not known.
      nodes: its lines in order.
      targets: elements by index, 1..N in page order.
      elements: visible elements with text of their own, for records; links with their full address.
      secrets: boxes of secret fields that the page shows in plain text, in CSS pixels of the window.
      stats: text for `<page_stats>`.
      fingerprint: hash of the URL and of the lines without indices.
    """

    target: str
    document: float
    status: int | None
    url: str
    title: str
    nodes: tuple[PageNode, ...]
    targets: dict[int, ActionTarget]
    elements: tuple[Element, ...]
    secrets: tuple[tuple[int, int, int, int], ...]
    stats: str
    fingerprint: str
    pages_above: float
    pages_below: float

    @property
    def page_text(self) -> str:
        return render_page(self.nodes)

    def repeats(self, other: Snapshot) -> bool:
        """Returns True if the tab, the address, and all lines with their indices are those of another one."""
        mine, theirs = (
            [dataclasses.replace(node, is_new=False) for node in one.nodes] for one in (self, other)
        )
        return (self.target, self.url, mine) == (other.target, other.url, theirs)
