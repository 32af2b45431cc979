"""Reads the files of a documentation that Sphinx has made: its pages, and its inventory."""

from __future__ import annotations

import functools
import html.parser
import pathlib
import re
import zlib
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

_EMPTY = {"br", "hr", "img", "input", "link", "meta", "col", "wbr"}
_SPACE = re.compile(r"\s+")


class _Builder(html.parser.HTMLParser):
    """Builds a tree; what is left open is closed by what is around it."""

    def __init__(self) -> None:
        super().__init__()
        self._tree = ElementTree.TreeBuilder()
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tree.start(tag, {name: value or "" for name, value in attrs})
        if tag in _EMPTY:
            self._tree.end(tag)
        else:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while tag in self._open:
            last = self._open.pop()
            self._tree.end(last)
            if last == tag:
                break

    def handle_data(self, data: str) -> None:
        if self._open:
            self._tree.data(data)

    def root(self) -> Element:
        while self._open:
            self._tree.end(self._open.pop())
        return self._tree.close()


class Pages:
    """Pages below a folder.

    Args:
      folder: with `objects.inv`.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self.root = functools.cache(self._root)
        self._addresses = functools.cache(self._inventory)

    def address(self, name: str) -> str:
        """Returns `page#id` of an object of Python or of C; an address stays what it is."""
        return name if "#" in name else self._addresses()[name]

    def described(self, name: str) -> tuple[Element, Element]:
        """Returns the signature of an object and its description."""
        page, _, identifier = self.address(name).partition("#")
        for part in self.root(page).iter("dl"):
            inner = list(part)
            for at, one in enumerate(inner):
                if one.get("id") == identifier:
                    return one, next(later for later in inner[at:] if later.tag == "dd")
        raise LookupError(f"{page} does not describe {name}")

    def section(self, page: str, title: str) -> Element:
        """Returns the section with a heading, which may have a number before it."""
        for part in self.root(page).iter("section"):
            if heading_of(part).lstrip("0123456789. ") == title:
                return part
        raise LookupError(f"{page} has no section {title!r}")

    def _root(self, page: str) -> Element:
        builder = _Builder()
        builder.feed((self._folder / page).read_text(encoding="utf-8"))
        return builder.root()

    def _inventory(self) -> dict[str, str]:
        packed = (self._folder / "objects.inv").read_bytes().split(b"\n", 4)[4]
        found = {}
        for line in zlib.decompress(packed).decode().splitlines():
            match = re.match(r"(.+?) (py|c|std):(\S+) -?\d+ (\S+) ", line)
            if match and match[3] not in ("label", "doc", "term"):
                found.setdefault(match[1], match[4].replace("$", match[1]))
        return found


def heading_of(section: Element) -> str:
    return next((text_of(one) for one in section if re.fullmatch(r"h\d", one.tag)), "")


def text_of(element: Element, lines: bool = False) -> str:
    """Returns the text without the signs that link to a heading; spaces and line ends are one space each."""
    text = "".join(element.itertext()).replace("¶", "").replace("\xa0", " ")
    return text if lines else _SPACE.sub(" ", text).strip()


def with_class(element: Element, name: str, nested: bool = True) -> Iterator[Element]:
    """Yields the parts of a class; those of objects that are described within only if `nested`."""
    for one in element:
        if name in one.get("class", "").split():
            yield one
        if nested or one.tag != "dl":
            yield from with_class(one, name, nested)
