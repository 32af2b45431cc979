"""Episodes for official judges."""

from __future__ import annotations

import hashlib
import io
import random
from typing import Any

from PIL import Image, ImageDraw

from rmsweb_jax.records.schema import Element, Trajectory
from tests.judges.runs import run
from tests.trajectories import step

_TASKS = (
    "Find the lamp.",
    "Find the cheapest lamp below 20 € and tell me its price.\nIf it is sold out, say so.",
    "Buche einen Tisch für zwei Personen am 14. Februar: 'Zum Löwen'?",
    "比较两个航班的价格 {economy} <business> & 100 % refundable",
)
_ANSWERS = (
    "The lamp costs 12 EUR.",
    'It is "sold out" [see https://shop.test/lamp?id=1&x=2]; nothing below 20 EUR.',
    "No table is free on that day.\n\n- 19:00: taken\n- 20:00: taken\n",
    "价格是 12 欧元 🙂",
)
_ELEMENTS = (
    Element(index=1, tag="input", text="", attributes={"type": "search", "placeholder": "Search lamps"}),
    Element(
        index=2, tag="a", text="Desk lamp & shade", attributes={"href": "/lamp?id=1&x=2", "role": "link"}
    ),
    Element(index=3, tag="select", text="Sort by", attributes={"aria-label": "Sort\n order"}),
)
_ACTIONS: tuple[tuple[dict[str, Any], ...], ...] = (
    ({"click_element_by_index": {"index": 2}},),
    ({"input_text": {"index": 1, "text": 'desk lamp "small"'}}, {"send_keys": {"keys": "Enter"}}),
    ({"select_dropdown_option": {"index": 3, "text": "Price: low to high"}},),
    ({"scroll": {"down": True, "num_pages": 1.0}},),
    ({"go_to_url": {"url": "https://shop.test/lamps"}},),
    ({"go_back": {}},),
    ({"extract_structured_data": {"query": "prices"}},),
    ({"click_element_by_index": {"index": 9}},),
)


class Screenshots:
    """An image source that draws a small page for each name."""

    def get(self, sha256: str) -> bytes:
        picture = Image.new("RGBA" if int(sha256, 16) % 2 else "RGB", (96, 72), f"#{sha256[:6]}")
        ImageDraw.Draw(picture).text((4, 4), sha256[:12], fill="white")
        content = io.BytesIO()
        picture.save(content, "PNG")
        return content.getvalue()


def episodes(count: int, seed: int = 0) -> list[Trajectory]:
    """Finished runs of 1 to 12 steps: repeated pages, steps without a screenshot, unusable replies."""
    return [_episode(number, random.Random(f"{seed}-{number}")) for number in range(count)]


def _episode(number: int, draw: random.Random) -> Trajectory:
    answer, steps = draw.choice(_ANSWERS), []
    for place in range(1, draw.randint(0, 11) + 1):
        name = hashlib.sha256(f"{number} {place - draw.randint(0, 1)}".encode()).hexdigest()
        shot = name if place == 1 or draw.random() < 0.85 else None
        if draw.random() < 0.1:
            made = step(place, response="I cannot see the page.", error="not JSON", screenshot=shot)
        else:
            made = step(place, *draw.choice(_ACTIONS), screenshot=shot, memory=f"step {place}")
        steps.append(made)
    last = hashlib.sha256(f"{number} last".encode()).hexdigest()
    steps.append(step(len(steps) + 1, {"done": {"text": answer, "success": True}}, screenshot=last))
    seen = [one.observation.model_copy(update={"elements": _ELEMENTS}) for one in steps]
    steps = [one.model_copy(update={"observation": page}) for one, page in zip(steps, seen, strict=True)]
    task_id = f"web/shop.test/{number}"
    # Each task by itself: questions about the same task are answered from the cache.
    task = f"{draw.choice(_TASKS)} No. {number}."
    made = run(objective=task, final_text=answer, task_id=task_id)
    return made.model_copy(update={"steps": tuple(steps)})
