"""Moves that policies of several sites have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator

from tests.apps.actor import Move, Moves, NotShownError, Page, click

WAITS = 5
Playing = Generator[Move, Page, None]


def quoted(page: Page) -> list[str]:
    return re.findall(r'"([^"]*)"', page.request)


def press(page: Page, text: str, tag: str = "", **attributes: str) -> Moves:
    return (yield f"Click {text}", [click(page.one(text, tag, **attributes))])


def scroll_until(page: Page, shown: Callable[[Page], bool]) -> Moves:
    """Scrolls down until the element is found."""
    while not shown(page):
        if page.view.pages_below < 0.05:
            raise NotShownError(f"not even at the end of {page.url}")
        page = yield "Scroll down", [{"scroll": {"down": True, "num_pages": 1.0}}]
    return page


def wait_until(page: Page, shown: Callable[[Page], bool]) -> Moves:
    """Waits for elements that the page's own script adds."""
    for _ in range(WAITS):
        if shown(page):
            return page
        page = yield "Wait", [{"wait": {"seconds": 1}}]
    raise NotShownError(f"waited in vain at {page.url}")
