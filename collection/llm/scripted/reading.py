"""How the scripted teacher reads a page: a search for the query's words, and nothing made up."""

from __future__ import annotations

import re
from collections import Counter

NOT_FOUND = "The page has no line with a word of the query."
_WORD = re.compile(r"\w+")
_MAX_LINES = 5
# Words of a query that say nothing of what it is about.
_COMMON = frozenset(
    _WORD.findall(
        "a an all and any are as at be by each find for from get give have how in is it list me of on or "
        "page show tell than that the their them these this to what when where which who with you"
    )
)


def search_lines(text: str, query: str) -> str:
    """The lines that share most of the query's words, in page order; at most five.

    A word counts for more the fewer lines hold it.
    """
    lines = [line.strip() for line in text.splitlines() if _WORD.search(line)]
    words = [_words(line) for line in lines]
    wanted = _words(query) - _COMMON
    holding = Counter(word for line in words for word in line & wanted)
    scores = [sum(1 / holding[word] for word in line & wanted) for line in words]
    best = sorted((at for at, score in enumerate(scores) if score), key=lambda at: (-scores[at], at))
    return "\n".join(lines[at] for at in sorted(best[:_MAX_LINES])) or NOT_FOUND


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
