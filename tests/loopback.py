"""Web servers on loopback."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from typing import Any


class PageHandler(http.server.BaseHTTPRequestHandler):
    """Answers requests without a log, by `get` and `post` of a subclass, which call `reply`."""

    def do_GET(self) -> None:
        self.get()

    def do_POST(self) -> None:
        self.post()

    def get(self) -> None:
        self.send_error(405)

    def post(self) -> None:
        self.send_error(405)

    def reply(self, body: str, kind: str = "text/html; charset=utf-8", status: int = 200) -> None:
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def serving(handler: Any) -> Iterator[str]:
    """Runs a server; yields its address, `127.0.0.1:PORT`.

    Args:
      handler: makes a `BaseHTTPRequestHandler`.
    """
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
