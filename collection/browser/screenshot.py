"""Screenshots with a box around every indexed element, and with secrets painted over."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont
from selenium.common.exceptions import WebDriverException

from collection.browser.guard.redaction import secret_boxes
from collection.browser.page import ActionTarget, Snapshot

if TYPE_CHECKING:
    from collection.browser.session import Browser

_COLORS = ((214, 39, 40), (31, 119, 180), (44, 160, 44), (255, 127, 14), (148, 103, 189))
_HIDDEN = (128, 128, 128)
_DASH, _GAP = 4, 3
# An element with fewer characters of text cannot be found by it, so its box gets the index.
_LABELLED_BELOW = 3


@dataclasses.dataclass(frozen=True)
class Box:
    """Box of an indexed element in the viewport, in pixels; `labelled` boxes show their index."""

    index: int
    left: int
    top: int
    right: int
    bottom: int
    labelled: bool


def take_screenshot(browser: Browser, snapshot: Snapshot, boxes: bool) -> bytes | None:
    """Takes a screenshot as PNG with secrets painted over.

    Args:
      boxes: draw a box around every indexed element.

    Returns:
      None if no screenshot, or no safe one, can be taken.
    """
    drawn = [_box(index, target) for index, target in snapshot.targets.items()] if boxes else []
    hidden = list(snapshot.secrets)
    try:
        png = browser.screenshot()
        if browser.guard is not None:
            redactor, text = browser.guard.redactor, snapshot.page_text
            # The search is expensive. Without known secrets it finds card numbers only, which the text shows
            # too.
            if redactor.has_secrets or redactor.text(text) != text:
                hidden += secret_boxes(browser, redactor)
    except (WebDriverException, LookupError, TypeError, ValueError):
        # A page can break the search for secrets. Its text is usable; a screenshot with secrets would not be.
        return None
    return draw_boxes(png, drawn, hidden) if drawn or hidden else png


def _box(index: int, target: ActionTarget) -> Box:
    return Box(index, *target.box, labelled=len(target.text) < _LABELLED_BELOW)


def draw_boxes(png: bytes, boxes: Iterable[Box], hidden: Iterable[tuple[int, int, int, int]] = ()) -> bytes:
    """Draws dashed boxes and, for elements with little text, their indices.

    Args:
      png: a screenshot with one pixel per CSS pixel.
      hidden: areas to paint over: left, top, right, bottom.

    Returns:
      A PNG of the same size; the same input gives the same bytes.
    """
    image = Image.open(io.BytesIO(png)).convert("RGB")
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=10)
    for left, top, right, bottom in hidden:
        if right > left and bottom > top:
            draw.rectangle((left, top, right - 1, bottom - 1), fill=_HIDDEN)
    for box in boxes:
        left, top = max(box.left, 0), max(box.top, 0)
        right, bottom = min(box.right, image.width) - 1, min(box.bottom, image.height) - 1
        if right <= left or bottom <= top:
            continue
        color = _COLORS[box.index % len(_COLORS)]
        for x in range(left, right, _DASH + _GAP):
            draw.line((x, top, min(x + _DASH, right), top), fill=color)
            draw.line((x, bottom, min(x + _DASH, right), bottom), fill=color)
        for y in range(top, bottom, _DASH + _GAP):
            draw.line((left, y, left, min(y + _DASH, bottom)), fill=color)
            draw.line((right, y, right, min(y + _DASH, bottom)), fill=color)
        if box.labelled:
            _label(draw, str(box.index), right, top, color, font)
    out = io.BytesIO()
    image.save(out, format="PNG", compress_level=3)
    return out.getvalue()


def _label(
    draw: ImageDraw.ImageDraw,
    text: str,
    right: int,
    top: int,
    color: tuple[int, int, int],
    font: ImageFont.ImageFont | ImageFont.FreeTypeFont,
) -> None:
    width = int(draw.textlength(text, font=font)) + 2
    left, top = max(right - width, 0), max(top - 5, 0)
    draw.rectangle((left, top, left + width, top + 10), fill=color)
    draw.text((left + 1, top - 1), text, fill=(255, 255, 255), font=font)
