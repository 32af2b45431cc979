"""A model: one chat request in, one reply out, for any purpose, within the limits of a run."""

from __future__ import annotations

import abc
import collections
import dataclasses
import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from collection.llm.calls import BudgetError, CallEnd, Calls, NoAnswerError, Purpose
from collection.llm.config import ModelConfig
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import CallUsage, ImagePart, Message, SampledTokens

# Providers count images differently; 1,024 is near what most charge for a 1280x1100 screenshot.
IMAGE_TOKENS = 1024
_BYTES_PER_TOKEN = 3  # English text has about 4; the lower value keeps estimates on the safe side.


class ImageSource(Protocol):
    """A store of the screenshots that messages refer to (`rmsweb_jax.records.images.ImageStore`)."""

    def get(self, sha256: str) -> bytes: ...


@dataclasses.dataclass(frozen=True)
class ModelRequest:
    """One model call.

    Attributes:
      messages: the chat.
      images: resolves the screenshots in the messages; None if there are none.
      seed: 31 bits. Models that support seeds answer the same call the same way.
      schema: JSON schema of the answer; None asks for free text. A model that cannot constrain its output
        follows the messages alone.
      chat: `messages` and optional `response_format` of another program's chat-completions request, sent
        as they are instead of `messages`; only a chat-completions endpoint takes them.
      repeat: number of equal requests before this one whose replies are not wanted again from a cache.
    """

    messages: tuple[Message, ...]
    purpose: Purpose
    seed: int
    images: ImageSource | None = None
    schema: dict[str, Any] | None = None
    chat: Mapping[str, Any] | None = None
    repeat: int = 0

    @property
    def estimated_tokens(self) -> int:
        """Estimated prompt length, for limits that apply before the model has counted."""
        images = sum(isinstance(part, ImagePart) for message in self.messages for part in message.content)
        text = sum(len(message.text.encode(errors="replace")) for message in self.messages)
        for part in _chat_parts(self.chat):
            image = isinstance(part, dict) and part.get("type") == "image_url"
            images += image
            text += 0 if image else len(str(part).encode(errors="replace"))
        return images * IMAGE_TOKENS + text // _BYTES_PER_TOKEN + 1


def _chat_parts(chat: Mapping[str, Any] | None) -> list[Any]:
    """Returns the parts of all messages of a chat-completions request."""
    contents = [message.get("content") or "" for message in chat["messages"]] if chat else []
    return [part for one in contents for part in (one if isinstance(one, list) else [one])]


@dataclasses.dataclass(frozen=True)
class ModelReply:
    """One model answer.

    Attributes:
      text: the answer as received; empty or truncated if there is a problem.
      problem: one line that says why the answer is not usable (blocked, cut off, empty); else empty.
      cached_tokens: prompt tokens that were billed as cached.
      outage_s: seconds that the call has waited for a model that did not answer.
      model_version: name of the model in the answer, often more precise than that in the request.
      sampled: tokens of the answer, if the endpoint returns them.
    """

    text: str
    usage: CallUsage = dataclasses.field(default_factory=CallUsage)
    problem: str = ""
    cached_tokens: int = 0
    outage_s: float = 0.0
    model_version: str = ""
    sampled: SampledTokens | None = None


class TransientError(Exception):
    """All attempts of a call failed, and a later one may succeed."""


class _Attempts(threading.local):
    """HTTP requests of this thread's call, also those that a client library repeats by itself.

    Attributes:
      lost: number of those that were sent and not answered in full, or not yet: they may be billed.
      reserve: enters so many attempts without an answer under the cap, or raises BudgetError.
    """

    made = lost = 0
    reserve: Callable[[int], None] = staticmethod(lambda lost: None)

    def begin(self) -> None:
        """Counts an attempt that is about to be made."""
        if self.lost:
            self.reserve(self.lost + 1)
        self.made += 1
        # Until it is answered, it may be billed.
        self.lost += 1


attempts = _Attempts()


