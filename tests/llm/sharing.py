"""Helpers for tests of limits in several processes; without API libraries, so that they start quickly."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

from collection.llm.calls import BudgetError, Calls, CallsAddress, Limits, connect
from collection.llm.config import Prices
from collection.llm.model import Model, ModelReply, ModelRequest, attempts
from rmsweb_jax.records.schema import CallUsage, Message, TextPart

# 300 bytes: about 101 tokens before the model has counted 80.
REQUEST = ModelRequest((Message(role="user", content=(TextPart(text="x" * 300),)),), "judge", 1)
REPLY = ModelReply("yes", CallUsage(prompt_tokens=80, response_tokens=20))
PRICES = Prices(prompt=1000.0, response=1000.0, cached=100.0)
MOST = 0.2  # Of a call: 101 + 99 tokens.


class Clock:
    """A clock that advances only by sleeping."""

    def __init__(self, now: float = 1000.0):
        self.now, self.slept = now, []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@dataclasses.dataclass(frozen=True)
class _Config:
    model = "m"
    longest = 99
    calls = 5
    limits: Limits
    prices: Prices


class Script(Model):
    """A model that returns or raises the given items in order, the last one for ever."""

    def __init__(
        self,
        calls: Calls | None,
        *answers: ModelReply | BaseException,
        prices: Prices = PRICES,
        **limits: float,
    ):
        super().__init__(_Config(Limits(**limits), prices), calls)  # pyright: ignore
        self.answers, self.requests = list(answers), []

    @property
    def made(self) -> int:
        return len(self.requests)

    def _answer(self, request: ModelRequest, calls: int) -> ModelReply:
        self.requests.append(request)
        attempts.begin()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            # Others say that the request was sent; these, that it was answered.
            attempts.lost -= isinstance(answer, Exception) and not isinstance(answer, ConnectionError)
            raise answer
        attempts.lost -= 1
        return answer


class Dies(Script):
    """A model whose process is killed while it answers its last call."""

    def _answer(self, request: ModelRequest, calls: int) -> ModelReply:
        if len(self.answers) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._answer(request, calls)


def spend(address: CallsAddress, made: SimpleQueue[int], go_on: Any, cap: float) -> None:
    """Calls three times, and on until the cap stops it when it may."""
    model = Script(connect(address), REPLY, cap_usd=cap)
    try:
        while True:
            model.complete(REQUEST)
            if model.made == 3:
                go_on.wait()
    except BudgetError:
        made.put(model.made)


def die(address: CallsAddress, cap: float, last: int) -> None:
    """Is killed in its last call."""
    model = Dies(connect(address), *[REPLY] * last, cap_usd=cap)
    while True:
        model.complete(REQUEST)


if __name__ == "__main__":
    Dies(Calls(Path(sys.argv[1])), REPLY).complete(REQUEST)
