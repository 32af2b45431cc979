"""A request under way: its replies as they are drawn, and answers in OpenAI's form, whole or as a stream."""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import orjson

from rmsweb_jax.decoding.requests import Drawn, Request, TopTokens
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.serve.protocol import FAILED, ApiError, ChatRequest
from rmsweb_jax.serve.tools import CLOSE, OPEN, parse_calls

# What an incomplete character decodes to.
_REPLACEMENT = "�"
# JSON has no infinity. OpenAI writes this for a token that cannot be drawn.
_LEAST = -9999.0


@dataclasses.dataclass
class Reply:
    """One reply, as far as it is drawn.

    Attributes:
      tokens, log_probs, top: of the tokens so far, with the end token.
      text: without the stop text, and whole characters only until the end.
      finish: "stop", "length" or "tool_calls" once it has ended.
      cut: a stop text ended it before the engine did.
      calls: tool calls in OpenAI's form.
      whole_tokens, whole: tokens that end with a whole character, and their text, which is not decoded again.
      begun, sent, sent_tokens: whether a stream has begun it, and characters and tokens that it has sent.
    """

    tokens: list[int] = dataclasses.field(default_factory=list)
    log_probs: list[float] = dataclasses.field(default_factory=list)
    top: list[TopTokens] = dataclasses.field(default_factory=list)
    text: str = ""
    finish: str | None = None
    cut: bool = False
    calls: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    whole_tokens: int = 0
    whole: str = ""
    begun: bool = False
    sent: int = 0
    sent_tokens: int = 0


def known_error(error: Exception) -> ApiError:
    """Returns what a client gets of an error that ends a stream; one that is no one's intention is logged."""
    if isinstance(error, ApiError):
        return error
    logging.error("a stream failed", exc_info=error)
    return FAILED