class Model(abc.ABC):
    """A chat model. Threads can share it.

    Args:
      config: resolved.
      calls: of the run; None limits this model alone.

    Attributes:
      name: in records.
      asked, hits: number of requests to `ask` that the model answered, and that were answered before.
    """

    def __init__(self, config: ModelConfig, calls: Calls | None = None):
        self.name, self._config, self._calls = config.model, config, calls or Calls()
        self._limits, self._prices = config.limits, config.prices
        self._lock, self._key_locks = threading.Lock(), collections.defaultdict(threading.Lock)
        self.asked = self.hits = 0

    def complete(self, request: ModelRequest, key: str = "") -> ModelReply:
        """Makes a call; returns the model's answer with its cost.

        Args:
          key: under which the reply is kept for `ask`; empty does not keep it.

        Raises:
          BudgetError: the call could exceed the cap.
          UserError: no call can succeed: a refused key, an exhausted quota, a wrong address; or no attempt
            was answered, and the run does not wait for it.
        """
        calls, most = self._calls, self._prices.cost(request.estimated_tokens, self._config.longest)
        entry = (request.purpose, self.name, most, request.estimated_tokens, self._limits)
        while not (turn := calls.begin(*entry)).call:
            time.sleep(turn.wait_s)
        attempts.made = attempts.lost = 0
        attempts.reserve = lambda lost: calls.reserve(turn.call, most * lost)
        try:
            while True:
                while turn.wait_s:
                    time.sleep(turn.wait_s)
                    turn = calls.wait(turn.call)
                try:
                    # A model that has not answered is tried once at a time.
                    reply = self._answer(request, 1 if turn.outage else self._config.calls)
                    break
                except TransientError as error:
                    turn = calls.failed(turn.call, " ".join(str(error).split()), attempts.made)
        except BaseException as error:
            outcome = " ".join(f"{type(error).__name__}: {error}".split())
            refused = isinstance(error, UserError) and not isinstance(error, NoAnswerError | BudgetError)
            lost = most * attempts.lost
            calls.end(turn.call, CallEnd(outcome, refused, attempts.made, unanswered_cost=lost))
            raise
        usage, cached = reply.usage, reply.cached_tokens
        cost = self._prices.cost(usage.prompt_tokens, usage.response_tokens, cached)
        end = CallEnd(
            outcome=reply.problem or "ok",
            answered=True,
            attempts=attempts.made,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=cached,
            response_tokens=usage.response_tokens,
            cost=cost,
            unanswered_cost=most * attempts.lost,
            key=key,
            text=reply.text if key else "",
            model_version=reply.model_version if key else "",
        )
        seconds, outage_s = calls.end(turn.call, end)
        usage = usage.model_copy(update={"seconds": seconds, "cost": cost})
        return dataclasses.replace(reply, usage=usage, outage_s=outage_s)

    def ask(self, request: ModelRequest) -> tuple[ModelReply, bool]:
        """Returns the reply, also one that is no usable answer, and True if it was given before.

        No request is paid for twice, also not after a kill. Raises as `complete`.
        """
        key = content_key(self.name, request)
        with self._lock:
            key_lock = self._key_locks[key]
        # Two threads with the same request pay once; other requests do not wait.
        with key_lock:
            known = self._calls.reply(key)
            reply = self.complete(request, key) if known is None else _reply(known)
        with self._lock:
            self.asked += known is None
            self.hits += known is not None
        return reply, known is not None

    def reject(self, request: ModelRequest) -> None:
        """Lets a request be asked again whose reply could not be read."""
        self._calls.reject(content_key(self.name, request))

    @abc.abstractmethod
    def _answer(self, request: ModelRequest, calls: int) -> ModelReply:
        """Returns the answer to a request, for which at most so many HTTP requests are made.

        Raises:
          TransientError: none was answered.
          UserError: as `complete`.
        """


def content_key(name: str, request: ModelRequest) -> str:
    """Returns the SHA-256 of the model's name, the messages (images by their hash) and the schema."""
    messages = [message.model_dump(mode="json") for message in request.messages]
    asked: list[Any] = [name, messages, request.schema]
    if request.chat is not None:
        asked += [request.chat, request.repeat]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def _reply(line: Mapping[str, Any]) -> ModelReply:
    """Returns the reply that a line of `Calls` holds."""
    usage = CallUsage(
        **{name: line[name] for name in ("prompt_tokens", "response_tokens", "seconds", "cost")}
    )
    problem = "" if line["outcome"] == "ok" else line["outcome"]
    version = line.get("model_version", "")
    return ModelReply(line.get("text", ""), usage, problem, line["cached_tokens"], model_version=version)


def call_seed(*key: object) -> int:
    """Returns 31 bits from any values with a stable `str`; unlike `hash`, equal in every process."""
    digest = hashlib.sha256("\x1f".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
