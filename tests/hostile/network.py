"""Servers that answer badly: not at all, endlessly, with false headers, or with huge compressed bodies."""

from __future__ import annotations

import functools
import gzip
import socket
import struct
import zlib

from tests.hostile.behaviours import BUTTON, Behaviour, Serve, document
from tests.hostile.server import HTML, DisconnectedError, Exchange

_MB = 1 << 20
_BOMB_MB = 512
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nConnection: close\r\n"
_BODY = document(BUTTON)


def _fixed(status: str, body: str | bytes = _BODY, kind: str = HTML, **headers: str) -> Serve:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda exchange: exchange.send(body, kind=kind, status=status, headers=fields)


def _reset(exchange: Exchange) -> None:
    exchange.raw(_HEAD + b"Content-Length: 100000\r\n\r\n<h1>Half a page")
    # Lingering for no time makes closing a reset.
    exchange.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    exchange.connection.close()


def _redirect_loop(exchange: Exchange) -> None:
    exchange.send("", status="302 Found", headers={"Location": "/b" if exchange.path == "/a" else "/a"})


def _endless_body(exchange: Exchange) -> None:
    exchange.raw(_HEAD + b"\r\n<h1>Endless</h1><button onclick='void 0'>Buy</button>")
    while not exchange.stopped.wait(0.02):
        exchange.raw(b"<p>more and more " * 200)


def _endless_picture(exchange: Exchange) -> None:
    if exchange.path != "/a.png":
        exchange.send(document(BUTTON + "<img src=/a.png>"))
        return
    exchange.raw(_HEAD.replace(b"text/html; charset=utf-8", b"image/png") + b"\r\n\x89PNG\r\n\x1a\n")
    while not exchange.stopped.wait(0.02):
        exchange.raw(bytes(4096))


def _endless_headers(exchange: Exchange) -> None:
    exchange.raw(b"HTTP/1.1 200 OK\r\n")
    number = 0
    while not exchange.stopped.wait(0.001):
        exchange.raw(b"X-%d: %s\r\n" % (number, b"x" * 1000))
        number += 1


def _slow_headers(exchange: Exchange) -> None:
    exchange.raw(b"HTTP/1.1 200 OK\r\n")
    while not exchange.stopped.wait(0.5):
        exchange.raw(b"X")


def _silence(exchange: Exchange) -> None:
    # Until the client gives up: what it sends then is the end of its connection.
    exchange.connection.settimeout(60)
    if exchange.connection.recv(1):
        raise DisconnectedError


@functools.cache
def _bomb(wbits: int) -> bytes:
    """Returns half a gigabyte of spaces after a heading, compressed a thousandfold."""
    packer = zlib.compressobj(9, zlib.DEFLATED, wbits)
    parts = [packer.compress(b"<!doctype html><h1>Shop</h1><button onclick='void 0'>Buy</button><p>")]
    parts += [packer.compress(b" " * _MB) for _ in range(_BOMB_MB)]
    return b"".join([*parts, packer.flush()])


def _gzip_bomb(exchange: Exchange) -> None:
    exchange.send(_bomb(31), headers={"Content-Encoding": "gzip"})


def _deflate_bomb(exchange: Exchange) -> None:
    if exchange.path == "/data":
        exchange.send(_bomb(15), headers={"Content-Encoding": "deflate"})
    else:
        exchange.send(document(BUTTON + "<script>fetch('/data').then((r) => r.text())</script>"))


def _double_gzip(exchange: Exchange) -> None:
    exchange.send(gzip.compress(_bomb(31)), headers={"Content-Encoding": "gzip, gzip"})


def _not_gzip(exchange: Exchange) -> None:
    exchange.send(_BODY, headers={"Content-Encoding": "gzip"})


def _short(exchange: Exchange) -> None:
    exchange.send(_BODY, headers={"Content-Length": "1000000"})


def _smuggled(exchange: Exchange) -> None:
    exchange.send(_BODY, headers={"Content-Length": "10", "Transfer-Encoding": "chunked"})


def _not_http(exchange: Exchange) -> None:
    exchange.raw(b"\x00\x01\x02SSH-2.0-hello\r\n\r\n")


_CAPTCHA = document(
    "<title>Just a moment...</title><h1>Please verify you are a human</h1>"
    "<p>Complete the CAPTCHA to continue.</p><div class=g-recaptcha data-sitekey=x>"
    "<iframe title='reCAPTCHA' src=/recaptcha/api2/anchor width=300 height=250></iframe></div>"
)
_BLOCKED = document(
    "<title>Access Denied</title><h1>Access Denied</h1><p>You have no permission to access this server.</p>"
    "<p>Reference #18.89a7</p>"
)
_GONE = ("done", "unreachable")

NETWORK = (
    Behaviour("dead", "a port where no server listens", _fixed("200 OK"), outcomes=("unreachable",)),
    Behaviour("reset", "connection reset in mid-body", _reset, outcomes=_GONE),
    Behaviour(
        "empty-answer", "connection closed without a word", lambda exchange: None, outcomes=("unreachable",)
    ),
    Behaviour("not-http", "an answer that is no HTTP", _not_http, outcomes=_GONE),
    Behaviour(
        "redirect-loop", "redirects in a circle", _redirect_loop, outcomes=("unreachable",), start="/a"
    ),
    Behaviour("endless-body", "a page that never ends", _endless_body, outcomes=_GONE),
    Behaviour("endless-picture", "a picture that never ends", _endless_picture),
    Behaviour("endless-headers", "header lines without end", _endless_headers, outcomes=("unreachable",)),
    Behaviour("slow-headers", "a header, a letter at a time", _slow_headers, outcomes=_GONE),
    Behaviour("silence", "no answer at all", _silence, outcomes=_GONE),
    Behaviour("gzip-bomb", "half a gigabyte in half a megabyte, gzip", _gzip_bomb, outcomes=_GONE),
    Behaviour("deflate-bomb", "the same, fetched by a script, deflate", _deflate_bomb),
    Behaviour("double-gzip", "the same, compressed twice", _double_gzip, outcomes=_GONE),
    Behaviour("not-gzip", "said to be compressed, and is not", _not_gzip, outcomes=_GONE),
    Behaviour("short-body", "less than its length says", _short, outcomes=_GONE),
    Behaviour("two-lengths", "chunked and with a length, too", _smuggled, outcomes=_GONE),
    Behaviour(
        "auth-loop",
        "asks for a password for ever",
        _fixed("401 Unauthorized", WWW_Authenticate='Basic realm="x"'),
        outcomes=("done", "blocked", "unreachable"),
    ),
    Behaviour(
        "proxy-auth",
        "asks as if it were the proxy",
        _fixed("407 Proxy Authentication Required", Proxy_Authenticate='Basic realm="x"'),
        outcomes=("done", "blocked", "unreachable"),
    ),
    Behaviour(
        "blocked",
        "403 of an anti-bot service",
        _fixed("403 Forbidden", _BLOCKED),
        plan=("look", "stop"),
        outcomes=("blocked",),
    ),
    Behaviour(
        "captcha",
        "page that wants a captcha solved",
        _fixed("200 OK", _CAPTCHA),
        plan=("look", "stop"),
        outcomes=("captcha",),
    ),
    Behaviour(
        "rate-limit",
        "429 with Retry-After",
        _fixed("429 Too Many Requests", "<h1>Too many requests</h1>", Retry_After="3600"),
        outcomes=("done", "blocked"),
    ),
    Behaviour("error-500", "500 with a page", _fixed("500 Internal Server Error", "<h1>Error</h1>")),
    Behaviour("empty-200", "200 without a body", _fixed("200 OK", b""), outcomes=_GONE),
    Behaviour(
        "status-204", "204, which leaves the page before it", _fixed("204 No Content", b""), outcomes=_GONE
    ),
    Behaviour("type-lies", "a page said to be a picture", _fixed("200 OK", kind="image/png"), outcomes=_GONE),
    Behaviour(
        "type-unknown",
        "a page of a type that is downloaded",
        _fixed("200 OK", kind="application/x-thing"),
        outcomes=_GONE,
    ),
    Behaviour(
        "split-header",
        "line ends in a header's value",
        _fixed("302 Found", Location="/x%0d%0aSet-Cookie: a=b"),
        outcomes=_GONE,
    ),
)
