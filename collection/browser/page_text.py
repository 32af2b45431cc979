"""Pages as text: the element lines the agent reads.

One line an element that can be acted on, its visible text on lines of its own one tab deeper:

    [3]<button id=submit aria-label=Send />
        Send the form        (one tab deeper)
    *[4]<a href=/help />        a star marks an element that was not in the previous snapshot

What a page says goes through `neutralize`, so that no page can write lines, tags or chat marks of ours.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

MAX_PAGE_CHARS = 40_000
MAX_ATTRIBUTE_CHARS = 100
_SPACE = re.compile(r"\s+")
# Every tag of the state message; `test_page_text` holds the templates against it.
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
    rf"<(?=\s*/?\s*(?:{'|'.join(RESERVED_TAGS)})\b)"  # a tag of ours
    r"|<(?=\|)"  # <|im_start|> and its like
    r"|(?<=\d\])<|(?<=[A-Z)]\|)<"  # [12]<button, |IFRAME|<iframe
    r"|\[(?=(?:Start|End) of page\])",
    re.IGNORECASE,
)
_LOOK_ALIKE = {"<": "\u2039", "[": "("}
# Control characters (terminals obey them), invisible tag characters (hidden orders), half surrogate pairs.
_UNSEEN = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\U000e0000-\U000e007f]")
_BROKEN = re.compile("[\ud800-\udfff]")


@dataclasses.dataclass(frozen=True)
class PageNode:
    """One line of a page: an element, or (with an empty `tag`) a piece of visible text.

    Attributes:
      depth: number of tabs before the line.
      index: what the agent calls the element by; None when it cannot be acted on.
      is_new: it was not in the previous snapshot of this page.
      marker: `SCROLL`, `IFRAME`, `SHADOW(open)`, `SHADOW(closed)` or empty.
      pages_above, pages_below: for `SCROLL`, what the container hides, in its own heights.
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
    """The element lines of a page, cut at the last whole line within `max_chars`."""
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
    """One line, without its newline."""
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
    attributes = "".join(f" {name}={cut(value)}" for name, value in node.attributes.items() if value)
    scroll = ""
    if node.marker == "SCROLL":
        scroll = f" ({node.pages_above:.1f} pages above, {node.pages_below:.1f} pages below)"
    return f"{tabs}{new}{marker}{index}<{node.tag}{attributes} />{scroll}"


def neutralize(text: str) -> str:
    """What others wrote, unable to pass for what we write: for pages, titles, addresses, tools' outputs.

    The opening `<` of tags and marks of ours becomes a look-alike, as does the `[` of the page's start and
    end; control and invisible tag characters go; half a surrogate pair becomes U+FFFD, so that the result can
    be encoded. Everything else stays as it is, and a second time changes nothing.
    """
    if not text.isascii():
        text = _BROKEN.sub("\ufffd", text)
    text = _UNSEEN.sub("", text)
    if "<" not in text and "[" not in text:
        return text
    return _FORGED.sub(lambda found: _LOOK_ALIKE[found[0]], text)


def squeeze(text: str) -> str:
    """Runs of white space become one space, as a browser shows them."""
    return _SPACE.sub(" ", text).strip()


def cut(value: str) -> str:
    """An attribute value on one line, neutral, at most `MAX_ATTRIBUTE_CHARS` long."""
    value = neutralize(squeeze(value))
    return value if len(value) <= MAX_ATTRIBUTE_CHARS else value[: MAX_ATTRIBUTE_CHARS - 3] + "..."
