"""Screenshots, with boxes that tell which index is where, and without secrets."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont
from selenium.common.exceptions import WebDriverException

from collection.browser.guard.blackout import secret_boxes
from collection.browser.page import Snapshot, Target

if TYPE_CHECKING:
    from collection.browser.session import Browser

_COLORS = ((214, 39, 40), (31, 119, 180), (44, 160, 44), (255, 127, 14), (148, 103, 189))
_HIDDEN = (128, 128, 128)
_DASH, _GAP = 4, 3
_LABELLED_BELOW = 3  # Characters of own text.


@dataclasses.dataclass(frozen=True)
class Box:
    """An indexed element in the viewport: pixels, and whether its index is written beside it."""

    index: int
    left: int
    top: int
    right: int
    bottom: int
    labelled: bool


def take_picture(browser: Browser, snapshot: Snapshot, boxes: bool) -> bytes | None:
    """The window as PNG, with a box around every indexed element if asked for, secrets painted over.

    Returns:
      None when that cannot be done.
    """
    drawn = [_box(index, target) for index, target in snapshot.targets.items()] if boxes else []
    hidden = list(snapshot.secrets)
    try:
        png = browser.screenshot()
        if browser.guard is not None:
            redactor, text = browser.guard.redactor, snapshot.page_text
            # Without secrets of ours there is nothing to look for but card numbers, which the text shows too.
            if redactor.has_secrets or redactor.text(text) != text:
                hidden += secret_boxes(browser, redactor)
    except (WebDriverException, LookupError, TypeError, ValueError):
        # Pages can spoil what scripts answer. The text is still good; a picture with secrets would not be.
        return None
    return draw_boxes(png, drawn, hidden) if drawn or hidden else png


def _box(index: int, target: Target) -> Box:
    return Box(index, *target.box, labelled=len(target.text) < _LABELLED_BELOW)


def draw_boxes(png: bytes, boxes: Iterable[Box], hidden: Iterable[tuple[int, int, int, int]] = ()) -> bytes:
    """Dashed boxes, and indices where an element has too little text to be recognised by.

    Args:
      png: a screenshot at one pixel a CSS pixel.
      hidden: left, top, right, bottom of what is painted over.

    Returns:
      PNG bytes of the same size; the same input gives the same bytes.
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
