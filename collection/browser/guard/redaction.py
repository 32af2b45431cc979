"""Redaction of secrets in text, for prompts, records and logs; of screenshots, see `snapshot.secret_boxes`.

The agent never sees a secret. It writes `<secret>name</secret>` (browser-use's form), which is filled in only
when text is typed into the page. Text from pages, servers and errors is searched for the value in every
encoding that it may have.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping

from rmsweb_jax.errors import UserError

# Shorter values occur everywhere: redacting every "1" would reveal more than it hides.
MIN_LENGTH = 4
# Shorter prefixes of a secret are as likely to be other text.
_MIN_HEAD = 6
_PLACEHOLDER = re.compile(r"<secret>([^<>]+)</secret>")
_NAMED = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_JSON = {'"': '"', "\\": "\\\\", "/": "/", "\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_BASE64 = "[A-Za-z0-9+/_-]"
_CARD = re.compile(r"(?<!\d)(?:\d[ -]?){13,18}\d(?!\d)", re.ASCII)
# Lengths and first digits that issuers use. Most other long numbers, such as timestamps and bar codes, stay.
_ISSUED = re.compile(
    r"4\d{15}(?:\d{3})?|(?:5[1-5]|2[2-7])\d{14}|3[47]\d{13}|3[0689]\d{12}|35\d{14}|6\d{15,18}", re.ASCII
)
CARD_PLACEHOLDER = "<secret>card</secret>"


class Redactor:
    """Replaces secrets in text by placeholders, and placeholders by secrets.

    Args:
      secrets: values by name, such as {"password": "..."}.
      cards: also redact all card numbers.

    Raises:
      UserError: a name or a value is not usable.
    """

    def __init__(self, secrets: Mapping[str, str], cards: bool = False) -> None:
        self._cards = cards
        for name, value in secrets.items():
            if not re.fullmatch(r"[^<>\s]+", name):
                raise UserError(
                    f"the secret's name {name!r} has spaces or angle brackets: use letters and digits"
                )
            if len(value.strip()) < MIN_LENGTH:
                raise UserError(
                    f"the secret {name!r} is shorter than {MIN_LENGTH} characters: hiding it would hide "
                    "other text, too; use a longer one"
                )
        self._values = dict(secrets)
        # The longest first, so that a secret inside another one does not split it.
        self._names = sorted(secrets, key=lambda name: (-len(secrets[name]), name))
        forms = "|".join(f"({_forms(secrets[name])})" for name in self._names)
        self._pattern = re.compile(forms) if forms else None

    def text(self, text: str) -> str:
        """Returns the text with every secret, plain or encoded, replaced by its placeholder."""
        if self._pattern is not None:
            text = self._pattern.sub(self._placeholder, text)
        if self._cards:
            text = _CARD.sub(lambda found: CARD_PLACEHOLDER if is_card(found[0]) else found[0], text)
        return text

    @property
    def has_secrets(self) -> bool:
        return self._pattern is not None

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Returns the positions of secrets in a text, as (start, stop)."""
        return [] if self._pattern is None else [found.span() for found in self._pattern.finditer(text)]

    def _placeholder(self, found: re.Match[str]) -> str:
        assert found.lastindex is not None
        return f"<secret>{self._names[found.lastindex - 1]}</secret>"

    def secrets_in(self, text: str) -> list[str]:
        """Returns the names of known secrets whose placeholders are in the text."""
        return [name for name in _PLACEHOLDER.findall(text) if name in self._values]

    def fill(self, text: str) -> str:
        """Returns the text with placeholders replaced by their secrets; unknown placeholders stay."""
        return _PLACEHOLDER.sub(lambda found: self._values.get(found[1], found[0]), text)


def is_card(text: str) -> bool:
    """Returns True for a valid card number, which may have spaces and hyphens between its digits."""
    digits = re.sub(r"[ -]", "", text)
    if not _ISSUED.fullmatch(digits):
        return False
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(number - 9 * (number > 9) for number in doubled) % 10 == 0


def _forms(secret: str) -> str:
    """Returns a pattern for a secret: plain, with escaped characters, in base64 or hex; without groups."""
    forms = ["".join(map(_character, secret))]
    encoded = {secret.encode(), secret.encode("utf-16-le")}
    forms += [_in_base64(data, lead) for data in sorted(encoded) for lead in range(3)]
    forms += [f"(?i:{data.hex()})" for data in sorted(encoded)]
    return "|".join([*forms, *_heads(secret)])


def _heads(secret: str) -> list[str]:
    """Returns a pattern for a truncated secret: its first characters before an ellipsis or a line's end."""
    characters = [_character(character) for character in secret]
    if len(characters) <= _MIN_HEAD:
        return []
    rest = ""
    for character in reversed(characters[_MIN_HEAD:-1]):
        rest = f"(?:{character}{rest})?"
    return ["".join(characters[:_MIN_HEAD]) + rest + r"(?=\s*(?:\n|\Z|\.\.\.|…))"]


def _character(character: str) -> str:
    """Returns a pattern for a character, plain or as URLs, JSON, JavaScript or HTML escape it."""
    point = ord(character)
    percent = "".join(f"%(?:25)*{byte:02x}" for byte in character.encode())
    units = character.encode("utf-16-be")
    escaped = "".join(rf"\\+u{units[start : start + 2].hex()}" for start in range(0, len(units), 2))
    forms = [
        percent,
        escaped,
        rf"\\+u\{{0*{point:x}\}}",
        f"&(?:amp;)*#0*{point};",
        f"&(?:amp;)*#x0*{point:x};",
    ]
    if point < 256:
        forms.append(rf"\\+x{point:02x}")
    forms = [f"(?i:{form})" for form in forms]
    if character in _JSON:
        forms.append(rf"\\+{_JSON[character]}")
    if character in _NAMED:
        forms.append(f"&(?:amp;)*{_NAMED[character]};")
    if character == " ":
        forms += [r"\+", "&nbsp;", "\u00a0"]
    return f"(?:{'|'.join(forms)}|{re.escape(character)})"


def _in_base64(data: bytes, lead: int) -> str:
    """Returns a pattern for the secret in base64, `lead` bytes into a group of three, with shared letters."""
    whole = base64.b64encode(bytes(lead) + data).decode()
    bits = 8 * (lead + len(data))
    letters = whole[(8 * lead + 5) // 6 : bits // 6]
    body = "".join({"+": "[+-]", "/": "[/_]"}.get(letter, letter) for letter in letters)
    first, last = _BASE64 if lead else "", f"{_BASE64}?=*" if bits % 6 else ""
    return first + body + last
