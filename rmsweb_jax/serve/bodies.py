"""Answers in the form of the OpenAI API, whole or as chunks of a stream."""

from __future__ import annotations

import dataclasses
import itertools
import time
import uuid
from collections.abc import Iterator
from typing import Any

from rmsweb_jax.decoding.requests import PromptScores, Request, TopTokens
from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.serve.protocol import ChatRequest, CompletionRequest, GenerationRequest
from rmsweb_jax.serve.replies import Reply


@dataclasses.dataclass
class GenerationCall:
    """A request under way, and its replies.

    Attributes:
      name: of the model, as the client named it.
      scores: log-probabilities of the prompt, if they were asked for.
    """

    asked: GenerationRequest
    name: str
    request: Request
    replies: list[Reply]
    processor: Processor
    scores: PromptScores | None = None

    def __post_init__(self) -> None:
        self._chat = isinstance(self.asked, ChatRequest)
        self._id = ("chatcmpl-" if self._chat else "cmpl-") + uuid.uuid4().hex
        self._created = int(time.time())

    @property
    def complete(self) -> bool:
        return all(reply.finish is not None for reply in self.replies)

    def body(self) -> dict[str, Any]:
        """Makes the answer of a request without a stream."""
        body = self._head("chat.completion" if self._chat else "text_completion")
        body["choices"] = [self._choice(number, reply) for number, reply in enumerate(self.replies)]
        body["usage"] = self._usage()
        return body | self._of_prompt()

    def first_chunks(self) -> Iterator[dict[str, Any]]:
        """Makes the chunks that begin a stream."""
        for number in range(len(self.replies)):
            if self._chat:
                yield self._chunk(
                    number, {"delta": {"role": "assistant", "content": ""}}, self._of_prompt(ids=True)
                )
            elif isinstance(self.asked, CompletionRequest) and self.asked.echo:
                yield self._chunk(number, {"text": self._echo()}, self._of_prompt(ids=True))

    def chunk(self, number: int) -> dict[str, Any] | None:
        """Makes the chunk of what is new of a reply; None if nothing is."""
        reply = self.replies[number]
        text, places = reply.delta(), reply.new_tokens()
        held = not text and reply.finish is None
        if held and not (self.asked.wants_log_probs or self.asked.return_token_ids):
            return None
        choice: dict[str, Any] = {"finish_reason": reply.finish}
        if self._chat:
            delta: dict[str, Any] = {"content": text} if text else {}
            if reply.calls:
                delta["tool_calls"] = [
                    {"index": index, **call} for index, call in enumerate(reply.tool_calls())
                ]
            choice["delta"] = delta
        else:
            choice["text"] = text
        if self.asked.wants_log_probs:
            choice["logprobs"] = self._log_probs(reply, places)
        if self.asked.return_token_ids:
            choice["token_ids"] = reply.tokens[places]
        return self._chunk(number, choice)

    def usage_chunk(self) -> dict[str, Any]:
        """Makes the last chunk of a stream whose client asked for the usage."""
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        return self._head(kind) | {"choices": [], "usage": self._usage()}

    def _chunk(
        self, number: int, choice: dict[str, Any], more: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        whole = {"index": number, "finish_reason": None, "logprobs": None} | choice
        return self._head(kind) | {"choices": [whole]} | (more or {})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self.name}

    def _choice(self, number: int, reply: Reply) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": number, "finish_reason": reply.finish, "logprobs": None}
        if self._chat:
            message: dict[str, Any] = {"role": "assistant", "content": reply.text, "refusal": None}
            if reply.calls:
                message |= {"content": reply.text or None, "tool_calls": reply.tool_calls()}
            choice["message"] = message
        else:
            choice["text"] = self._echo() + reply.text
        if self.asked.wants_log_probs:
            choice["logprobs"] = self._log_probs(reply, slice(0, len(reply.tokens)))
        if self.asked.return_token_ids:
            choice["token_ids"] = reply.tokens
        return choice

    def _usage(self) -> dict[str, int]:
        prompt = self.request.prompt.prompt_length
        completion = sum(len(reply.tokens) for reply in self.replies)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }

    def _of_prompt(self, ids: bool = False) -> dict[str, Any]:
        """Makes what answers say of the prompt; `ids` leaves out its log-probabilities."""
        body: dict[str, Any] = {}
        tokens = self.request.prompt.encoded().prompt.tolist()
        if self.asked.return_token_ids:
            body["prompt_token_ids"] = tokens
        if self.scores is not None and not ids:
            entries: list[Any] = [None]
            for place, value in enumerate(self.scores.log_probs):
                token = tokens[place + 1]
                found = {token: value}
                if self.scores.top:
                    top = self.scores.top[place]
                    pairs = list(zip(top.tokens, top.log_probs, strict=True))[: self.asked.prompt_logprobs]
                    found |= dict(pairs)
                entries.append(
                    {
                        str(number): {"logprob": value, "decoded_token": self._text(number)}
                        for number, value in found.items()
                    }
                )
            body["prompt_logprobs"] = entries
        return body

    def _echo(self) -> str:
        if not (isinstance(self.asked, CompletionRequest) and self.asked.echo):
            return ""
        if isinstance(self.asked.prompt, str):
            return self.asked.prompt
        return self.processor.decode_response(self.asked.prompt)

    def _text(self, token: int) -> str:
        """Decodes a token alone; a partial UTF-8 character becomes the replacement character."""
        return self.processor.tokenizer.decode([token], skip_special_tokens=False)

    def _log_probs(self, reply: Reply, places: slice) -> dict[str, Any]:
        tokens, log_probs = reply.tokens[places], reply.log_probs[places]
        top = reply.top[places] or [TopTokens((), ())] * len(tokens)
        if self._chat:
            return {
                "content": [
                    self._entry(token, value)
                    | {"top_logprobs": [self._entry(*pair) for pair in self._pairs(likely)]}
                    for token, value, likely in zip(tokens, log_probs, top, strict=True)
                ]
            }
        texts = [self._text(token) for token in reply.tokens[: places.stop]]
        starts = itertools.accumulate(map(len, texts), initial=len(self._echo()))
        return {
            "tokens": texts[places],
            "token_logprobs": list(log_probs),
            "top_logprobs": [{self._text(token): value for token, value in self._pairs(one)} for one in top],
            "text_offset": list(starts)[places],
        }

    def _pairs(self, top: TopTokens) -> list[tuple[int, float]]:
        return list(zip(top.tokens, top.log_probs, strict=True))[: self.asked.num_top]

    def _entry(self, token: int, log_prob: float) -> dict[str, Any]:
        text = self._text(token)
        return {"token": text, "logprob": log_prob, "bytes": list(text.encode())}
