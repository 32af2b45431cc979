"""A model endpoint on loopback whose answers depend on the prompt, not on the order of calls."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable
from typing import Any

from tests.llm.server import Answer, Call, ModelServer


class PromptServer(ModelServer):
    """Answers each prompt with `reply_to(prompt)`, independent of the order of calls.

    Attributes:
      hang_from: this call and later ones, from 1, get no answer; 0: all get one.
      hung: released for each of those.
    """

    def __init__(self, reply_to: Callable[[str], Answer]):
        super().__init__([])
        self.reply_to, self.hang_from, self.hung = reply_to, 0, threading.Semaphore(0)
        self._counting = threading.Lock()

    def __enter__(self) -> PromptServer:
        return self

    @property
    def prompts(self) -> list[str]:
        return [read_prompt(call.body)[0] for call in self.calls]

    @property
    def pictures(self) -> list[int]:
        return [read_prompt(call.body)[1] for call in self.calls]

    def _answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self._counting:
            self.calls.append(Call(handler.path, dict(handler.headers), body))
            hangs = 0 < self.hang_from <= len(self.calls)
        if hangs:
            self.hung.release()
        self._give(handler, Answer(silent=True) if hangs else self.reply_to(read_prompt(body)[0]))


def read_prompt(body: Any) -> tuple[str, int]:
    """Returns the text and the number of images of a request's messages, for both APIs."""
    if "contents" in body:
        parts = [part for content in body["contents"] for part in content["parts"]]
    else:
        contents = [message["content"] for message in body["messages"]]
        parts = [part for one in contents for part in ([{"text": one}] if isinstance(one, str) else one)]
    texts = [part["text"] for part in parts if "text" in part]
    return "".join(texts), len(parts) - len(texts)
