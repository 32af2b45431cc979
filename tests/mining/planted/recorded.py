"""Element lists of real documents, as filler below the planted sites' own lines.

`recorded.json` holds labels of navigation and lists, no prose, of pages of the Rust documentation (MIT or
Apache 2.0) and of MiniWoB++ (MIT): `[tag, text, attributes, interactive]` of the visible elements with texts
of at most 60 characters, as `collection.browser.snapshot.take_snapshot` returns them at 1280 x 4000 pixels.
"""

from __future__ import annotations

import functools
import json
import pathlib
import random

from tests.mining.planted.pages import Block, ElementLine

_FILE = pathlib.Path(__file__).with_name("recorded.json")


@functools.cache
def recorded_pages() -> tuple[tuple[ElementLine, ...], ...]:
    """The lines of every recorded page."""
    pages = json.loads(_FILE.read_text(encoding="utf-8"))
    return tuple(
        tuple(
            ElementLine(tag, words, tuple(attributes.items()), interactive, key=f"recorded {name} {number}")
            for number, (tag, words, attributes, interactive) in enumerate(lines)
        )
        for name, lines in pages.items()
    )


def filler(rng: random.Random, lines: int, apart: Block | None = None) -> Block:
    """The given number of lines of recorded pages that share no line with `apart`."""
    taken = set(apart.lines) if apart else set()
    pages = [page for page in recorded_pages() if not taken & set(page)]
    rng.shuffle(pages)
    found: list[ElementLine] = []
    while len(found) < lines:
        found += pages[0]
        pages = pages[1:] + pages[:1]
    return Block(tuple(found[:lines]))