class Generation:
    """A request under way, and its answer in the form of chat completions.

    Args:
      asked: what the client sent.
      name: of the model, as the client named it.
      request: what the engine got.

    Attributes:
      replies: in the order of their indices.
    """

    def __init__(self, asked: ChatRequest, name: str, request: Request, processor: Processor):
        self.asked, self.name, self.request, self._processor = asked, name, request, processor
        self.replies = [Reply() for _ in range(request.sampling.num_samples)]
        self._tools, self._forced = bool(asked.offered), bool(asked.forced)
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())

    @property
    def complete(self) -> bool:
        return all(reply.finish is not None for reply in self.replies)

    # --- what the engine draws

    def take(self, report: Drawn) -> int | None:
        """Adds what was drawn; returns the index of the reply that has changed, if one has.

        Raises:
          ApiError: a reply cannot be completed.
        """
        reply = self.replies[report.sample]
        if reply.finish is not None:
            return None
        if report.finish == "error":
            raise ApiError(report.error, status=500)
        before = len(reply.tokens)
        reply.tokens += report.tokens
        reply.log_probs += report.log_probs
        reply.top += report.top
        reply.finish = report.finish
        if self.asked.stream or self.asked.stop_texts or reply.finish is not None:
            reply.text = reply.whole + self._processor.decode_response(reply.tokens[reply.whole_tokens :])
            if not reply.text.endswith(_REPLACEMENT):
                reply.whole_tokens, reply.whole = len(reply.tokens), reply.text
        reply.cut = self._stop(reply, before) and report.finish is None
        if reply.finish is not None and self._tools:
            self._find_calls(reply)
            if self._forced and not reply.calls:
                count = len(reply.tokens)
                message = f"tool_choice: the call is cut after {count} tokens: allow more, and no stop text"
                raise ApiError(message, "tool_choice")
        return report.sample

    def _stop(self, reply: Reply, before: int) -> bool:
        """Ends a reply at a stop text; the token that completes it is kept."""
        stops = self.asked.stop_texts
        if not any(stop in reply.text for stop in stops):
            return False
        for count in range(before + 1, len(reply.tokens) + 1):
            text = self._processor.decode_response(reply.tokens[:count])
            found = [at for at in map(text.find, stops) if at >= 0]
            if found:
                reply.text, reply.finish = text[: min(found)], "stop"
                del reply.tokens[count:], reply.log_probs[count:], reply.top[count:]
                return True
        return False

    def _find_calls(self, reply: Reply) -> None:
        reply.text, calls = parse_calls(reply.text)
        before, tag, after = reply.text.rpartition(OPEN)
        # The beginning of a call that was cut, by the limit or a stop text, is no text.
        if tag and CLOSE not in after and (reply.finish == "length" or self.asked.stop_texts):
            reply.text = before.rstrip()
        if self.asked.parallel_tool_calls is False:
            calls = calls[:1]
        reply.calls = [
            {
                "id": f"call_{uuid.uuid4().hex[:24]}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for name, arguments in calls
        ]
        if calls and reply.finish == "stop":
            reply.finish = "tool_calls"

    # --- answers

    def body(self) -> dict[str, Any]:
        """Makes the answer of a request without a stream."""
        choices = []
        for index, reply in enumerate(self.replies):
            choice = self._choice(index, reply, slice(0, len(reply.tokens)))
            message = {"role": "assistant", "content": reply.text, "refusal": None}
            if reply.calls:
                message |= {"content": reply.text or None, "tool_calls": reply.calls}
            choices.append(choice | {"message": message})
        body = self._head("chat.completion") | {"choices": choices, "usage": self._usage()}
        return body | self._prompt_ids()

    def chunk(self, index: int) -> dict[str, Any] | None:
        """Makes the chunk of what is new of a reply; None if nothing is."""
        reply = self.replies[index]
        text, places = self._new_text(reply), slice(reply.sent_tokens, len(reply.tokens))
        counts_tokens = self.asked.num_top is not None or self.asked.return_token_ids
        if not text and reply.finish is None and not counts_tokens:
            return None
        choice = self._choice(index, reply, places)
        delta: dict[str, Any] = {} if reply.begun else {"role": "assistant", "content": ""}
        delta |= {"content": text} if text else {}
        if reply.calls:
            delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(reply.calls)]
        choice["delta"] = delta
        ids = {} if reply.begun else self._prompt_ids()
        reply.begun, reply.sent_tokens = True, places.stop
        return self._chunk([choice]) | ids

    async def events(self, changes: AsyncIterator[int]) -> AsyncIterator[bytes]:
        """Writes a stream of server-sent events; an error ends it as an event.

        Args:
          changes: the index of a reply each time that it may have changed.
        """

        def event(body: Any) -> bytes:
            return b"data: " + orjson.dumps(body) + b"\n\n"

        try:
            async for index in changes:
                if (body := self.chunk(index)) is not None:
                    yield event(body)
            if (body := self.last_chunk()) is not None:
                yield event(body)
        except Exception as error:
            yield event(known_error(error).body)
        yield b"data: [DONE]\n\n"

    def last_chunk(self) -> dict[str, Any] | None:
        """Makes the chunk of the usage; None if the client asks for none."""
        options = self.asked.stream_options
        if options is None or not options.include_usage:
            return None
        return self._chunk([]) | {"usage": self._usage()}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return self._head("chat.completion.chunk") | {"choices": choices}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self.name}

    def _choice(self, index: int, reply: Reply, places: slice) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "finish_reason": reply.finish, "logprobs": None}
        if self.asked.num_top is not None:
            choice["logprobs"] = self._log_probs(reply, places)
        if self.asked.return_token_ids:
            choice["token_ids"] = reply.tokens[places]
        return choice

    def _new_text(self, reply: Reply) -> str:
        """Returns the text that a stream has not sent, without what may turn out not to be text."""
        text = reply.text
        if reply.finish is None:
            text = text.rstrip(_REPLACEMENT)
            held = self.asked.stop_texts
            if self._tools:
                text, held = text.partition(OPEN)[0], (*held, OPEN)
            # The longest end of the text that may be the beginning of a stop text.
            sizes = [size for stop in held for size in range(1, len(stop)) if text.endswith(stop[:size])]
            text = text[: len(text) - max(sizes, default=0)]
            # White space before a call is no part of the text.
            text = text.rstrip() if self._tools else text
        new = text[reply.sent :]
        reply.sent += len(new)
        return new

    def _usage(self) -> dict[str, int]:
        prompt = self.request.prompt.prompt_length
        drawn = sum(len(reply.tokens) for reply in self.replies)
        return {"prompt_tokens": prompt, "completion_tokens": drawn, "total_tokens": prompt + drawn}

    def _prompt_ids(self) -> dict[str, Any]:
        if not self.asked.return_token_ids:
            return {}
        return {"prompt_token_ids": self.request.prompt.encoded().prompt.tolist()}

    def _log_probs(self, reply: Reply, places: slice) -> dict[str, Any]:
        tokens, values = reply.tokens[places], reply.log_probs[places]
        top = reply.top[places] or [TopTokens((), ())] * len(tokens)
        entries = []
        for token, value, likely in zip(tokens, values, top, strict=True):
            pairs = zip(likely.tokens, likely.log_probs, strict=True)
            entries.append(
                self._entry(token, value) | {"top_logprobs": [self._entry(*pair) for pair in pairs]}
            )
        return {"content": entries}

    def _entry(self, token: int, log_prob: float) -> dict[str, Any]:
        text = _token_text(self._processor, token)
        # Of a part of a character the text does not tell the bytes.
        content = None if _REPLACEMENT in text else list(text.encode())
        return {"token": text, "logprob": max(log_prob, _LEAST), "bytes": content}


@functools.lru_cache(maxsize=2**17)
def _token_text(processor: Processor, token: int) -> str:
    """Decodes a token alone; a partial UTF-8 character becomes the replacement character."""
    return processor.tokenizer.decode([token], skip_special_tokens=False)
