"""Search for a secret, whole or in part, in every encoding, in the files of a run."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.schema import Trajectory

# So much of a form is as good as all of it: what cuts a text short may cut it within a secret.
_PLAIN, _ENCODED = 8, 12


def _base64(data: bytes) -> Iterator[str]:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for lead in range(3):
            text = encode(bytes(lead) + data).decode().rstrip("=")
            # The letters that are the secret's alone.
            yield text[(8 * lead + 5) // 6 : (8 * (lead + len(data))) // 6]


def forms(secret: str) -> dict[str, set[str]]:
    """Returns a secret's encodings by name."""
    points = [ord(letter) for letter in secret]
    data = secret.encode()
    once = {quote(secret, safe=""), quote(secret, safe="!'()*~"), quote(secret), quote_plus(secret)}
    inner = {json.dumps(secret, ensure_ascii=ascii)[1:-1] for ascii in (True, False)}
    return {
        "plain": {secret},
        "base64": set(_base64(data)) | set(_base64(secret.encode("utf-16-le"))),
        "url": once | {quote(text) for text in once},
        "json": inner | {json.dumps(text, ensure_ascii=False)[1:-1] for text in inner},
        "html": {
            html.escape(secret),
            html.escape(secret, quote=False),
            "".join(f"&#{point};" for point in points),
            "".join(f"&#x{point:x};" for point in points),
        },
        "hex": {data.hex(), secret.encode("utf-16-le").hex()},
    }


class Scanner:
    """Finds pieces of a secret's encodings, in any case."""

    def __init__(self, secret: str) -> None:
        self._pieces: dict[bytes, str] = {}
        for name, texts in forms(secret).items():
            length = _PLAIN if name == "plain" else _ENCODED
            for text in texts:
                for start in range(max(len(text) - length, 0) + 1):
                    self._pieces[text[start : start + length].lower().encode()] = name

    def find(self, data: bytes | str) -> set[str]:
        """Returns the names of the encodings found, each with the piece that was found."""
        lower = (data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data).lower()
        # Letters other than ASCII have their case in UTF-8, too.
        lower = lower.decode("utf-8", "replace").lower().encode()
        return {f"{name}: {piece.decode()}" for piece, name in self._pieces.items() if piece in lower}


def artefacts(workdir: Path) -> Iterator[tuple[str, bytes]]:
    """Yields every file of a run with its name, and the decompressed records of its data set."""
    for path in sorted(workdir.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(workdir)), str(path).encode() + b"\n" + path.read_bytes()
    for record in read_dataset(workdir, Trajectory):
        # Without the escapes of JSON, which could split a piece of the secret.
        texts = "\n".join(_strings(record.model_dump()))
        yield record.trajectory_id, texts.encode("utf-8", "surrogatepass")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for item in value.items() for part in item for text in _strings(part))
    elif isinstance(value, list | tuple):
        yield from (text for part in value for text in _strings(part))


def leaks(scanner: Scanner, texts: Iterable[tuple[str, bytes | str]]) -> list[str]:
    """Returns the places and encodings in which the secret was found."""
    return [f"{name}: {found}" for name, data in texts for found in sorted(scanner.find(data))]
