"""Secrets leave no trace in what is written: prompts, records, logs.

An agent never sees a secret. It writes `<secret>name</secret>`, as browser-use has it, which is filled in at
the page alone; what pages, servers and errors say back is searched for the value in every form it may take.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

from rmsweb_jax.errors import UserError

# Shorter ones are found everywhere: redacting "1" would tell more than it hides.
MIN_LENGTH = 4
_PLACEHOLDER = re.compile(r"<secret>([^<>]+)</secret>")
_NAMED = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_JSON = {'"': '"', "\\": "\\\\", "/": "/", "\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_BASE64 = "[A-Za-z0-9+/_-]"


class Redactor:
    """Hides secrets in text, and fills them in.

    Args:
      secrets: values by name, such as {"password": "..."}.

    Raises:
      UserError: a name or a value cannot be used.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
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
        # The longest first, so that a secret within another does not tear it apart.
        names = sorted(secrets, key=lambda name: (-len(secrets[name]), name))
        self._names = names
        self._pattern = (
            re.compile("|".join(f"({_forms(secrets[name])})" for name in names)) if names else None
        )

    def text(self, text: str) -> str:
        """The text with every secret, plain or encoded, as its placeholder."""
        if self._pattern is None:
            return text
        return self._pattern.sub(self._placeholder, text)

    def _placeholder(self, found: re.Match[str]) -> str:
        assert found.lastindex is not None
        return f"<secret>{self._names[found.lastindex - 1]}</secret>"

    def tree(self, value: Any) -> Any:
        """As `text`, of all strings in nested lists and dicts, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.tree(key): self.tree(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.tree(item) for item in value]
        return value

    def fill(self, text: str) -> str:
        """The text with placeholders as their secrets; one that is not known stays as it is."""
        return _PLACEHOLDER.sub(lambda found: self._values.get(found[1], found[0]), text)


def _forms(secret: str) -> str:
    """A pattern of a secret as it is, escaped by characters, in base64 or hex; its groups capture nothing."""
    forms = ["".join(map(_character, secret))]
    encoded = {secret.encode(), secret.encode("utf-16-le")}
    forms += [_in_base64(data, lead) for data in sorted(encoded) for lead in range(3)]
    forms += [f"(?i:{data.hex()})" for data in sorted(encoded)]
    return "|".join(forms)


def _character(character: str) -> str:
    """A character as it is, or as URLs, JSON, JavaScript or HTML may write it."""
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
    """The secret in base64 after so many other bytes of a group of three, with the letters that it shares."""
    whole = base64.b64encode(bytes(lead) + data).decode()
    bits = 8 * (lead + len(data))
    letters = whole[(8 * lead + 5) // 6 : bits // 6]
    body = "".join({"+": "[+-]", "/": "[/_]"}.get(letter, letter) for letter in letters)
    first, last = _BASE64 if lead else "", f"{_BASE64}?=*" if bits % 6 else ""
    return first + body + last
