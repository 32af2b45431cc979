"""Secrets in screenshots: where they are on a page, painted over before a picture is stored.

Found are password fields (also once they show their text), fields for cards, card numbers anywhere, and
texts and fields that hold a known secret. Not found is what a page draws: pictures, canvas, its own fonts.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any, Protocol

from selenium.common.exceptions import NoSuchFrameException, StaleElementReferenceException

from collection.browser.guard.redact import Redactor
from collection.browser.page_scripts import mended

SCRIPT = mended(pathlib.Path(__file__).with_name("blackout.js").read_text(encoding="utf-8"))
_MAX_DEPTH = 5
Box = tuple[int, int, int, int]


class Page(Protocol):
    """What is needed of a `Browser`."""

    @property
    def driver(self) -> Any: ...

    def script(self, code: str, *args: Any) -> Any: ...

    def call(self, function: Callable[..., Any], *args: Any) -> Any: ...


def secret_boxes(page: Page, redactor: Redactor) -> list[Box]:
    """Where secrets are seen: left, top, right, bottom in pixels of the window.

    One script for the page and all frames of its origin, one more for each frame of another.
    """
    boxes: list[Box] = []
    _collect(page, redactor, (0.0, 0.0), 0, boxes)
    return boxes


def boxes_in(answer: dict[str, Any], redactor: Redactor) -> list[Box]:
    """The boxes in what `SCRIPT` returned, its texts compared with the secrets."""
    boxes = [_box(entry) for entry in answer["boxes"]]
    texts = [entry[0] for entry in answer["texts"]]
    # Together, since a page may cut a secret into several nodes.
    whole, ends = "".join(texts), []
    for text in texts:
        ends.append((ends[-1] if ends else 0) + len(text))
    for start, stop in redactor.spans(whole):
        begin = 0
        for entry, end in zip(answer["texts"], ends, strict=True):
            if begin < stop and start < end:
                boxes.append(_box(entry[1:]))
            begin = end
    return boxes


def _collect(
    page: Page, redactor: Redactor, offset: tuple[float, float], depth: int, boxes: list[Box]
) -> None:
    answer = page.script(SCRIPT, {"texts": redactor.has_secrets})
    dx, dy = map(round, offset)
    boxes += [
        (left + dx, top + dy, right + dx, bottom + dy)
        for left, top, right, bottom in boxes_in(answer, redactor)
    ]
    for element, x, y in answer["frames"] if depth < _MAX_DEPTH else ():
        try:
            page.call(page.driver.switch_to.frame, element)
        except (NoSuchFrameException, StaleElementReferenceException):
            continue  # It has gone while we looked.
        try:
            _collect(page, redactor, (offset[0] + x, offset[1] + y), depth + 1, boxes)
        finally:
            page.call(page.driver.switch_to.parent_frame)


def _box(entry: list[int]) -> Box:
    left, top, right, bottom = entry
    return left, top, right, bottom
