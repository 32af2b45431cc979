"""Serves many sites over TLS from one address, by the names of their requests."""

from __future__ import annotations

import contextlib
import dataclasses
import stat
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.loopback import ANY_CERTIFICATE, PageHandler, serving, tls_context

HTML = "text/html; charset=utf-8"


@dataclasses.dataclass(frozen=True)
class Request:
    """One request; `text` is all of it that a page can choose: target, headers and body."""

    method: str
    host: str
    path: str
    query: Mapping[str, str]
    form: Mapping[str, str]
    cookies: Mapping[str, str]
    text: str


@dataclasses.dataclass(frozen=True)
class Response:
    """One answer.

    Attributes:
      delay_s: time before the first byte.
      cut: if not None, the connection breaks after that many bytes of the body; -1 sends nothing at all.
      hangs: never answers, until the browser gives up.
    """

    body: bytes | str = b""
    kind: str = HTML
    status: int = 200
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    delay_s: float = 0.0
    cut: int | None = None
    hangs: bool = False


def redirect(url: str, cookie: str = "") -> Response:
    return Response(status=303, headers={"Location": url} | ({"Set-Cookie": cookie} if cookie else {}))


@contextlib.contextmanager
def serving_sites(answer: Callable[[Request], Response], folder: Path) -> Iterator[str]:
    """Yields the address of a server of all names.

    Args:
      answer: called by one thread at a time.
      folder: for the certificate, which `trusting_browser` takes.
    """
    turn = threading.Lock()

    class Handler(PageHandler):
        protocol_version = "HTTP/1.1"

        def get(self) -> None:
            with contextlib.suppress(OSError):
                self._serve()

        post = get

        def _serve(self) -> None:
            with turn:
                response = answer(_read(self))
            time.sleep(response.delay_s)
            if response.hangs:
                self.rfile.read(1)
            if response.hangs or response.cut == -1:
                self.close_connection = True
                return
            body = response.body.encode() if isinstance(response.body, str) else response.body
            length = {"Content-Length": str(len(body))}
            self.reply(body[: response.cut], response.kind, response.status, length | dict(response.headers))
            self.close_connection = self.close_connection or response.cut is not None

    with serving(Handler, tls_context(folder)) as address:
        yield address


def trusting_browser(chromium: str, folder: Path) -> Path:
    """Makes a program `chromium` that takes the sites' certificate; returns its folder, for PATH."""
    (folder / "bin").mkdir(exist_ok=True)
    program = folder / "bin/chromium"
    program.write_text(f'#!/bin/sh\nexec {chromium} {ANY_CERTIFICATE} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program.parent


def _read(handler: PageHandler) -> Request:
    sent = handler.rfile.read(int(handler.headers.get("Content-Length", 0))).decode("utf-8", "replace")
    path, _, query = handler.path.partition("?")
    pairs = (one.strip().partition("=") for one in handler.headers.get("Cookie", "").split(";") if one)
    return Request(
        method=handler.command,
        host=handler.headers.get("Host", "").partition(":")[0],
        path=path,
        query=_pairs(query),
        form=_pairs(sent),
        cookies={name: value for name, _, value in pairs},
        text=urllib.parse.unquote_plus(f"{handler.requestline}\n{handler.headers}\n{sent}"),
    )


def _pairs(text: str) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(text, keep_blank_values=True))
