"""Pages that exhaust resources: dialogs, windows, time, memory, nodes."""

from __future__ import annotations

import struct
import zlib

from tests.hostile.behaviours import BUTTON, Behaviour, Serve, document, page
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


def _valid_pdf() -> bytes:
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Contents 4 0 R"
        b" /Resources << /Font << /F 5 0 R >> >> >>",
        b"<< /Length 40 >>\nstream\nBT /F 20 Tf 20 100 Td (Terms of sale) Tj ET\nendstream",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    )
    data, places = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, text)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return data + (
        b"xref\n0 6\n0000000000 65535 f \n"
        + table
        + b"trailer << /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % len(data)
    )


_HANG = "while (true) {}"

STORMS = (
    Behaviour("alerts", "alerts without end", outcomes=_ENDED, incidents=("dialog",)),
    Behaviour("alert-timer", "an alert every 20 ms", outcomes=_ENDED, incidents=("dialog",)),
    Behaviour("prompts", "confirms and prompts, a hundred of each", outcomes=_ENDED, incidents=("dialog",)),
    Behaviour(
        "alert-click", "alert at every click", plan=("click 1", "click 1", "done"), incidents=("dialog",)
    ),
    Behaviour("beforeunload", "asks before it is left", plan=("click 1", "open HERE/other", "done")),
    Behaviour("popups", "a hundred windows at every click"),
    Behaviour("popups-self", "windows that open windows", plan=("click 1", "wait 1", "done")),
    Behaviour("closes-itself", "closes its own window", plan=("click 1", "look", "done")),
    Behaviour("hang-load", "a loop that never ends, once loaded", outcomes=_ENDED),
    Behaviour("hang-parse", "a loop that never ends, while loading", outcomes=_ENDED),
    Behaviour("hang-click", "a loop that never ends, at a click", outcomes=_ENDED),
    Behaviour(
        "hang-unload",
        "a loop that never ends, on leaving",
        plan=("open HERE/other", "done"),
        outcomes=_ENDED,
    ),
    Behaviour("hang-frame", "a loop that never ends, in a frame", outcomes=_ENDED),
    Behaviour("memory", "all memory there is", outcomes=_ENDED),
    Behaviour("nodes", "50,000 nodes", outcomes=_ENDED),
    Behaviour("deep", "5,000 elements within each other"),
    Behaviour("deep-shadow", "shadow roots 500 deep"),
    Behaviour(
        "frames",
        "200 frames",
        page(BUTTON + "<iframe width=210 height=210 srcdoc='<button>In</button>'></iframe>" * 200),
        outcomes=_ENDED,
    ),
    Behaviour("frames-within", "a page that frames itself", outcomes=_ENDED),
    Behaviour("mutations", "never quiet"),
    Behaviour("rebuilds", "builds itself anew all the time", outcomes=("done", "failures")),
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
    Behaviour("scroll-forever", "grows when scrolled", plan=("scroll", "scroll", "done")),
    Behaviour("scroll-jumps", "scrolls back at once", plan=("scroll", "done")),
    Behaviour("moves", "a button that runs away", plan=("click 1", "click 1", "done")),
    Behaviour("history", "thousands of entries of history", plan=("back", "done"), outcomes=_ENDED),
    Behaviour("back-trap", "comes forward again", plan=("back", "back", "done")),
    Behaviour("reloads", "reloads itself all the time", outcomes=_ENDED),
    Behaviour("hash", "changes its address all the time", outcomes=_ENDED),
    Behaviour("title", "a megabyte of title, and a tenth of it of address"),
    Behaviour("attributes", "megabytes in attributes"),
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
    Behaviour("storage", "fills what browsers keep"),
    Behaviour("downloads", "twenty downloads by themselves", _downloads, plan=("wait 1", "done")),
    Behaviour("pdf", "link to a PDF", _pdf(_valid_pdf()), plan=("click 1", "extract", "done")),
    Behaviour(
        "pdf-broken",
        "link to half a PDF",
        _pdf(_valid_pdf()[:150]),
        plan=("click 1", "extract", "done"),
        outcomes=("done", "failures"),
    ),
    Behaviour("print", "prints", outcomes=_ENDED),
    Behaviour("fullscreen", "goes to full screen at a click", plan=("click 1", "look", "done")),
    Behaviour("pointer-lock", "takes the pointer and the keyboard", plan=("click 1", "keys Escape", "done")),
)
