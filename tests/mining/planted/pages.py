"""Pages of a planted site: lines with effects, and how a browser snapshot would write them down."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

MAX_ATTRIBUTE_CHARS = 100
# As pydantic writes strings: other letters than ASCII stay as they are.
escape: Callable[[str], str] = json.encoder.encode_basestring


class Effect(NamedTuple):
    """The effect of acting on an element.

    Attributes:
      values: variables that a click sets; `@name` copies another one; `page` opens another page.
      variable: takes what is typed or chosen.
      options: of a dropdown.
      error: the page fails in this way instead.
    """

    values: tuple[tuple[str, str], ...] = ()
    variable: str = ""
    options: tuple[str, ...] = ()
    error: str = ""


class ElementLine(NamedTuple):
    """An element that can be acted on, or (with `interactive` False) a piece of visible text.

    Attributes:
      tag: of the element, or of the one that holds the text.
      key: what scripts call the element by; the text where it is empty.
    """

    tag: str
    text: str = ""
    attributes: tuple[tuple[str, str], ...] = ()
    interactive: bool = False
    effect: Effect = Effect()
    key: str = ""


def text(words: str, tag: str = "p") -> ElementLine:
    return ElementLine(tag, words)


def link(words: str, href: str, effect: Effect | None = None, key: str = "") -> ElementLine:
    return ElementLine("a", words, (("href", href),), True, effect or Effect(), key)


def button(words: str, effect: Effect | None = None, key: str = "", **attributes: str) -> ElementLine:
    return ElementLine("button", words, _attributes(attributes), True, effect or Effect(), key)


def field(
    label: str, variable: str, value: str = "", kind: str = "text", placeholder: str = ""
) -> ElementLine:
    shown = "*" * min(len(value), 6) if kind == "password" else value
    attributes = {
        "name": variable,
        "type": kind,
        "aria_label": label,
        "placeholder": placeholder,
        "value": shown,
    }
    return ElementLine("input", "", _attributes(attributes), True, Effect(variable=variable), label)


def dropdown(label: str, variable: str, options: tuple[str, ...], value: str = "") -> ElementLine:
    """A `<select>`; clicking it changes nothing and shows its options."""
    attributes = {"name": variable, "aria_label": label, "value": value or options[0]}
    attributes["options"] = "|".join(options)
    return ElementLine("select", "", _attributes(attributes), True, Effect((), variable, options), label)


def picker(label: str, variable: str, options: tuple[str, ...], value: str = "") -> ElementLine:
    """A list box made of `<div>`s: a click on it does nothing, its options can be chosen all the same."""
    attributes = {"role": "combobox", "aria_label": label, "aria_expanded": "false"}
    return ElementLine("div", value or f"Choose {label.lower()}", _attributes(attributes), True,
                Effect((), variable, options), label)  # fmt: skip


def _attributes(given: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name.replace("_", "-"), value) for name, value in given.items() if value)


class Block:
    """Lines that are the same on many pages; their text is made once for each place and first index."""

    def __init__(self, lines: tuple[ElementLine, ...]):
        self.lines = lines
        self._shown: dict[tuple[int, int, int], Shown] = {}

    def show(self, first: int, last: int, index: int) -> Shown:
        """Lines `first` to `last` (0-based, exclusive), indexed from `index` on."""
        place = (first, last, index)
        if place not in self._shown:
            self._shown[place] = show(self.lines[first:last], index)
        return self._shown[place]


class Shown(NamedTuple):
    """Lines as a snapshot has them.

    Attributes:
      plain: the text without indices, of which fingerprints are made.
      elements: JSON objects of `Element`, joined by commas.
      places: index and line of every element, by its key; the first of equal keys.
      lists: keys of the `<select>`s.
    """

    text: str
    plain: str
    elements: str
    places: dict[str, tuple[int, ElementLine]]
    lists: tuple[str, ...]
    links: int
    interactive: int
    count: int


def show(lines: tuple[ElementLine, ...], index: int) -> Shown:
    texts, plain, elements, places, links, first = [], [], [], {}, 0, index
    for line in lines:
        words = escape(line.text)
        if not line.interactive:
            texts.append(line.text)
            plain.append(line.text)
            elements.append(f'{{"index":null,"tag":{escape(line.tag)},"text":{words},"attributes":{{}}}}')
            continue
        attributes = "".join(f" {name}={value[:MAX_ATTRIBUTE_CHARS]}" for name, value in line.attributes)
        body = f"<{line.tag}{attributes} />" + (f"\n\t{line.text}" if line.text else "")
        texts.append(f"[{index}]{body}")
        plain.append(body)
        full = ",".join(f"{escape(name)}:{escape(value)}" for name, value in line.attributes)
        elements.append(
            f'{{"index":{index},"tag":{escape(line.tag)},"text":{words},"attributes":{{{full}}}}}'
        )
        if line.text:
            elements.append(f'{{"index":null,"tag":{escape(line.tag)},"text":{words},"attributes":{{}}}}')
        places.setdefault(line.key or line.text, (index, line))
        links += line.tag == "a"
        index += 1
    lists = tuple(key for key, (_, line) in places.items() if line.tag == "select")
    interactive, texts_json = index - first, ",".join(elements)
    return Shown(
        "\n".join(texts), "\n".join(plain), texts_json, places, lists, links, interactive, len(elements)
    )


@dataclasses.dataclass(frozen=True)
class Page:
    """A document.

    Attributes:
      lines: its own; `footer` follows them.
      enter: what the Enter key does.
    """

    url: str
    title: str
    lines: tuple[ElementLine, ...]
    footer: Block
    enter: Effect | None = None


@dataclasses.dataclass(frozen=True)
class View:
    """A page as it is seen from one scroll position; `above` and `below` are in viewport heights."""

    page: Page
    shown: Shown
    fingerprint: str
    screenshot: str
    above: float
    below: float
    stats: str
    text_json: str

    def find(self, key: str) -> tuple[int, ElementLine]:
        """Index and line of an element.

        Raises:
          KeyError: it is not in view: the script does not fit the site.
        """
        return self.shown.places[key]


def view(page: Page, scroll: int, height: int) -> View:
    """The visible lines: one viewport of `height` lines, and one more above and below it."""
    total, own = len(page.lines) + len(page.footer.lines), len(page.lines)
    first, last = max(0, (scroll - 1) * height), min(total, (scroll + 2) * height)
    top = show(page.lines[first:last], 1)
    rest = page.footer.show(max(first - own, 0), max(last - own, 0), 1 + top.interactive)
    shown = Shown(
        "\n".join(filter(None, (top.text, rest.text))),
        "\n".join((top.plain, rest.plain)),
        ",".join(filter(None, (top.elements, rest.elements))),
        {**rest.places, **top.places},
        top.lists + rest.lists,
        top.links + rest.links,
        top.interactive + rest.interactive,
        top.count + rest.count,
    )
    digest = hashlib.sha256(f"{page.url}\n{shown.plain}".encode()).hexdigest()[:32]
    return View(
        page,
        shown,
        digest,
        SCREENSHOTS[int(digest[:2], 16) % len(SCREENSHOTS)][0],
        float(scroll),
        round(max(0.0, total / height - scroll - 1), 2),
        f"{shown.links} links, {shown.interactive} interactive, {shown.count} elements",
        escape(shown.text),
    )


def last_scroll(page: Page, height: int) -> int:
    """The number of viewport heights by which a page can be scrolled down."""
    return max(0, (len(page.lines) + len(page.footer.lines) - 1) // height)


def _png(shade: int, size: int = 32) -> bytes:
    """A grey square."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)
    rows = (b"\0" + bytes([shade]) * size) * size
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


# SHA-256 and bytes of the few images used as screenshots.
SCREENSHOTS = tuple(
    (hashlib.sha256(png).hexdigest(), png) for png in (_png(24 * shade) for shade in range(1, 9))
)
