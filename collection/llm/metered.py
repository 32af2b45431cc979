"""Model wrapper with retries, rate limits, a spending cap and a ledger of all calls."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable

import tenacity

from collection.llm.ledger import CallLedger, CallOutcome
from collection.llm.model import Model, ModelReply, ModelRequest, TransientError
from collection.llm.prices import Prices
from rmsweb_jax.errors import UserError

_MAX_BACKOFF_S = 60.0
# If a server asks for a longer wait, the run stops instead of waiting.
MAX_RETRY_AFTER_S = 600.0
# Interval at which a call that does not fit under the cap checks if other open calls have been settled.
_POLL_S = 1.0
# Time beyond an attempt's own timeout before its process counts as dead: a busy machine may be late.
_LEASE_MARGIN_S = 60.0


@dataclasses.dataclass(frozen=True)
class UsageLimits:
    """Limits of a run over all its processes; zero means no limit.

    Attributes:
      requests_per_minute: counts retries as well.
      tokens_per_minute: counts prompts and responses.
      cap_usd: total over all models, including the runs that this one resumes.
    """

    requests_per_minute: float = 0.0
    tokens_per_minute: float = 0.0
    cap_usd: float = 0.0


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    """Retry settings of a call.

    Attributes:
      attempts: maximum number of attempts before the run stops.
      first_wait_s: upper bound of the wait before the second attempt; it doubles each time, up to a minute.
        Waits are random below the bound, so that the workers do not retry all at once.
      timeout_s: timeout of one attempt. The model enforces it; here it determines when an open call counts
        as abandoned by a killed process.
    """

    attempts: int = 5
    first_wait_s: float = 1.0
    timeout_s: float = 120.0


class NoAnswerError(UserError):
    """All attempts of a call failed; another call may succeed."""


class MeteredModel:
    """A model with limits.

    Args:
      max_tokens: maximum length of a response, for the maximum cost of a call.
      clock: returns Unix time in seconds; all processes of a run share it.
      sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        model: Model,
        ledger: CallLedger,
        limits: UsageLimits,
        retries: RetryPolicy,
        prices: Prices,
        max_tokens: int,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._model, self._ledger, self._limits, self._retries = model, ledger, limits, retries
        self._prices, self._max_tokens, self._clock, self._sleep = prices, max_tokens, clock, sleep

    @property
    def name(self) -> str:
        return self._model.name

    def complete(self, request: ModelRequest) -> ModelReply:
        """Returns the model's answer with its cost.

        Raises:
          BudgetError: the call could exceed the cap.
          UserError: the model refused, or all attempts failed.
        """
        max_cost = self._prices.cost(request.estimated_tokens, self._max_tokens)
        call = self._open(request, max_cost)
        progress = _CallProgress(self._clock())
        try:
            reply = self._retrying()(self._attempt, request, call, progress, max_cost)
        except BaseException as error:
            self._settle_failed(call, progress, max_cost, error)
            if isinstance(error, TransientError):
                raise self._final_error(error, progress.attempts) from error
            raise
        usage, now = reply.usage, self._clock()
        cost = self._prices.cost(usage.prompt_tokens, usage.response_tokens, reply.cached_tokens)
        outcome = CallOutcome(
            outcome=reply.problem or "ok",
            attempts=progress.attempts,
            seconds=now - progress.started,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=reply.cached_tokens,
            response_tokens=usage.response_tokens,
            cost=cost,
            unanswered_cost=progress.unanswered_cost,
        )
        self._ledger.settle_call(call, outcome, now)
        return dataclasses.replace(
            reply, usage=usage.model_copy(update={"seconds": outcome.seconds, "cost": cost})
        )

    def _open(self, request: ModelRequest, max_cost: float) -> int:
        """Enters the call in the ledger; waits while other open calls may use up the cap."""
        while True:
            call = self._ledger.open_call(
                request.purpose, self.name, max_cost, self._limits.cap_usd, self._clock(), self._lease_s
            )
            if call is not None:
                return call
            self._sleep(_POLL_S)

    @property
    def _lease_s(self) -> float:
        return self._retries.timeout_s + _LEASE_MARGIN_S

    def _attempt(
        self, request: ModelRequest, call: int, progress: _CallProgress, max_cost: float
    ) -> ModelReply:
        tokens = request.estimated_tokens
        wait = self._take(tokens)
        if wait or progress.attempts:
            # Waiting must not let the lease expire, or the cap would count this call as abandoned.
            self._ledger.extend_call(call, self._clock() + wait + self._lease_s)
        if wait:
            self._sleep(wait)
        progress.attempts += 1
        progress.in_flight = True
        try:
            reply = self._model.complete(request)
        except TransientError as error:
            progress.in_flight = False
            progress.unanswered_cost += max_cost if error.billed else 0.0
            self._pause_all(error)
            raise
        except UserError:
            progress.in_flight = False  # A refused call is not billed.
            raise
        progress.in_flight = False
        # The bucket was charged with an estimate of the prompt; correct it to the real usage.
        used = reply.usage.prompt_tokens + reply.usage.response_tokens
        if self._limits.tokens_per_minute:
            self._ledger.give(
                self._bucket("tokens"), tokens - used, self._limits.tokens_per_minute, self._clock()
            )
        return reply

    def _take(self, tokens: int) -> float:
        """Takes a call of so many tokens from the buckets; returns the seconds until it may be made."""
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

    def _pause_all(self, error: TransientError) -> None:
        """Makes all processes of the run wait as long as the server asked for."""
        if error.retry_after_s and error.retry_after_s <= MAX_RETRY_AFTER_S:
            for kind in ("requests", "tokens"):
                self._ledger.pause(self._bucket(kind), self._clock() + error.retry_after_s)

    def _bucket(self, kind: str) -> str:
        return f"{self.name} {kind}"

    def _retrying(self) -> tenacity.Retrying:
        backoff = tenacity.wait_random_exponential(multiplier=self._retries.first_wait_s, max=_MAX_BACKOFF_S)

        def wait(state: tenacity.RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            delay = error.retry_after_s if isinstance(error, TransientError) else None
            if delay is None:
                return backoff(state)
            # Jitter above the server's delay, so that the workers do not all retry at the same moment.
            return delay + random.uniform(0.0, self._retries.first_wait_s)

        def is_retryable(error: BaseException) -> bool:
            return isinstance(error, TransientError) and (error.retry_after_s or 0.0) <= MAX_RETRY_AFTER_S

        return tenacity.Retrying(
            retry=tenacity.retry_if_exception(is_retryable),
            stop=tenacity.stop_after_attempt(self._retries.attempts),
            wait=wait,
            sleep=self._sleep,
            reraise=True,
        )

    def _settle_failed(
        self, call: int, progress: _CallProgress, max_cost: float, error: BaseException
    ) -> None:
        # An interrupted attempt may have been answered and charged.
        lost = progress.unanswered_cost + (max_cost if progress.in_flight else 0.0)
        outcome = " ".join(f"{type(error).__name__}: {error}".split())
        now = self._clock()
        self._ledger.settle_call(
            call, CallOutcome(outcome, progress.attempts, now - progress.started, unanswered_cost=lost), now
        )

    def _final_error(self, error: TransientError, attempts: int) -> UserError:
        reason = " ".join(str(error).split())
        if (error.retry_after_s or 0.0) > MAX_RETRY_AFTER_S:
            return UserError(
                f"{reason}: asks to wait {error.retry_after_s:.0f} s; run the same command again after that"
            )
        return NoAnswerError(
            f"{reason}: no answer after {attempts} calls; "
            "check that it is up, then run the same command again"
        )


@dataclasses.dataclass
class _CallProgress:
    """State of a call that is being made."""

    started: float
    attempts: int = 0
    unanswered_cost: float = 0.0
    in_flight: bool = False
