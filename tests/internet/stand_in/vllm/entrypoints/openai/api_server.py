"""Stands in for vLLM's server: takes its flags, and passes requests on to the address in POLICY_URL."""

from __future__ import annotations

import argparse
import http.server
import os
import urllib.request


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send(b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        url = os.environ["POLICY_URL"] + self.path.removeprefix("/v1")
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            self._send(answer.read())

    def _send(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    known, _ = parser.parse_known_args()
    http.server.ThreadingHTTPServer((known.host, known.port), _Handler).serve_forever()
