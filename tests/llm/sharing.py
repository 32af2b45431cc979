"""What limits are tested with, also in processes of their own: no API library, so they start quickly."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.queues import SimpleQueue
from pathlib import Path

from collection.llm.ledger import Ledger
from collection.llm.metered import Limits, Metered, Patience
from collection.llm.model import BudgetError, Model, ModelReply, ModelRequest, Prices
from rmsweb_jax.records.schema import CallUsage, Message, TextPart

# 300 bytes: about 101 tokens before the model has counted 80.
REQUEST = ModelRequest((Message(role="user", content=(TextPart(text="x" * 300),)),), "judge", 1)
REPLY = ModelReply("yes", CallUsage(prompt_tokens=80, response_tokens=20))
PRICES = Prices(prompt=1000.0, response=1000.0, cached=100.0)
MAX_TOKENS = 99
MOST = 0.2  # Of a call: 101 + 99 tokens.


class Clock:
    """Unix time that passes by sleeping only."""

    def __init__(self, now: float = 1e9):
        self.now, self.slept = now, []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Script:
    """Answers, or raises, what it is given in order; the last for ever."""

    name = "m"

    def __init__(self, *answers: ModelReply | BaseException):
        self.answers, self.calls = list(answers), 0

    def complete(self, request: ModelRequest) -> ModelReply:
        self.calls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


def metered(
    model: Model,
    ledger: Ledger,
    clock: Clock,
    limits: Limits | None = None,
    prices: Prices = PRICES,
    attempts: int = 5,
) -> Metered:
    patience = Patience(attempts=attempts)
    return Metered(model, ledger, limits or Limits(), patience, prices, MAX_TOKENS, clock, clock.sleep)


def spend(path: Path, calls: SimpleQueue[int], cap: float) -> None:
    """Calls until the cap ends it. The clock is real: another process's call is not to seem dead."""
    soon: Callable[[float], None] = lambda _: time.sleep(0.001)  # noqa: E731
    limits, patience = Limits(cap_usd=cap), Patience()
    model = Metered(Script(REPLY), Ledger(path), limits, patience, PRICES, MAX_TOKENS, time.time, soon)
    made = 0
    try:
        while True:
            model.complete(REQUEST)
            made += 1
    except BudgetError:
        calls.put(made)


def take(path: Path, waits: SimpleQueue[float], count: int) -> None:
    """Asks for one of 60 requests a minute, `count` times at the same moment."""
    ledger = Ledger(path)
    for _ in range(count):
        waits.put(ledger.take("m requests", 1.0, 60.0, 1e9))


class _Killed:
    name = "m"

    def complete(self, request: ModelRequest) -> ModelReply:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


if __name__ == "__main__":
    metered(_Killed(), Ledger(Path(sys.argv[1])), Clock()).complete(REQUEST)
