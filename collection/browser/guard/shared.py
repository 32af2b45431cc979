"""What all connections of one proxy share, and what they do alike."""

from __future__ import annotations

import asyncio
import dataclasses

import h11

from collection.browser.guard.config import GuardConfig
from collection.browser.guard.dial import CHUNK, Dialer
from collection.browser.guard.ledger import Ledger, RefusedError
from collection.browser.guard.policy import UrlPolicy

# As much as Chromium itself takes for the head of a response.
HEAD = 1 << 18
CLOSE = ("Connection", "close")


@dataclasses.dataclass
class Shared:
    """The proxy's state; `policy` is another for each episode."""

    config: GuardConfig
    dialer: Dialer
    policy: UrlPolicy
    ledger: Ledger = dataclasses.field(default_factory=Ledger)


async def read_some(reader: asyncio.StreamReader, idle_seconds: float) -> bytes:
    """The next bytes, none at the end; RefusedError when none come for so long."""
    try:
        async with asyncio.timeout(idle_seconds):
            return await reader.read(CHUNK)
    except TimeoutError:
        raise RefusedError("idle", f"nothing came for {idle_seconds:g} seconds") from None


def plain_answer(http: h11.Connection, status: int, text: str, close: bool) -> bytes:
    """A short page for the browser, as bytes to send."""
    body = f"{text}\n".encode("utf-8", "replace")
    headers = [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
        *([CLOSE] if close else []),
    ]
    events = (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage())
    return b"".join(http.send(event) or b"" for event in events)


def refusal_text(error: RefusedError) -> str:
    return f"refused by the collector's guard: {error}"
