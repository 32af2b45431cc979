"""When two texts or addresses are "nearly the same" without ever confusing the values in them."""

from __future__ import annotations

import re
import unicodedata

import ada_url
from rapidfuzz import fuzz

HIGH_SIMILARITY = 85.0  # Percent; below it two texts are taken to say different things.

_THOUSANDS = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\w,])")
_YEAR_FIRST_DATE = re.compile(r"(?<!\d)(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)")
_TOKEN = re.compile(
    r"\S+@\S+"  # an address
    r"|(?<!\w)-(?=[.\d])"  # a sign
    r"|[^\W_]*\d[^\W_]*(?:[.,:]\d[^\W_]*)*"  # a number, a time, a model number
    r"|[^\W_]+"
    r"|[$€£¥%<>≤≥=+#&|!]"
)
_QUOTES = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "−": "-"})
_MONTHS = "january february march april may june july august september october november december"
_DAYS = "monday tuesday wednesday thursday friday saturday sunday today tomorrow yesterday tonight weekend"
_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred "
    "thousand million billion dozen half double single once twice first second third fourth fifth sixth "
    "seventh eighth ninth tenth last"
)
_VARIANTS = "pro max plus mini ultra lite ti se air"
_LOGIC = "am pm bc ad no not without never except under over above below"
_VALUE_WORDS = frozenset(
    f"{_MONTHS} {_DAYS} {_NUMBERS} {_VARIANTS} {_LOGIC}".split()
    + [month[:3] for month in _MONTHS.split()]
    + [day[:3] for day in _DAYS.split()[:7]]
    + ["sept", "tues", "thur", "thurs"]
)
_SPECIAL_SCHEMES = frozenset(("http:", "https:", "ws:", "wss:", "ftp:"))


def plain(text: str) -> str:
    """The text without what formatting alone changes: case, spacing, quote style, thousands commas."""
    text = unicodedata.normalize("NFC", text).casefold().translate(_QUOTES)
    text = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)
    text = _YEAR_FIRST_DATE.sub(lambda match: f"{match[1]}-{match[2]:0>2}-{match[3]:0>2}", text)
    return " ".join(text.split())


def same_but_formatting(first: str, second: str) -> bool:
    """Whether two texts differ in case, spacing or a trailing slash at most."""
    first, second = plain(first).rstrip("/"), plain(second).rstrip("/")
    if first == second:
        return True
    # "12 3" and "1 23" lose their difference with their spaces, so the digit groups must agree too.
    squeezed = first.replace(" ", "") == second.replace(" ", "")
    return squeezed and re.findall(r"\d+", first) == re.findall(r"\d+", second)


def similar(first: str, second: str) -> bool:
    """Whether two texts say nearly the same and hold exactly the same values.

    Numbers, dates, weekdays, model numbers, addresses, signs, negations and option letters are
    values: they must be equal and in the same order, whatever the rest looks like.
    """
    if same_but_formatting(first, second):
        return True
    first, second = plain(first), plain(second)
    return values(first) == values(second) and fuzz.ratio(first, second) >= HIGH_SIMILARITY


def values(text: str) -> list[str]:
    """The values in a plain text, in order."""
    return [token for token in _TOKEN.findall(text) if _is_value(token)]


def same_page(first: str, second: str) -> bool:
    """Whether two addresses have the same host (with port) and path; query and fragment may differ."""
    one, two = parse_url(first), parse_url(second)
    if one is None or two is None:
        return first.strip() == second.strip()
    return _place(one) == _place(two)


def parse_url(text: str) -> ada_url.URL | None:
    """The address as a browser reads it (WHATWG); an address without a scheme is taken as https."""
    for candidate in (text, f"https://{text.strip()}"):
        try:
            url = ada_url.URL(candidate)
        except ValueError:
            continue
        if url.protocol in _SPECIAL_SCHEMES:
            return url
    return None


def _place(url: ada_url.URL) -> tuple[str, str, str, str]:
    path = re.sub(r"%[0-9a-fA-F]{2}", lambda match: match[0].upper(), url.pathname)
    return url.username, url.password, url.host, path.rstrip("/")


def _is_value(token: str) -> bool:
    if token in _VALUE_WORDS or "@" in token or not token[0].isalnum():
        return True
    # "a" and "i" are words more often than option letters.
    return any(character.isdigit() for character in token) or (len(token) == 1 and token not in "ai")
