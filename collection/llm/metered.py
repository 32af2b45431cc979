"""What every model is called through: retries, rate limits, a money cap, and a ledger of all calls."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable

import tenacity

from collection.llm.ledger import Ledger, Settled
from collection.llm.model import Model, ModelReply, ModelRequest, Prices, TransientError
from rmsweb_jax.errors import UserError

_MAX_BACKOFF_S = 60.0
# A server that asks for more is not waited for.
MAX_TOLD_WAIT_S = 600.0
_POLL_S = 1.0
_LEASE_MARGIN_S = 60.0


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a run may use, over all its processes; zero is no limit.

    Attributes:
      requests_per_minute: repeated calls count again.
      tokens_per_minute: of prompts and responses.
      cap_usd: of the run, with the runs it resumes and whatever model was called.
    """

    requests_per_minute: float = 0.0
    tokens_per_minute: float = 0.0
    cap_usd: float = 0.0


@dataclasses.dataclass(frozen=True)
class Patience:
    """How long a call may take.

    Attributes:
      attempts: calls at most, before the run is stopped.
      first_wait_s: longest wait before the second; doubles each time, up to a minute. Waits are drawn
        at random below that, so that workers do not come back all at once.
      timeout_s: of one attempt; the model keeps it, here it says how long a killed call is waited for.
    """

    attempts: int = 5
    first_wait_s: float = 1.0
    timeout_s: float = 120.0


class NoAnswerError(UserError):
    """A call was given up after all its attempts; another one may be answered."""


class Metered:
    """A model within limits.

    Args:
      max_tokens: of a response, for the most that a call may cost.
      clock: Unix time in seconds, one for all processes of a run.
      sleep: waits so many seconds.
    """

    def __init__(
        self,
        model: Model,
        ledger: Ledger,
        limits: Limits,
        patience: Patience,
        prices: Prices,
        max_tokens: int,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ):
        if limits.cap_usd and not (prices.prompt and prices.response):
            raise UserError(
                "config.actor.cap_usd: a cap needs prices; set config.actor.price_prompt and price_response"
            )
        self._model, self._ledger, self._limits, self._patience = model, ledger, limits, patience
        self._prices, self._max_tokens, self._clock, self._sleep = prices, max_tokens, clock, sleep

    @property
    def name(self) -> str:
        return self._model.name

    def complete(self, request: ModelRequest) -> ModelReply:
        """The model's answer, with its cost.

        Raises:
          BudgetError: the cap leaves no room for the call.
          UserError: no answer after all attempts, or none to be had.
        """
        most = self._prices.cost(request.estimated_tokens, self._max_tokens)
        call = self._open(request, most)
        made = _Made(self._clock())
        try:
            reply = self._retrying(made)(self._attempt, request, call, made, most)
        except BaseException as error:
            self._settle_failed(call, made, most, error)
            if isinstance(error, TransientError):
                raise self._give_up(error, made.attempts) from error
            raise
        usage, now = reply.usage, self._clock()
        cost = self._prices.cost(usage.prompt_tokens, usage.response_tokens, reply.cached_tokens)
        settled = Settled(
            outcome=reply.problem or "ok",
            attempts=made.attempts,
            seconds=now - made.started,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=reply.cached_tokens,
            response_tokens=usage.response_tokens,
            cost=cost,
            unanswered_cost=made.unanswered_cost,
        )
        self._ledger.settle_call(call, settled, now)
        return dataclasses.replace(
            reply, usage=usage.model_copy(update={"seconds": settled.seconds, "cost": cost})
        )

    def _open(self, request: ModelRequest, most: float) -> int:
        """Enters the call, when needed after other calls are settled."""
        while True:
            call = self._ledger.open_call(
                request.purpose, self.name, most, self._limits.cap_usd, self._clock(), self._lease_s
            )
            if call is not None:
                return call
            self._sleep(_POLL_S)

    @property
    def _lease_s(self) -> float:
        return self._patience.timeout_s + _LEASE_MARGIN_S

    def _attempt(self, request: ModelRequest, call: int, made: _Made, most: float) -> ModelReply:
        tokens = request.estimated_tokens
        wait = self._take(tokens)
        if wait or made.attempts:
            self._ledger.extend_call(call, self._clock() + wait + self._lease_s)
        if wait:
            self._sleep(wait)
        made.attempts += 1
        made.in_flight = True
        try:
            reply = self._model.complete(request)
        except TransientError as error:
            made.in_flight = False
            made.unanswered_cost += most if error.billed else 0.0
            self._heed(error)
            raise
        except UserError:
            made.in_flight = False  # Refused, so not billed.
            raise
        made.in_flight = False
        used = reply.usage.prompt_tokens + reply.usage.response_tokens
        if self._limits.tokens_per_minute:
            self._ledger.give(
                self._bucket("tokens"), tokens - used, self._limits.tokens_per_minute, self._clock()
            )
        return reply

    def _take(self, tokens: int) -> float:
        """Seconds until the limits allow a call of so many tokens."""
        wants = (
            ("requests", 1.0, self._limits.requests_per_minute),
            ("tokens", float(tokens), self._limits.tokens_per_minute),
        )
        now = self._clock()
        waits = [
            self._ledger.take(self._bucket(kind), amount, per_minute, now)
            for kind, amount, per_minute in wants
            if per_minute
        ]
        return max(waits, default=0.0)

    def _heed(self, error: TransientError) -> None:
        """Lets the run's other processes wait too, as long as the server asked for."""
        if error.retry_after_s and error.retry_after_s <= MAX_TOLD_WAIT_S:
            for kind in ("requests", "tokens"):
                self._ledger.pause(self._bucket(kind), self._clock() + error.retry_after_s)

    def _bucket(self, kind: str) -> str:
        return f"{self.name} {kind}"

    def _retrying(self, made: _Made) -> tenacity.Retrying:
        backoff = tenacity.wait_random_exponential(multiplier=self._patience.first_wait_s, max=_MAX_BACKOFF_S)

        def wait(state: tenacity.RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            told = error.retry_after_s if isinstance(error, TransientError) else None
            if told is None:
                return backoff(state)
            # Never before the time told, and not all at it.
            return told + random.uniform(0.0, self._patience.first_wait_s)

        def is_worth_it(error: BaseException) -> bool:
            return isinstance(error, TransientError) and (error.retry_after_s or 0.0) <= MAX_TOLD_WAIT_S

        return tenacity.Retrying(
            retry=tenacity.retry_if_exception(is_worth_it),
            stop=tenacity.stop_after_attempt(self._patience.attempts),
            wait=wait,
            sleep=self._sleep,
            reraise=True,
        )

    def _settle_failed(self, call: int, made: _Made, most: float, error: BaseException) -> None:
        lost = made.unanswered_cost + (most if made.in_flight else 0.0)
        outcome = " ".join(f"{type(error).__name__}: {error}".split())
        now = self._clock()
        self._ledger.settle_call(
            call, Settled(outcome, made.attempts, now - made.started, unanswered_cost=lost), now
        )

    def _give_up(self, error: TransientError, attempts: int) -> UserError:
        reason = " ".join(str(error).split())
        if (error.retry_after_s or 0.0) > MAX_TOLD_WAIT_S:
            return UserError(
                f"{reason}: asks to wait {error.retry_after_s:.0f} s; run the same command again after that"
            )
        return NoAnswerError(
            f"{reason}: no answer after {attempts} calls; "
            "check that it is up, then run the same command again"
        )


@dataclasses.dataclass
class _Made:
    """What has come of a call so far."""

    started: float
    attempts: int = 0
    unanswered_cost: float = 0.0
    in_flight: bool = False
