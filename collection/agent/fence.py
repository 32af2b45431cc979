"""What keeps text from outside apart from our own in a prompt."""

from __future__ import annotations

import re

from collection.browser.page_text import neutralize

# Cut where pages, files and tools could make a prompt long without end. Records keep the whole.
MAX_LINE_CHARS = 4_000
# Stands for a secret; the redactor and the agent write it, and it is to be read by both.
_PLACEHOLDER = re.compile(r"(<secret>[^<>\s]+</secret>)")


def fenced_text(text: str, limit: int) -> str:
    """At most so many characters, unable to pass for what we write; names of secrets stay."""
    left = len(text) - limit
    kept = "".join(
        piece if number % 2 else neutralize(piece)
        for number, piece in enumerate(_PLACEHOLDER.split(text[:limit] if left > 0 else text))
    )
    return kept if left <= 0 else f"{kept} ... ({left} more characters)"


def fenced_line(text: str, limit: int = MAX_LINE_CHARS) -> str:
    """The same on one line, so that it cannot pass for a line of ours."""
    return fenced_text(" ".join(text.splitlines()), limit)
