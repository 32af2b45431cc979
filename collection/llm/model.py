"""One model call, whatever it is for: what is asked, what comes back, what can go wrong."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, Protocol

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import CallUsage, ImagePart, Message

# What a call is for; costs are told apart by it.
Purpose = Literal["reply", "reflect", "extract", "judge", "task"]
# Providers count images differently; 1,024 is near what most take for a 1280x1100 screenshot.
IMAGE_TOKENS = 1024
_BYTES_PER_TOKEN = 3


class ImageSource(Protocol):
    """Where the screenshots named in messages are kept (`rmsweb_jax.records.images.ImageStore`)."""

    def get(self, sha256: str) -> bytes: ...


@dataclasses.dataclass(frozen=True)
class ModelRequest:
    """One call.

    Attributes:
      messages: the chat.
      images: resolves the messages' screenshots; None where they have none.
      seed: 31 bits; the same call is answered the same way by models that can.
      schema: JSON schema that the answer is to follow; None asks for prose. A model that cannot be held
        to it answers as the messages ask.
    """

    messages: tuple[Message, ...]
    purpose: Purpose
    seed: int
    images: ImageSource | None = None
    schema: dict[str, Any] | None = None

    @property
    def estimated_tokens(self) -> int:
        """About how long the prompt is; said before the model has counted it."""
        images = sum(isinstance(part, ImagePart) for message in self.messages for part in message.content)
        text = sum(len(message.text.encode(errors="replace")) for message in self.messages)
        return images * IMAGE_TOKENS + text // _BYTES_PER_TOKEN + 1


@dataclasses.dataclass(frozen=True)
class ModelReply:
    """What a model answered.

    Attributes:
      text: as it came; empty, or the beginning of an answer, where there is a problem.
      problem: why it is no proper answer (blocked, cut off, empty), one line; empty when it is one.
      cached_tokens: those of the prompt's tokens that were billed as cached.
    """

    text: str
    usage: CallUsage = dataclasses.field(default_factory=CallUsage)
    problem: str = ""
    cached_tokens: int = 0


class Model(Protocol):
    """Answers chats.

    `complete` raises `TransientError` when the same call may work if made again, and `UserError` when no
    call will: a refused key, an exhausted quota, a wrong address.
    """

    @property
    def name(self) -> str: ...

    def complete(self, request: ModelRequest) -> ModelReply: ...


class TransientError(Exception):
    """A call that may work if made again.

    Attributes:
      retry_after_s: the server's own wish, if it told one.
      billed: the answer was lost on the way, so the call may have been paid for.
    """

    def __init__(self, message: str, retry_after_s: float | None = None, billed: bool = False):
        super().__init__(message)
        self.retry_after_s, self.billed = retry_after_s, billed


class BudgetError(UserError):
    """The run has spent what it may."""

    exit_code = 4


@dataclasses.dataclass(frozen=True)
class Prices:
    """US dollars for a million tokens; zero when unknown.

    Attributes:
      cached: of prompt tokens read from the provider's cache; zero: as other prompt tokens.
      response: thinking included.
    """

    prompt: float = 0.0
    response: float = 0.0
    cached: float = 0.0

    def cost(self, prompt_tokens: int, response_tokens: int, cached_tokens: int = 0) -> float:
        """In US dollars; `cached_tokens` are among the prompt's."""
        cached = (self.cached or self.prompt) * cached_tokens
        return (
            (prompt_tokens - cached_tokens) * self.prompt + cached + response_tokens * self.response
        ) / 1e6
