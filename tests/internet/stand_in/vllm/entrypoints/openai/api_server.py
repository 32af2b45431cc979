"""Stands in for vLLM's server: takes its flags, and passes requests on to the address in POLICY_URL."""

from __future__ import annotations

import argparse
import http.server
import os
import urllib.request

from tests.loopback import PageHandler


class _Handler(PageHandler):
    protocol_version = "HTTP/1.1"

    def get(self) -> None:
        self.reply("")

    def post(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        url = os.environ["POLICY_URL"] + self.path.removeprefix("/v1")
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            self.reply(answer.read(), "application/json")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    known, _ = parser.parse_known_args()
    http.server.ThreadingHTTPServer((known.host, known.port), _Handler).serve_forever()
