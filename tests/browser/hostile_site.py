"""A site whose pages hang, open dialogs, open windows, close themselves or deceive."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator

from tests.browser.pdfs import make_pdf

_PAGES = {
    "/fine": "<title>fine</title><button>Fine</button>",
    "/hang": "<button onclick='for (;;);'>Hang</button>",
    "/hang-at-once": "x<script>for (;;);</script>",
    "/prompts": "<button onclick='document.title = [prompt(1), confirm(2)]'>On</button>",
    "/stay": "<input><script>onbeforeunload = (e) => { e.preventDefault(); return 'stay' }</script>",
    "/storm": "<button onclick='for (let i = 0; i < 200; i++) window.open(\"/fine\")'>Open</button>"
    "<script>for (let i = 0; i < 50; i++) window.open('/fine')</script>",
    "/never": "<a href=/silent target=_blank>Never</a>",
    "/opener": "<button onclick='window.open(\"/closer\")'>Open</button>",
    "/closer": "<title>closer</title><script>close()</script>",
    "/ask": '<button onclick="navigator.geolocation.getCurrentPosition(() => {}, (e) => {'
    ' Notification.requestPermission().then((r) => document.title = e.code + r) })">Ask</button>',
    "/links": "<a href='file:///etc/hostname'>f</a><a href='chrome://settings'>c</a>"
    "<a href='view-source:http://127.0.0.1/'>v</a><a href='mailto:a@b.test'>m</a>",
    "/downloads": "<a href='/data.csv'>csv</a><a href='/odd'>odd</a><a href='/big'>big</a>"
    "<button onclick=\"for (let i = 0; i < 30; i++) { const a = document.createElement('a');"
    " a.href = '/data.csv'; a.download = i + '.csv'; a.click() }\">storm</button>",
    "/keep": "<script>localStorage.a = document.cookie = 'a=1'</script>",
}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        try:
            self._answer()
        except OSError:
            self.close_connection = True  # The browser has stopped to listen.

    def _answer(self) -> None:
        if self.path in _PAGES:
            page = _PAGES[self.path]
            self._send(page.encode() if isinstance(page, str) else page, "text/html; charset=utf-8")
        elif self.path == "/data.csv":
            self._send(b"a,b\n1,2\n", "text/csv")
        elif self.path == "/report":
            self._send(make_pdf("Hello there"), "application/pdf")
        elif self.path == "/odd":
            self._send(b"x", "text/plain", {"Content-Disposition": 'attachment; filename="../../e $(v).txt"'})
        elif self.path == "/redirects":
            self._send(b"", "text/html", {"Location": "/redirects"}, 302)
        elif self.path == "/login":
            self._send(b"", "text/html", {"WWW-Authenticate": "Basic realm=x"}, 401)
        elif self.path == "/big":
            self._stream(b"0" * 1_000_000, 100)
        elif self.path == "/silent":
            self.server.closing.wait(10)  # type: ignore[attr-defined]
        else:
            self.close_connection = True

    def _send(self, body: bytes, kind: str, more: dict[str, str] | None = None, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (more or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, part: bytes, times: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/zip")
        self.send_header("Connection", "close")
        self.end_headers()
        for _ in range(times):
            self.wfile.write(part)


@contextlib.contextmanager
def hostile_site() -> Iterator[str]:
    """The URL of the site, at `http://127.0.0.1:PORT`."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.closing = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.closing.set()  # type: ignore[attr-defined]
        server.shutdown()
        server.server_close()
        thread.join()
