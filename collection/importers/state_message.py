"""Parses the state message that newer browser-use stores (`AgentHistory.state_message`).

It has the blocks of our own state message, partly with other wording
(`browser_use/agent/prompts.py`, `AgentMessagePrompt`; 0.7.10 does not store it, 0.9.7 does).
"""

from __future__ import annotations

import dataclasses
import re

from collection.browser.page import parse_page
from rmsweb_jax.records.schema import Element

_PAGE = re.compile(r"\n(?:Interactive elements|Elements you can interact with)[^\n]*:\n(.*)\Z", re.DOTALL)
_PAGE_INFO = re.compile(r"<page_info>([\d.]+) pages above, ([\d.]+) pages below")
_CURRENT_TAB = re.compile(r"^Current tab: (\w{4})$", re.MULTILINE)
_MAXIMUM = re.compile(r"[Mm]aximum(?: steps)?: ?(\d+)")
_DATE = re.compile(r"(?:Today|Current date): ?(\d{4}-\d\d-\d\d)")
_EDGE = re.compile(r"\[(?:Start|End) of page\]|\.\.\. [\d.]+ pages (?:above|below).*\.\.\.")
_NOTHING = ("No file system available", "[empty todo.md, fill it when applicable]")
_EMPTY_TODO = re.compile(r"\[Current todo\.md is empty[^\]]*\]")
_PIECE = re.compile(r"^</?read_state_\d+>\n?", re.MULTILINE)
# Our state message has no counterpart of these blocks.
_FOREIGN_BLOCKS = ("<sensitive_data>", "<page_specific_actions>", "<plan>")


@dataclasses.dataclass(frozen=True)
class StateMessage:
    """The parts of a state message.

    Attributes:
      page_text: the element lines, without the marks of the page's start and end.
      faithful: True if our state message can express all of this one.
    """

    objective: str
    page_stats: str
    page_text: str
    current_tab: str
    pages_above: float
    pages_below: float
    max_steps: int
    date: str
    file_system: str
    todo_contents: str
    read_state: str
    faithful: bool


def parse_state_message(text: str) -> StateMessage | None:
    """Parses a message; returns None if it contains no page."""
    browser = _block(text, "browser_state")
    page = _PAGE.search(browser)
    if page is None:
        return None
    info = _PAGE_INFO.search(browser)
    # Only text before the page can be trusted: the page may contain anything.
    head, agent = browser[: page.start()], _block(text, "agent_state")
    tab, maximum, date = _CURRENT_TAB.search(head), _MAXIMUM.search(agent), _DATE.search(agent)
    return StateMessage(
        objective=_block(agent, "user_request"),
        page_stats=_block(head, "page_stats"),
        page_text=_page_text(page.group(1)),
        current_tab=tab.group(1) if tab else "",
        pages_above=float(info.group(1)) if info else 0.0,
        pages_below=float(info.group(2)) if info else 0.0,
        max_steps=int(maximum.group(1)) if maximum else 0,
        date=date.group(1) if date else "",
        file_system=_unless_empty(_block(agent, "file_system")),
        todo_contents=_unless_empty(_block(agent, "todo_contents")),
        read_state=_PIECE.sub("", _block(text[text.rfind("</browser_state>") :], "read_state")).strip("\n"),
        faithful=not any(block in text for block in _FOREIGN_BLOCKS) and info is not None,
    )


def page_elements(page_text: str) -> tuple[Element, ...]:
    """Returns the page's elements and texts as our snapshot lists them."""
    nodes, elements = parse_page(page_text), []
    parents: list[tuple[int, str]] = []
    for place, node in enumerate(nodes):
        while parents and parents[-1][0] >= node.depth:
            parents.pop()
        if node.tag:
            parents.append((node.depth, node.tag))
            own = []
            for inner in nodes[place + 1 :]:
                if inner.depth <= node.depth:
                    break
                if inner.depth == node.depth + 1 and not inner.tag:
                    own.append(inner.text)
            elements.append(
                Element(index=node.index, tag=node.tag, text=" ".join(own), attributes=node.attributes)
            )
        elif node.text and not node.text.startswith("|"):
            tag = parents[-1][1] if parents else ""
            elements.append(Element(index=None, tag=tag, text=node.text))
    return tuple(elements)


def _page_text(text: str) -> str:
    lines = text.strip("\n").split("\n")
    if lines and _EDGE.fullmatch(lines[0].strip()):
        lines = lines[1:]
    if lines and _EDGE.fullmatch(lines[-1].strip()):
        lines = lines[:-1]
    # Newer versions write scrollable elements without the older `+`, and add a comment to SVG elements.
    page = "\n".join(lines).replace("|SCROLL[", "|SCROLL+").replace(" <!-- SVG content collapsed -->", "")
    return "" if page == "empty page" else page


def _block(text: str, tag: str) -> str:
    start, end = text.find(f"<{tag}>"), text.rfind(f"</{tag}>")
    return text[start + len(tag) + 2 : end].strip("\n") if 0 <= start < end else ""


def _unless_empty(text: str) -> str:
    return "" if text.strip() in _NOTHING or _EMPTY_TODO.fullmatch(text.strip()) else text
