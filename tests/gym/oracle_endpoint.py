"""A model endpoint that solves the tasks of `tests.gym.openenv_calls`; it streams where asked to."""

from __future__ import annotations

import http.server
import json
from typing import Any

from tests.gym.openenv_calls import calls


def reply_to(messages: list[dict[str, Any]]) -> str:
    """The call after those that were made; the first observation says all that is needed."""
    observations = [json.loads(one["content"]) for one in messages if one["role"] == "user"]
    made = sum(one["role"] == "assistant" for one in messages)
    return [*calls(observations[0]["observation"]), "send_msg_to_user('done')"][made]


class OracleHandler(http.server.BaseHTTPRequestHandler):
    """Answers `/chat/completions`, whole or as a stream."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = reply_to(body["messages"])
        head = {"id": "oracle", "created": 0, "model": body["model"]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if body.get("stream"):
            choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
            last = {"index": 0, "delta": {}, "finish_reason": "stop"}
            chunks = [{**head, "object": "chat.completion.chunk", "choices": [one]} for one in (choice, last)]
            chunks.append({**chunks[0], "choices": [], "usage": usage})
            events = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
            self._give("".join([*events, "data: [DONE]\n\n"]).encode(), "text/event-stream")
            return
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        self._give(json.dumps(whole).encode(), "application/json")

    def _give(self, data: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Writes nothing."""
