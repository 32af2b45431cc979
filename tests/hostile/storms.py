"""Pages that exhaust resources: dialogs, windows, time, memory, nodes."""

from __future__ import annotations

import struct
import zlib

from tests.browser.pdfs import make_pdf
from tests.hostile.behaviours import BUTTON, Behaviour, Serve, document, page, with_pages
from tests.hostile.server import Exchange

_ENDED = ("done", "failures", "timeout", "crashed", "unreachable")


def _png(width: int, height: int) -> bytes:
    """Returns an image of one colour: a few kilobytes that are gigabytes when decoded."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packer = zlib.compressobj(9)
    row = bytes(1 + (width + 7) // 8)
    data = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def _with_file(html: str, path: str, data: bytes, kind: str) -> Serve:
    def serve(exchange: Exchange) -> None:
        if exchange.path == path:
            exchange.send(data, kind=kind)
        else:
            exchange.send(document(html))

    return serve


def _svg() -> bytes:
    """Returns ten levels of ten uses each: ten thousand million shapes."""
    groups = ["<g id='a0'><rect width='1' height='1'/></g>"]
    for level in range(1, 10):
        uses = f"<use href='#a{level - 1}' x='{level}'/>" * 10
        groups.append(f"<g id='a{level}'>{uses}</g>")
    inner = "".join(groups)
    return f"<svg xmlns='http://www.w3.org/2000/svg' width='99' height='99'>{inner}</svg>".encode()


def _downloads(exchange: Exchange) -> None:
    if exchange.path == "/":
        code = (
            "for (let n = 0; n < 20; n++) setTimeout(() => {"
            "const a = document.createElement('a'); a.href = '/file' + n; a.click(); }, n * 20)"
        )
        exchange.send(document(f"{BUTTON}<script>{code}</script>"))
    else:
        exchange.send(
            b"x" * 1000, kind="application/octet-stream", headers={"Content-Disposition": "attachment"}
        )


def _pdf(body: bytes) -> Serve:
    def serve(exchange: Exchange) -> None:
        if exchange.path == "/a.pdf":
            exchange.send(body, kind="application/pdf")
        else:
            exchange.send(document("<h1>Shop</h1><a href=/a.pdf>Terms</a>"))

    return serve


# Pages that never come to an end.
_ENDLESS = (
    *("hang-load", "hang-parse", "hang-click", "hang-frame", "memory", "nodes", "frames-within"),
    *("reloads", "hash", "print"),
)
STORMS = with_pages(
    "storms",
    *(Behaviour(name, outcomes=_ENDED) for name in _ENDLESS),
    Behaviour("alerts", outcomes=_ENDED, incidents=("dialog",)),
    Behaviour("alert-timer", outcomes=_ENDED, incidents=("dialog",)),
    Behaviour("prompts", outcomes=_ENDED, incidents=("dialog",)),
    Behaviour("alert-click", plan=("click 1", "click 1", "done"), incidents=("dialog",)),
    Behaviour("beforeunload", plan=("click 1", "open HERE/other", "done")),
    Behaviour("popups-self", plan=("click 1", "wait 1", "done")),
    Behaviour("closes-itself", plan=("click 1", "look", "done")),
    Behaviour(
        "hang-unload",
        plan=("open HERE/other", "done"),
        outcomes=_ENDED,
    ),
    Behaviour(
        "frames",
        "200 frames",
        page(BUTTON + "<iframe width=210 height=210 srcdoc='<button>In</button>'></iframe>" * 200),
        outcomes=_ENDED,
    ),
    Behaviour("rebuilds", outcomes=("done", "failures", "timeout")),
    Behaviour(
        "layout",
        "makes the browser lay out all the time",
        page(
            "<style>@keyframes a {to {width: 900px}} p {animation: a 9ms infinite}</style>"
            + BUTTON
            + "<p>word " * 2000
        ),
        outcomes=_ENDED,
    ),
    Behaviour("scroll-forever", plan=("scroll", "scroll", "done")),
    Behaviour("scroll-jumps", plan=("scroll", "done")),
    Behaviour("moves", plan=("click 1", "click 1", "done")),
    Behaviour("history", plan=("back", "done"), outcomes=_ENDED),
    Behaviour("back-trap", plan=("back", "back", "done")),
    Behaviour(
        "picture-bomb",
        "a picture of 30,000 by 30,000",
        _with_file(f"{BUTTON}<img src=/a.png width=600>", "/a.png", _png(30_000, 30_000), "image/png"),
    ),
    Behaviour(
        "svg-bomb",
        "an SVG of ten thousand million shapes",
        _with_file(f"{BUTTON}<img src=/a.svg>", "/a.svg", _svg(), "image/svg+xml"),
        outcomes=_ENDED,
    ),
    Behaviour("downloads", "twenty downloads by themselves", _downloads, plan=("wait 1", "done")),
    Behaviour("pdf", "link to a PDF", _pdf(make_pdf("Terms of sale")), plan=("click 1", "extract", "done")),
    Behaviour(
        "pdf-broken",
        "link to half a PDF",
        _pdf(make_pdf("Terms of sale")[:150]),
        plan=("click 1", "extract", "done"),
        outcomes=("done", "failures"),
    ),
    Behaviour("fullscreen", plan=("click 1", "look", "done")),
    Behaviour("pointer-lock", plan=("click 1", "keys Escape", "done")),
)
