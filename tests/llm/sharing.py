"""Helpers for tests of limits in several processes; without API libraries, so that they start quickly."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.queues import SimpleQueue
from pathlib import Path

from collection.llm.ledger import CallLedger
from collection.llm.ledger_server import LedgerAddress, RemoteLedger
from collection.llm.metered import MeteredModel, RetryPolicy, UsageLimits
from collection.llm.model import BudgetError, Model, ModelReply, ModelRequest
from collection.llm.prices import Prices
from rmsweb_jax.records.schema import CallUsage, Message, TextPart

# 300 bytes: about 101 tokens before the model has counted 80.
REQUEST = ModelRequest((Message(role="user", content=(TextPart(text="x" * 300),)),), "judge", 1)
REPLY = ModelReply("yes", CallUsage(prompt_tokens=80, response_tokens=20))
PRICES = Prices(prompt=1000.0, response=1000.0, cached=100.0)
MAX_TOKENS = 99
MOST = 0.2  # Of a call: 101 + 99 tokens.


class Clock:
    """A Unix clock that advances only by sleeping."""

    def __init__(self, now: float = 1e9):
        self.now, self.slept = now, []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Script:
    """A model that returns or raises the given items in order, the last one for ever."""

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
    ledger: CallLedger,
    clock: Clock,
    limits: UsageLimits | None = None,
    prices: Prices = PRICES,
    attempts: int = 5,
) -> MeteredModel:
    retries = RetryPolicy(attempts=attempts)
    return MeteredModel(
        model, ledger, limits or UsageLimits(), retries, prices, MAX_TOKENS, clock, clock.sleep
    )


def spend(where: Path | LedgerAddress, calls: SimpleQueue[int], cap: float) -> None:
    """Calls until the cap stops it. The clock is real, so that other processes' calls do not seem dead."""
    soon: Callable[[float], None] = lambda _: time.sleep(0.001)  # noqa: E731
    limits, retries = UsageLimits(cap_usd=cap), RetryPolicy()
    ledger = RemoteLedger(where) if isinstance(where, LedgerAddress) else CallLedger(where)
    model = MeteredModel(Script(REPLY), ledger, limits, retries, PRICES, MAX_TOKENS, time.time, soon)
    made = 0
    try:
        while True:
            model.complete(REQUEST)
            made += 1
    except BudgetError:
        calls.put(made)


def take(path: Path, waits: SimpleQueue[float], count: int) -> None:
    """Takes one of 60 requests a minute, `count` times at the same moment."""
    ledger = CallLedger(path)
    for _ in range(count):
        waits.put(ledger.take("m requests", 1.0, 60.0, 1e9))


class _Killed:
    name = "m"

    def complete(self, request: ModelRequest) -> ModelReply:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


if __name__ == "__main__":
    metered(_Killed(), CallLedger(Path(sys.argv[1])), Clock()).complete(REQUEST)
