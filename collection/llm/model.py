"""The model interface: one chat request in, one reply out, for any purpose."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import CallUsage, ImagePart, Message, SampledTokens

# The call ledger reports costs by purpose.
Purpose = Literal["reply", "reflect", "extract", "judge", "task", "check"]
# How a reply follows its JSON schema: by the endpoint's decoder, as any JSON, or by the prompt alone.
Structured = Literal["schema", "json", "off"]
# How much a model thinks before it answers; `auto` leaves that to the model. Models know some of the others.
ReasoningEffort = Literal["auto", "none", "minimal", "low", "medium", "high", "xhigh", "max"]
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


class Model(Protocol):
    """A chat model.

    `complete` raises `TransientError` if a retry of the same call may succeed, and `UserError` if no
    retry can: a refused key, an exhausted quota, a wrong address.
    """

    @property
    def name(self) -> str: ...

    def complete(self, request: ModelRequest) -> ModelReply: ...


class TransientError(Exception):
    """A failed call that may succeed on retry.

    Attributes:
      retry_after_s: the delay that the server asked for, if any.
      billed: the answer was lost on the way, so the call may have been charged.
    """

    def __init__(self, message: str, retry_after_s: float | None = None, billed: bool = False):
        super().__init__(message)
        self.retry_after_s, self.billed = retry_after_s, billed


class BudgetError(UserError):
    """The run has used up its budget."""

    exit_code = 4


def call_seed(*key: object) -> int:
    """Returns 31 bits from any values with a stable `str`; unlike `hash`, equal in every process."""
    digest = hashlib.sha256("\x1f".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
