"""Boxes on screenshots."""

from __future__ import annotations

import io

from PIL import Image

from collection.browser.page import ActionTarget
from collection.browser.snapshot import draw_boxes


def blank(width: int = 60, height: int = 40) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), "white").save(out, format="PNG")
    return out.getvalue()


def target(index: int, box: tuple[int, int, int, int], text: str = "text") -> dict[int, ActionTarget]:
    return {index: ActionTarget(1, 0.0, (), "a", text, (), box)}


def changed_area(png: bytes) -> tuple[int, int, int, int] | None:
    """Returns the bounding box (left, top, right, bottom) of everything that is not white."""
    image = Image.open(io.BytesIO(png)).convert("L")
    return image.point([255 if level < 255 else 0 for level in range(256)]).getbbox()


def test_a_box_is_drawn_on_the_elements_edge() -> None:
    assert changed_area(draw_boxes(blank(), target(1, (10, 8, 50, 30)))) == (10, 8, 50, 30)


def test_only_little_text_brings_the_index() -> None:
    plain = draw_boxes(blank(), target(12, (10, 8, 50, 30)))
    labelled = draw_boxes(blank(), target(12, (10, 8, 50, 30), ""))
    assert labelled != plain and labelled != draw_boxes(blank(), target(17, (10, 8, 50, 30), ""))


def test_boxes_are_cut_at_the_window_and_empty_ones_left_out() -> None:
    assert changed_area(draw_boxes(blank(), target(1, (-5, -5, 200, 200)))) == (0, 0, 60, 40)
    assert changed_area(draw_boxes(blank(), target(1, (70, 5, 90, 20), ""))) is None


def test_equal_input_gives_equal_bytes() -> None:
    boxes = target(3, (5, 4, 25, 14), "")
    assert draw_boxes(blank(), boxes) == draw_boxes(blank(), boxes)
