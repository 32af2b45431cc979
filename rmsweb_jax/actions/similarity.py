"""Decides whether two texts or URLs are nearly the same, with exactly the same values in them."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Sequence

import ada_url
from rapidfuzz import fuzz
from rapidfuzz.distance import OSA, LCSseq

from rmsweb_jax.actions.formatting import MONTHS, plain

HIGH_SIMILARITY = 85.0  # Percent; texts below it count as different.
SHORTEST_MISSPELT = 5  # Letters; many shorter words differ by one letter only.
# Number of words ahead among which the misspelling of a word is searched.
_REACH = 5
# One word in this many may be replaced by another that is neither a value nor a name.
WORDS_PER_EXCHANGE = 10

_NUMBER = re.compile(r"(?:(?<!\w)\.)?\d+(?:[.,:]\d+)*|(?<!\w)-(?=[\w.])")
# Combining vowel signs and accents belong to their word, but \w does not match them.
_MARKS = "".join(chr(code) for code in range(0x300, 0x1200) if unicodedata.category(chr(code))[0] == "M")
_TOKEN = re.compile(
    r"(?<!\w)[-.](?=[.\d])|(?<!\w)-(?=\w)"  # a sign, a leading point, an excluded word
    r"|[W]*\d[W]*(?:[.,:/]\d[W]*)*"  # a number, a fraction, a time, a model number
    r"|[W]+(?:[.'][W]+)*"  # a word, a domain
    r"|(?<=\d)\*|!(?=[\w=])|[^\w\s*!.-]".replace("[W]", rf"[\w{_MARKS}]")
)
_VALUE_SYMBOLS = frozenset("$%<>=+#&|~!*‰§")
# Function words, without which a text has the same meaning.
_LINKS = frozenset(
    ("a", "an", "the", "of", "in", "on", "at", "for", "and", "with", "is", "are", "de", "do", "des")
)
# Common words of two letters; all others may be codes, units or titles.
_SHORT_WORDS = frozenset(
    "as be by do el en et go he if im it la le lo ma me my se so to un us we zu".split()  # noqa: SIM905
)
_DAYS = "monday tuesday wednesday thursday friday saturday sunday today tomorrow yesterday tonight weekend"
_QUANTITIES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred "
    "thousand million billion dozen half double single once twice first second third fourth fifth sixth "
    "seventh eighth ninth tenth last next all only both each every least most less more"
)
_CURRENCIES = (
    "usd eur gbp jpy cny inr cad aud chf krw brl mxn rub dollar dollars euro euros pound pounds yen yuan "
    "rupee rupees franc francs peso pesos cent cents"
)
_VARIANTS = "pro max plus mini ultra lite super ti xt xtx gt se xl xs air fe hd uhd gen edition slim beta"
_LOGIC = (
    "am pm bc ad i or nor no not non none never neither without except under over above below before after "
    "until since between minimum maximum min up down off out free "
    # "Not" and "without", and the neighbouring months that differ by one letter, in other languages.
    "nicht kein keine keinen ohne pas sans ne sin não sem senza niet geen zonder nie bez "
    "не нет ни без لا غير بدون ليس नहीं "
    "juni juli junho julho junio julio يونيو يوليو"
)
_VALUE_WORDS = frozenset(
    (
        *f"{_DAYS} {_QUANTITIES} {_CURRENCIES} {_VARIANTS} {_LOGIC} sept tues thur thurs".split(),
        *MONTHS,
        *(month[:3] for month in MONTHS),
        *(day[:3] for day in _DAYS.split()[:7]),
    )
)
_ROMAN = re.compile(r"(?=[ivxlcdm]{2})m{0,3}(?:cm|cd|d?c{0,3})(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})")
# Scripts without spaces (Thai to Khmer, Japanese, Chinese), where one character can be a word.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_ALPHABETIC = re.compile("[a-z'\u00b5-\u058f]+")  # Latin, Greek, Cyrillic, Armenian
_HYPHEN = re.compile(r"(?<=[^\W\d_])-(?=[^\W\d_])")
_BETWEEN_WORDS = re.compile(r"\s+|(?<=[^\W_])[-/](?=[^\W_])")
_ACCENTS = re.compile("(?<=[a-z])[\u0300-\u036f]+")
_INSIDE_SENTENCE = re.compile(r"(?:(?<=[^\W_] )|(?<=[^\W_][,;:] ))[^\W\d_]+")
_PUNCTUATION = string.punctuation + "·•¿¡「」『』《》〈〉【】،؛؟"

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_HOST_AND_PORT = re.compile(r"(?:localhost|[^/?#:@]+\.[^/?#:@]+):\d{1,5}(?:[/?#]|$)", re.IGNORECASE)
_WEB_SCHEMES = frozenset(("http:", "https:"))
_SPECIAL_SCHEMES = _WEB_SCHEMES | {"ws:", "wss:", "ftp:"}
_ESCAPE = re.compile(r"%([0-9a-fA-F]{2})")
_UNRESERVED = frozenset(string.ascii_letters + string.digits + "-._~")


def same_but_formatting(first: str, second: str) -> bool:
    """Returns True if two texts differ at most in formatting (see `plain`), spacing or a trailing slash."""
    return _same(plain(first), plain(second))


def similar(first: str, second: str) -> bool:
    """Returns True if two texts have nearly the same words and exactly the same values.

    Values are numbers, dates, weekdays, model numbers and the words next to them, addresses, amounts and
    signs, negations, option letters: they must be equal and in the same order. A few of the other words may
    be misspelt, or missing in one text. Replaced words make another text, except for a few in a long text
    that are not names.
    """
    one, two = plain(first), plain(second)
    if _same(one, two):
        return True
    if values(one) != values(two):
        return False
    ours, theirs = _words(one), _words(two)
    if not ours or fuzz.ratio(_unaccented(" ".join(ours)), _unaccented(" ".join(theirs))) < HIGH_SIMILARITY:
        return False
    exchanged, words = _exchanged(*sorted((ours, theirs)))
    if not exchanged:
        return True
    few = exchanged <= min(len(ours), len(theirs)) // WORDS_PER_EXCHANGE
    return few and all(map(_ALPHABETIC.fullmatch, words)) and not words & (_names(first) | _names(second))


def values(text: str) -> list[str]:
    """Returns the values in a plain text, in order."""
    tokens = _tokens(text)
    numeric = [not token.isalpha() and any(map(str.isdigit, token)) for token in tokens]
    found = []
    for position, token in enumerate(tokens):
        if numeric[position] or _is_value(token):
            found.append(token)
        elif any(numeric[max(position - 1, 0) : position + 2]):
            # A unit, a model's name, a month in any language: "5 km", "RTX 4070", "5 июня".
            found.append(token.removesuffix("s") if len(token) > 3 else token)
    return found


def same_page(first: str, second: str) -> bool:
    """Returns True if two URLs have the same host (with port) and path; query and fragment may differ.

    http and https count as the same. A fragment that is a route (`#/inbox`, `#!inbox`) counts as path.
    """
    one, two = parse_url(first), parse_url(second)
    if one is None or two is None:
        return one is two and first.strip() == second.strip()
    return _place(one) == _place(two)


def parse_url(text: str) -> ada_url.URL | None:
    """Parses a URL as browsers do (WHATWG); one without a scheme counts as https.

    Returns:
      None for anything but an absolute URL of a page: `javascript:`, `data:`, `mailto:`, `file:`, `about:`, a
      path, text.
    """
    text = text.strip()
    if not _SCHEME.match(text) or _HOST_AND_PORT.match(text):
        if text[:1] in ("", "?", "#", ".") or (text[0] in "/\\" and text[1:2] not in ("/", "\\")):
            return None
        text = f"https://{text}"
    try:
        url = ada_url.URL(text)
    except ValueError:
        return None
    return url if url.protocol in _SPECIAL_SCHEMES else None


def _place(url: ada_url.URL) -> tuple[str, ...]:
    scheme = "" if url.protocol in _WEB_SCHEMES else url.protocol
    path = _ESCAPE.sub(_unescaped, url.pathname).removesuffix("/")
    route = url.hash if url.hash[1:2] in ("/", "!") else ""
    return scheme, url.username, url.password, url.host, path, route.removesuffix("/").removesuffix("#")


def _unescaped(match: re.Match[str]) -> str:
    character = chr(int(match[1], 16))
    return character if character in _UNRESERVED else match[0].upper()


def _same(one: str, two: str) -> bool:
    if one == two:
        return True
    one, two = (text[:-1] if len(text) > 1 and text[-1] == "/" else text for text in (one, two))
    # Without spaces "12 3" and "1 23" are equal, so their numbers are compared too.
    return _squeezed(one) == _squeezed(two) and _NUMBER.findall(one) == _NUMBER.findall(two)


def _squeezed(text: str) -> str:
    return _HYPHEN.sub("", text).replace(" ", "")


def _tokens(text: str) -> list[str]:
    """Splits a text into words, numbers and symbols, without function words; an address is one token."""
    found: list[str] = []
    for chunk in text.split():
        if "@" in chunk or "://" in chunk:
            found.append(f"@{chunk.strip(_PUNCTUATION)}")
        else:
            found += _TOKEN.findall(chunk.replace("_", " "))
    return [token for token in found if token not in _LINKS and not _is_punctuation(token)]


def _is_punctuation(token: str) -> bool:
    if len(token) > 1 or token.isalnum() or token in _VALUE_SYMBOLS or token in "-.":
        return False
    is_skin_tone = "\U0001f3fb" <= token <= "\U0001f3ff"
    return not is_skin_tone and unicodedata.category(token) not in ("Sm", "Sc", "So")


def _is_value(token: str) -> bool:
    if len(token) <= 2 and token not in _SHORT_WORDS:
        return True
    if token in _VALUE_WORDS or token[0] == "@" or "." in token or token.endswith("n't"):
        return True
    return bool(_ROMAN.fullmatch(token) if token.isascii() else _UNSPACED.search(token))


def _words(text: str) -> list[str]:
    words = (word.strip(_PUNCTUATION).removesuffix("'s") for word in _BETWEEN_WORDS.split(text))
    return [word for word in words if word and word not in _LINKS]


def _exchanged(ours: Sequence[str], theirs: Sequence[str]) -> tuple[int, set[str]]:
    """Counts the words of one text that are replaced in the other, and returns all words of only one text.

    A word that moved counts as replaced, a misspelt one does not.
    """
    our_rest: list[str] = []
    their_rest: list[str] = []
    start = other_start = 0
    for block in LCSseq.opcodes(ours, theirs).as_matching_blocks():
        rest, other_rest = _unlike(ours[start : block.a], theirs[other_start : block.b])
        our_rest += rest
        their_rest += other_rest
        start, other_start = block.a + block.size, block.b + block.size
    return min(len(our_rest), len(their_rest)), {*our_rest, *their_rest}


def _unlike(ours: Sequence[str], theirs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Removes pairs of a word and its misspelling, in order, from two runs of words; returns the rest."""
    our_rest: list[str] = []
    start = 0
    their_rest: list[str] = []
    for word in ours:
        reach = range(start, min(start + _REACH, len(theirs)))
        match = next((at for at in reach if _misspelt(word, theirs[at])), None)
        if match is None:
            our_rest.append(word)
        else:
            their_rest += theirs[start:match]
            start = match + 1
    return our_rest, [*their_rest, *theirs[start:]]


def _misspelt(one: str, two: str) -> bool:
    """Returns True if two words are equal except for a plural, missing accents, or a typing error.

    A typing error is one edit in a word of five letters or more that keeps the first letter and the script.
    """
    if one[0] != two[0] and one.isascii() and two.isascii():
        return False
    if two in (f"{one}s", _unaccented(one)) or one in (f"{two}s", _unaccented(two)):
        return True
    if one[0] != two[0] or not (_ALPHABETIC.fullmatch(one) and _ALPHABETIC.fullmatch(two)):
        return False
    if max(len(one), len(two)) < SHORTEST_MISSPELT or OSA.distance(one, two, score_cutoff=1) > 1:
        return False
    return _scripts(one) == _scripts(two)


def _unaccented(text: str) -> str:
    """Removes the accents of Latin letters."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", text)))


def _scripts(word: str) -> set[str]:
    return {unicodedata.name(letter, "").split(" ")[0] for letter in word if letter.isalpha()}


def _names(text: str) -> set[str]:
    """Returns the words that are capitalized inside a sentence, in plain form."""
    return {plain(word) for word in _INSIDE_SENTENCE.findall(text) if word[0].isupper()}
