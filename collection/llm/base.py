"""What answers for the agent: one interface for API models, our policy server and the scripted teacher."""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections.abc import Callable
from typing import Protocol, TypeVar

import tenacity

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import CallUsage, Message

_T = TypeVar("_T")
_MAX_WAIT_S = 60.0


class ImageSource(Protocol):
    """Where the screenshots named in messages are kept (`rmsweb_jax.records.images.ImageStore`)."""

    def get(self, sha256: str) -> bytes: ...


@dataclasses.dataclass(frozen=True)
class TeacherRequest:
    """One decision to make.

    Attributes:
      task_id, attempt, step: which decision; every random choice is seeded by them, so that runs
        repeat whatever the order and the number of workers.
      messages: the live chat, with guidance where there is any.
      images: resolves the messages' screenshots.
    """

    task_id: str
    attempt: int
    step: int
    messages: tuple[Message, ...]
    images: ImageSource


@dataclasses.dataclass(frozen=True)
class ReflectionRequest:
    """A finished round to learn from.

    Attributes:
      summary: one line a step (`collection.reflect.summarize`).
      outcome: how the round ended, in words.
      guidance: what the round was told; empty in the first.
    """

    task_id: str
    attempt: int
    objective: str
    summary: str
    outcome: str
    guidance: str


@dataclasses.dataclass(frozen=True)
class TeacherReply:
    text: str
    usage: CallUsage = dataclasses.field(default_factory=CallUsage)


class Teacher(Protocol):
    """Decides steps and reflects on rounds.

    Both calls raise `UserError` when nothing can be answered: a refused key, an exhausted quota, an
    endpoint that stays down.
    """

    @property
    def name(self) -> str:
        """The model or program, as written to `Trajectory.model`."""
        ...

    def reply(self, request: TeacherRequest) -> TeacherReply: ...

    def reflect(self, request: ReflectionRequest) -> TeacherReply: ...


@dataclasses.dataclass(frozen=True)
class Prices:
    """US dollars for a million tokens; zero when unknown."""

    prompt: float = 0.0
    response: float = 0.0

    def cost(self, prompt_tokens: int, response_tokens: int) -> float:
        return (prompt_tokens * self.prompt + response_tokens * self.response) / 1e6


class TransientError(Exception):
    """A call that may work if made again; `retry_after_s` is the server's own wish, if it told one."""

    def __init__(self, message: str, retry_after_s: float | None = None):
        super().__init__(message)
        self.retry_after_s = retry_after_s


def with_retries(call: Callable[[], _T], endpoint: str, attempts: int = 5, first_wait_s: float = 1.0) -> _T:
    """Calls until it works, waiting with exponential backoff and jitter after each `TransientError`.

    Args:
      endpoint: named in the error.
      attempts: calls at most.
      first_wait_s: longest wait before the second call; doubles each time, up to a minute.

    Raises:
      UserError: still failing after the last attempt.
    """
    backoff = tenacity.wait_random_exponential(multiplier=first_wait_s, max=_MAX_WAIT_S)

    def wait(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        wished = error.retry_after_s if isinstance(error, TransientError) else None
        return backoff(state) if wished is None else min(wished, _MAX_WAIT_S)

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(TransientError),
        stop=tenacity.stop_after_attempt(attempts),
        wait=wait,
        reraise=True,
    )
    try:
        return retrying(call)
    except TransientError as error:
        raise UserError(
            f"{endpoint}: no answer after {attempts} calls ({' '.join(str(error).split())}); "
            "check that it is up, then run the same command again"
        ) from error


def call_seed(*key: object) -> int:
    """31 bits from anything with a stable `str`; equal in every process, unlike `hash`."""
    digest = hashlib.sha256("\x1f".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def seeded(*key: object) -> random.Random:
    """A random generator of its own for `key`."""
    return random.Random(call_seed(*key))
