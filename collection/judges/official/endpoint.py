"""A chat-completions endpoint on loopback for judges' own clients; what it gets goes to a run's model."""

from __future__ import annotations

import http.server
import json
import secrets
import threading
from collections.abc import Callable
from typing import Any

# Returns the reply to a request's body, or raises to refuse it.
Answering = Callable[[dict[str, Any]], str]


class JudgeEndpoint:
    """Serves `POST /v1/chat/completions` to this machine; each client has a key of its own.

    Attributes:
      url: address up to and including the version.
    """

    def __init__(self) -> None:
        self._clients: dict[str, Answering] = {}
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                key = self.headers.get("Authorization", "").removeprefix("Bearer ")
                answering = endpoint._clients.get(key)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if answering is None or self.path != "/v1/chat/completions":
                    status, answer = 404, {"error": {"message": "not found"}}
                else:
                    try:
                        asked = json.loads(body)
                        status, answer = 200, _completion(asked["model"], answering(asked))
                    except Exception as error:
                        # Not an error that a client would try again.
                        status, answer = 400, {"error": {"message": str(error)}}
                self._send(status, answer)

            def _send(self, status: int, content: dict[str, Any]) -> None:
                data = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                # A judge may run several event loops in turn, which cannot share a connection.
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, name="judge-endpoint", daemon=True).start()

    def add(self, answering: Answering) -> str:
        """Returns the key of a new client, whose requests `answering` answers in threads of their own."""
        key = secrets.token_urlsafe(32)
        self._clients[key] = answering
        return key

    def remove(self, key: str) -> None:
        self._clients.pop(key, None)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # A judge may ask about each of a hundred screenshots at once.

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was ended while it waited is no error."""


def _completion(model: str, text: str) -> dict[str, Any]:
    """Returns a chat completion; its tokens are counted by the run, not by the judge's code."""
    message = {"role": "assistant", "content": text, "refusal": None}
    return {
        "id": "judge",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }
