"""Normalizes texts so that texts that differ in formatting only become equal.

Letters keep their accents and digits their order. Removed or unified are case, spacing, quote and dash
styles, invisible characters, full and half widths, the script of digits, thousands separators, dots of
initialisms, and the notation of unambiguous dates.
"""

from __future__ import annotations

import re
import unicodedata

_WIDE = range(0xFF01, 0xFFEF)
_STYLES = {
    "‘": "'", "’": "'", "‚": "'", "ʼ": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"',
    "‐": "-", "‑": "-", "‒": "-", "–": "-", "—": "-", "−": "-",
    "…": "...", "٫": ".", "٬": ",", "٪": "%", "、": ",", "。": ".",
    "®": "", "™": "", "©": "",
}  # fmt: skip
# Soft hyphen, zero-width space and non-joiner, word joiner, byte order mark, direction marks and
# isolates, variation selectors. The joiner stays: it builds emoji. So do the direction overrides,
# which show digits in another order.
_INVISIBLE = "\u00ad\u200b\u200c\u200e\u200f\u061c\u2060\u2066\u2067\u2068\u2069\ufeff\ufe0e\ufe0f"
_CHARACTERS = str.maketrans(
    {
        chr(code): unicodedata.normalize("NFKC", chr(code))
        for code in _WIDE
        if unicodedata.decomposition(chr(code)).startswith(("<wide>", "<narrow>"))
    }
    | _STYLES
    | dict.fromkeys(_INVISIBLE, "")
)
_DIGIT = re.compile(r"\d")
_FOREIGN_DIGIT = re.compile(r"[^\D0-9]")
_GROUPS = re.compile(r"(?<![\w.,])[1-9]\d{0,2}(?:[\u00a0\u202f\u2009']\d{3})+(?!\w)")
_THOUSANDS = re.compile(r"(?<![\w.,])[1-9]\d{0,2}(?:,\d{3})+(?!\w|,\d)")
_OPERATOR = re.compile(r"(?<=\d) ?([*/]) ?(?=\d)")
_INITIALISM = re.compile(r"(?<![^\W\d_])(?<!\.)(?:[^\W\d_]\.){2,}+(?!\w)")
_EVEN_AMOUNT = re.compile(r"([$€£] ?\d+)\.00(?!\d)")

# fmt: off
MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)
# fmt: on
_MONTH_NUMBERS = {month[:3]: number for number, month in enumerate(MONTHS, 1)}
_MONTH = r"(" + "|".join(rf"{month[:3]}(?:{month[3:]})?" for month in MONTHS) + r"|sept)\.?"
_MONTH_NAME = re.compile(rf"(?<![^\W\d_]){_MONTH}(?!\w)")
_DIGITS_JOINED = re.compile(r"\d[-/.]\d")
_NOT_LONGER = r"(?!\w|[-/.:,]\d)"
_YEAR_FIRST = re.compile(rf"(?<![\w/.:-])(\d{{4}})([-/.])(\d\d?)\2(\d\d?)(?:{_NOT_LONGER}|(t)(?=\d\d:\d\d))")
_YEAR_LAST = re.compile(rf"(?<![\w/.:-])(\d\d?)([-/.])(\d\d?)\2(\d{{4}}){_NOT_LONGER}")
_EAST_ASIAN = re.compile(r"(\d{4}) ?[年년] ?(\d\d?) ?[月월] ?(\d\d?) ?[日号일]")
_DAY_MONTH = re.compile(
    rf"(?<![\w.,:/-])(\d\d?)(?:st|nd|rd|th)?(?: of)?[ -]{_MONTH}(?:(?:, ?|[ -])(\d{{4}}))?{_NOT_LONGER}"
)
_MONTH_DAY = re.compile(rf"(?<!\w){_MONTH} (\d\d?)(?:st|nd|rd|th)?(?:(?:, ?| )(\d{{4}}))?{_NOT_LONGER}")
_DAY_OF_DATE = re.compile(
    r"(?<!\w)(mon|tue|wed|thu|fri|sat|sun)(?:s?day|nesday|rsday|urday|s|rs?)?\.?,? (?=\d{4}-\d\d-\d\d)"
)
_MONTH_YEAR = re.compile(rf"(?<![\w-]){_MONTH},? (\d{{4}}){_NOT_LONGER}")


def plain(text: str) -> str:
    """Normalizes a text; texts with equal normal forms have the same meaning."""
    if not text.isascii():
        text = _GROUPS.sub(_without_separators, _unstyled(text))
    text = " ".join(text.casefold().split())
    if "." in text:
        text = _INITIALISM.sub(lambda match: match[0].replace(".", ""), text)
    return _plain_numbers(text) if _DIGIT.search(text) else text


def _plain_numbers(text: str) -> str:
    # Most texts have none of these marks; looking for a character is cheaper than for a pattern.
    if "*" in text or "/" in text:
        text = _OPERATOR.sub(r"\1", text)
    if "," in text:
        text = _THOUSANDS.sub(_without_separators, text)
    if "'" in text:
        text = _GROUPS.sub(_without_separators, text)
    text = _plain_dates(text)
    return _EVEN_AMOUNT.sub(r"\1", text) if ".00" in text else text


def _unstyled(text: str) -> str:
    text = unicodedata.normalize("NFC", text.translate(_CHARACTERS))
    text = _FOREIGN_DIGIT.sub(lambda match: str(unicodedata.decimal(match[0])), text)
    return unicodedata.normalize("NFC", text.casefold())


def _without_separators(match: re.Match[str]) -> str:
    return re.sub(r"\D", "", match[0])


def _plain_dates(text: str) -> str:
    """Rewrites dates as YYYY-MM-DD, with 0000 for a missing year."""
    if _DIGITS_JOINED.search(text):
        text = _YEAR_FIRST.sub(lambda match: _date(match, match[1], match[3], match[4], match[5]), text)
        text = _YEAR_LAST.sub(_year_last, text)
    if not text.isascii():
        text = _EAST_ASIAN.sub(lambda match: _date(match, *match.groups()), text)
    if _MONTH_NAME.search(text):
        text = _DAY_MONTH.sub(lambda match: _date(match, match[3], _month(match[2]), match[1]), text)
        text = _MONTH_DAY.sub(lambda match: _date(match, match[3], _month(match[1]), match[2]), text)
        text = _MONTH_YEAR.sub(lambda match: f"{match[2]}-{_month(match[1])}", text)
    return _DAY_OF_DATE.sub(r"\1 ", text) if "-" in text else text


def _year_last(match: re.Match[str]) -> str:
    first, mark, second, year = match.groups()
    if int(first) == int(second) or int(second) > 12:
        return _date(match, year, first, second)
    if int(first) > 12:
        return _date(match, year, second, first)
    return f"{first:0>2}{mark}{second:0>2}{mark}{year}"  # Ambiguous: the day or the month may be first.


def _month(name: str) -> str:
    return f"{_MONTH_NUMBERS[name[:3]]:02}"


def _date(match: re.Match[str], year: str | None, month: str, day: str, time: str | None = None) -> str:
    if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
        return match[0]
    return f"{year or '0000'}-{month:0>2}-{day:0>2}" + (" " if time else "")
