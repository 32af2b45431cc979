"""What can go wrong with a browser, as the rest of the collector tells it apart."""

from __future__ import annotations

import re


class BrowserLostError(Exception):
    """The browser or its driver is gone; only a new `Browser` helps."""


class PageError(Exception):
    """A page could not be reached or used; the message is a short reason, for the agent."""


def first_line(error: BaseException) -> str:
    """A WebDriver error's own reason, without stack and session details."""
    lines = (getattr(error, "msg", None) or str(error) or type(error).__name__).strip().splitlines()
    return lines[0].strip()[:200] if lines else type(error).__name__


def page_problem(text: str) -> str:
    """The reason why a page did not open, from the driver's message or the text of the browser's own page."""
    code = re.search(r"ERR_[A-Z0-9_]+", text)
    if code:
        return code[0]
    return text.strip().splitlines()[0][:200] if text.strip() else "the site shows nothing, or wants a login"
