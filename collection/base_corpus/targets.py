"""What can be asked about a page: its elements and the labels that name them without doubt."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Sequence

from collection.browser.page_text import PageNode

MAX_LABEL_CHARS = 48
_NAMING = ("aria-label", "placeholder", "value", "name", "id")
_TYPED = ("", "text", "password", "email", "search", "tel", "url", "number")
_LINE = re.compile(r"^(\t*)(\*?)(?:\|([A-Z()a-z]+)\+)?\[?(\d+)\]<([\w-]+)(.*?) />(?: \(.*\))?$")
_ATTRIBUTE = re.compile(r" ([\w-]+)=")


@dataclasses.dataclass(frozen=True)
class Target:
    """An element that a question can be about.

    Attributes:
      action: `click`, `type` or `select`.
      labels: texts that name it and nothing else on the page; the one the scripted replies use is first.
      options: of a select, what can be chosen.
    """

    index: int
    action: str
    labels: tuple[str, ...]
    options: tuple[str, ...] = ()


def find_targets(nodes: Sequence[PageNode]) -> list[Target]:
    """The page's elements that some label names uniquely, in page order.

    A label is the element's own visible text, else an attribute (aria-label, placeholder, value, name,
    id), else the text beside it: before a text field, after a checkbox or radio button.
    """
    named = [(node, _labels(nodes, place)) for place, node in enumerate(nodes) if node.index is not None]
    owners = collections.Counter(label for _, labels in named for label in set(labels))
    targets = []
    for node, labels in named:
        unique = tuple(label for label in labels if owners[label] == 1 and _usable(label))
        if unique and node.index is not None:
            options = tuple(filter(_usable, _options(node))) if node.tag == "select" else ()
            action = _action(node)
            if action != "select" or options:
                targets.append(Target(node.index, action, unique, options))
    return targets


def parse_page(page_text: str) -> list[PageNode]:
    """The nodes of a rendered page (`collection.browser.page_text.render_page`)."""
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


def _usable(label: str) -> bool:
    return 0 < len(label) <= MAX_LABEL_CHARS and not set(label) & set("'\"\\\n\t")


def _action(node: PageNode) -> str:
    if node.tag == "select":
        return "select"
    if node.tag == "textarea" or (node.tag == "input" and node.attributes.get("type", "") in _TYPED):
        return "type"
    return "click"


def _labels(nodes: Sequence[PageNode], place: int) -> list[str]:
    node = nodes[place]
    labels = _own_text(nodes, place)
    is_choice = node.tag == "input" and node.attributes.get("type", "") in ("checkbox", "radio")
    # A choice's `value` is never shown.
    names = _NAMING[:2] + _NAMING[3:] if is_choice else _NAMING
    attributes = [node.attributes[name] for name in names if node.attributes.get(name)]
    beside = _beside(nodes, place, after=is_choice)
    if node.tag in ("input", "select", "textarea"):
        labels += beside + attributes if is_choice else attributes + beside
    else:
        labels += attributes
    return list(dict.fromkeys(labels))


def _own_text(nodes: Sequence[PageNode], place: int) -> list[str]:
    """The text line under an element, when there is just one before the next element."""
    lines = []
    for node in nodes[place + 1 :]:
        if node.depth <= nodes[place].depth or node.tag:
            break
        lines.append(node.text)
    return lines if len(lines) == 1 else []


def _beside(nodes: Sequence[PageNode], place: int, after: bool) -> list[str]:
    other = place + 1 if after else place - 1
    if not 0 <= other < len(nodes) or nodes[other].tag:
        return []
    owner = other - 1
    owned = (
        not after
        and owner >= 0
        and nodes[owner].index is not None
        and nodes[owner].depth < nodes[other].depth
    )
    return [] if owned else [nodes[other].text]


def _options(node: PageNode) -> list[str]:
    """What can be chosen: the snapshot joins a list's options with bars."""
    return node.attributes.get("options", "").split("|")
