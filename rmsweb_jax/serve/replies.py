"""A request under way: its replies as they are drawn, and answers in OpenAI's form, whole or as a stream."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from rmsweb_jax.decoding.requests import Drawn, PromptScores, Request, TopTokens
from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.serve.protocol import ApiError, ChatRequest, CompletionRequest, GenerationRequest
from rmsweb_jax.serve.tools import OPEN, parse_calls

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
      offset: characters before the tokens that are not sent.
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
    offset: int = 0


class Generation:
    """A request under way.

    Args:
      asked: what the client sent.
      name: of the model, as the client named it.
      request: what the engine got.

    Attributes:
      replies: in the order of their indices.
    """

    def __init__(self, asked: GenerationRequest, name: str, request: Request, processor: Processor):
        self.asked, self.name, self.request, self._processor = asked, name, request, processor
        self.replies = [Reply() for _ in range(request.sampling.num_samples)]
        self._chat = asked if isinstance(asked, ChatRequest) else None
        self._tools = bool(self._chat and self._chat.offered)
        self._scores: PromptScores | None = None
        self._id = f"{'chatcmpl' if self._chat else 'cmpl'}-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._echo = ""
        if isinstance(asked, CompletionRequest) and asked.echo:
            text = asked.prompt
            self._echo = text if isinstance(text, str) else processor.decode_response(text)

    @property
    def complete(self) -> bool:
        return all(reply.finish is not None for reply in self.replies)

    # --- what the engine draws

    def take(self, report: Drawn | PromptScores) -> int | None:
        """Adds what was drawn; returns the index of the reply that has changed, if one has.

        Raises:
          ApiError: a reply, or the prompt's scores, cannot be completed.
        """
        if isinstance(report, PromptScores):
            # A token of probability 0 has no finite score, but damaged weights give no number at all.
            if any(value != value for value in report.log_probs):
                raise ApiError("a log-probability of the prompt is not a number", status=500)
            self._scores = report
            return None
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
        if self._chat and self._chat.parallel_tool_calls is False:
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
            if self._chat:
                message = {"role": "assistant", "content": reply.text, "refusal": None}
                if reply.calls:
                    message |= {"content": reply.text or None, "tool_calls": reply.calls}
                choice["message"] = message
            else:
                choice["text"] = self._echo + reply.text
            choices.append(choice)
        kind = "chat.completion" if self._chat else "text_completion"
        body = self._head(kind) | {"choices": choices, "usage": self._usage()}
        return body | self._prompt_ids() | self._prompt_scores()

    def chunk(self, index: int) -> dict[str, Any] | None:
        """Makes the chunk of what is new of a reply; None if nothing is."""
        reply = self.replies[index]
        text, places = self._new_text(reply), slice(reply.sent_tokens, len(reply.tokens))
        counts_tokens = self.asked.num_top is not None or self.asked.return_token_ids
        if not text and reply.finish is None and not counts_tokens:
            return None
        choice = self._choice(index, reply, places)
        if self._chat:
            delta: dict[str, Any] = {} if reply.begun else {"role": "assistant", "content": ""}
            delta |= {"content": text} if text else {}
            if reply.calls:
                delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(reply.calls)]
            choice["delta"] = delta
        else:
            choice["text"] = text if reply.begun else self._echo + text
        ids = {} if reply.begun else self._prompt_ids()
        reply.begun, reply.sent_tokens = True, places.stop
        return self._chunk([choice]) | ids

    def last_chunks(self) -> Iterator[dict[str, Any]]:
        """Makes the chunk of the usage, and of the prompt's scores, where they were asked for."""
        options = self.asked.stream_options
        usage = {"usage": self._usage()} if options is not None and options.include_usage else {}
        if usage or self.asked.prompt_logprobs is not None:
            yield self._chunk([]) | usage | self._prompt_scores()

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        body = self._head("chat.completion.chunk" if self._chat else "text_completion")
        options = self.asked.stream_options
        if options is not None and options.continuous_usage_stats:
            body["usage"] = self._usage()
        return body | {"choices": choices}

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
        return {"prompt_token_ids": self._prompt_tokens()} if self.asked.return_token_ids else {}

    def _prompt_tokens(self) -> list[int]:
        return self.request.prompt.encoded().prompt.tolist()

    def _prompt_scores(self) -> dict[str, Any]:
        if self._scores is None or self.asked.prompt_logprobs is None:
            return {}
        tokens, count = self._prompt_tokens(), self.asked.prompt_logprobs
        likely = _likely(self._scores.top, len(tokens) - 1, count)
        entries = [
            {
                str(token): {"logprob": max(log_prob, _LEAST), "decoded_token": self._text(token)}
                for token, log_prob in ({own: value} | dict(pairs)).items()
            }
            for own, value, pairs in zip(tokens[1:], self._scores.log_probs, likely, strict=True)
        ]
        return {"prompt_logprobs": [None, *entries]}

    def _log_probs(self, reply: Reply, places: slice) -> dict[str, Any]:
        tokens, count = reply.tokens[places], self.asked.num_top or 0
        values: list[Any] = [max(value, _LEAST) for value in reply.log_probs[places]]
        likely: list[Any] = _likely(reply.top[places], len(tokens), count)
        if self._chat:
            entries = [
                self._entry(token, value) | {"top_logprobs": [self._entry(*pair) for pair in pairs]}
                for token, value, pairs in zip(tokens, values, likely, strict=True)
            ]
            return {"content": entries}
        if self.asked.scores_echo and self._scores is not None and not places.start:
            prompt = self._prompt_tokens()
            tokens = prompt + tokens
            # The first token follows nothing.
            values = [None, *(max(value, _LEAST) for value in self._scores.log_probs), *values]
            likely = [None, *_likely(self._scores.top, len(prompt) - 1, count), *likely]
        sizes = (len(self._text(token)) for token in tokens)
        *starts, reply.offset = itertools.accumulate(sizes, initial=reply.offset)
        return {
            "tokens": [self._label(token) for token in tokens],
            "token_logprobs": values,
            "top_logprobs": [
                None if pairs is None else {self._label(token): max(value, _LEAST) for token, value in pairs}
                for pairs in likely
            ],
            "text_offset": starts,
        }

    def _entry(self, token: int, log_prob: float) -> dict[str, Any]:
        text = self._text(token)
        # Of a part of a character the text does not tell the bytes.
        content = None if _REPLACEMENT in text else list(text.encode())
        return {"token": self._label(token), "logprob": max(log_prob, _LEAST), "bytes": content}

    def _label(self, token: int) -> str:
        return f"token_id:{token}" if self.asked.return_tokens_as_token_ids else self._text(token)

    def _text(self, token: int) -> str:
        return _token_text(self._processor, token)


def _likely(top: Sequence[TopTokens], places: int, count: int) -> list[list[tuple[int, float]]]:
    """Returns the most likely tokens at each place with their log-probabilities."""
    top = top or [TopTokens((), ())] * places
    return [list(zip(one.tokens, one.log_probs, strict=True))[:count] for one in top]


@functools.lru_cache(maxsize=2**17)
def _token_text(processor: Processor, token: int) -> str:
    """Decodes a token alone; a partial UTF-8 character becomes the replacement character."""
    return processor.tokenizer.decode([token], skip_special_tokens=False)
