"""Boxes on screenshots."""

from __future__ import annotations

import io

from PIL import Image

from collection.browser.screenshot import Box, draw_boxes


def blank(width: int = 60, height: int = 40) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), "white").save(out, format="PNG")
    return out.getvalue()


def changed_area(png: bytes) -> tuple[int, int, int, int] | None:
    """Returns the bounding box (left, top, right, bottom) of everything that is not white."""
    image = Image.open(io.BytesIO(png)).convert("L")
    return image.point([255 if level < 255 else 0 for level in range(256)]).getbbox()


def test_a_box_is_drawn_on_the_elements_edge() -> None:
    assert changed_area(draw_boxes(blank(), [Box(1, 10, 8, 50, 30, labelled=False)])) == (10, 8, 50, 30)


def test_only_little_text_brings_the_index() -> None:
    plain = draw_boxes(blank(), [Box(12, 10, 8, 50, 30, labelled=False)])
    labelled = draw_boxes(blank(), [Box(12, 10, 8, 50, 30, labelled=True)])
    assert labelled != plain and labelled != draw_boxes(blank(), [Box(17, 10, 8, 50, 30, labelled=True)])


def test_boxes_are_cut_at_the_window_and_empty_ones_left_out() -> None:
    assert changed_area(draw_boxes(blank(), [Box(1, -5, -5, 200, 200, labelled=False)])) == (0, 0, 60, 40)
    assert changed_area(draw_boxes(blank(), [Box(1, 70, 5, 90, 20, labelled=True)])) is None


def test_equal_input_gives_equal_bytes() -> None:
    boxes = [Box(n, n * 5, n * 4, n * 5 + 20, n * 4 + 10, labelled=True) for n in range(1, 6)]
    assert draw_boxes(blank(), boxes) == draw_boxes(blank(), boxes)
