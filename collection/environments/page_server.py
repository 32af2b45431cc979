"""Pages of a folder, served on loopback under a name."""

from __future__ import annotations

import contextlib
import functools
import http.server
import pathlib
import threading
from typing import ClassVar

from rmsweb_jax.errors import UserError


class PageHandler(http.server.SimpleHTTPRequestHandler):
    """Files as they are, which a browser may keep."""

    protocol_version = "HTTP/1.1"
    extensions_map: ClassVar = {
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".html": "text/html; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
    }

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=3600")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: requests are not news."""


class PageServer(contextlib.AbstractContextManager["PageServer"]):
    """Serves a folder; used with `with`, or closed by `close()`.

    Attributes:
      host_rules: Chromium host rules under which the pages are at `http://NAME/...`, so that no port gets
        into a record. Nothing else resolves.

    Raises:
      UserError: no port of loopback can be had.
    """

    def __init__(self, folder: pathlib.Path, name: str, handler: type[PageHandler] = PageHandler) -> None:
        try:
            self._server = http.server.ThreadingHTTPServer(
                ("127.0.0.1", 0), functools.partial(handler, directory=str(folder))
            )
        except OSError as error:
            raise UserError(f"cannot serve {name} on 127.0.0.1: {error}; allow loopback sockets") from error
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self.host_rules = (f"MAP {name} 127.0.0.1:{self.port}", "MAP * ~NOTFOUND", "EXCLUDE 127.0.0.1")
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name=f"serve-{name}", daemon=True
        )
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
