"""Replies as clients see them: text up to a stop text, tool calls, log-probabilities, and what is new."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

from rmsweb_jax.decoding.requests import Drawn, TopTokens
from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.serve.tools import OPEN, parse_calls

# What an incomplete character decodes to.
_REPLACEMENT = "�"


@dataclasses.dataclass
class Reply:
    """One reply, as far as it is drawn.

    Attributes:
      stop: texts that end it.
      tools: take tool calls out of the text.
      forced: the reply is one call.
      tokens, log_probs, top: of the tokens so far, with the end token.
      text: without the stop text, and whole characters only until the end.
      finish: "stop", "length" or "tool_calls" once it has ended.
      calls: id, name and arguments of each tool call.
      sent: characters that a stream has sent.
      sent_tokens: tokens that a stream has sent.
    """

    processor: Processor
    stop: tuple[str, ...] = ()
    tools: bool = False
    tokens: list[int] = dataclasses.field(default_factory=list)
    log_probs: list[float] = dataclasses.field(default_factory=list)
    top: list[TopTokens] = dataclasses.field(default_factory=list)
    text: str = ""
    finish: str | None = None
    calls: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)
    sent: int = 0
    sent_tokens: int = 0

    def take(self, drawn: Drawn) -> bool:
        """Adds tokens; returns True if a stop text ended the reply before the engine did."""
        before = len(self.tokens)
        self.tokens += drawn.tokens
        self.log_probs += drawn.log_probs
        self.top += drawn.top
        self.text = self.processor.decode_response(self.tokens)
        self.finish = drawn.finish
        cut = bool(self.stop) and self._stop(before)
        if self.finish is not None and self.tools:
            self.text, calls = parse_calls(self.text)
            self.calls = [(f"call_{uuid.uuid4().hex[:24]}", name, arguments) for name, arguments in calls]
            if self.calls and self.finish == "stop":
                self.finish = "tool_calls"
        return cut and drawn.finish is None

    def _stop(self, before: int) -> bool:
        """Ends the reply at a stop text; the token that completes it is kept."""
        if not any(stop in self.text for stop in self.stop):
            return False
        for count in range(before + 1, len(self.tokens) + 1):
            text = self.processor.decode_response(self.tokens[:count])
            found = [at for at in map(text.find, self.stop) if at >= 0]
            if found:
                self.text, self.finish = text[: min(found)], "stop"
                del self.tokens[count:], self.log_probs[count:], self.top[count:]
                return True
        return False

    def delta(self) -> str:
        """Returns the text that is new since the last call, without what may turn out not to be text."""
        end = len(self.text)
        if self.finish is None:
            end = len(self.text.rstrip(_REPLACEMENT))
            held = [*self.stop, OPEN] if self.tools else self.stop
            if self.tools and OPEN in self.text:
                end = min(end, self.text.index(OPEN))
            # The longest end of the text that may be the beginning of a stop text.
            for stop in held:
                for size in range(min(len(stop), end), 0, -1):
                    if self.text[:end].endswith(stop[:size]):
                        end = min(end, end - size)
                        break
        new = self.text[self.sent : end]
        self.sent = max(self.sent, end)
        return new

    def new_tokens(self) -> slice:
        """Returns the places of the tokens that are new since the last call."""
        start, self.sent_tokens = self.sent_tokens, len(self.tokens)
        return slice(start, self.sent_tokens)

    def tool_calls(self) -> list[dict[str, Any]]:
        """Returns the calls in the API's form."""
        return [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in self.calls
        ]
