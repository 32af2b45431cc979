"""Model wrapper with retries, rate limits, a spending cap and a ledger of all calls."""

from __future__ import annotations

import dataclasses
import random
import sys
import time
from collections.abc import Callable

import tenacity

from collection.llm.ledger import CallLedger, CallOutcome
from collection.llm.ledger_server import RemoteLedger
from collection.llm.model import Model, ModelReply, ModelRequest, TransientError
from collection.llm.prices import Prices
from rmsweb_jax.errors import UserError

_MAX_BACKOFF_S = 60.0
_MAX_PROBE_WAIT_S = 60.0
# Waits grow with the outage: a short one is not followed by a wait as long as itself.
_PROBE_SHARE = 0.25
# Waiting calls look this often if the outage is over.
_LOOK_S = 15.0
# A call that has failed so often, while others were answered between its failures, is itself at fault.
_MAX_OUTAGES = 3
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
      attempts: maximum number of attempts before an outage begins, or the run stops.
      first_wait_s: upper bound of the wait before the second attempt; it doubles each time, up to a minute.
        Waits are random below the bound, so that the workers do not retry all at once.
      timeout_s: timeout of one attempt. The model enforces it; here it determines when an open call counts
        as abandoned by a killed process.
      outage_s: time that the run waits for a model that has stopped to answer. All calls of the run wait; one
        at a time is made to see if it answers again: after `first_wait_s`, then each time after a quarter
        of the time that the outage has lasted, at most a minute, or as the server asks. 0 does not wait.
    """

    attempts: int = 5
    first_wait_s: float = 1.0
    timeout_s: float = 120.0
    outage_s: float = 0.0


class NoAnswerError(UserError):
    """All attempts of a call failed; another call may succeed."""


class MeteredModel:
    """A model with limits.

    Args:
      max_tokens: maximum length of a response, for the maximum cost of a call.
      clock: returns seconds since an epoch that all processes of a run share; None is the ledger's.
      sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        model: Model,
        ledger: CallLedger | RemoteLedger,
        limits: UsageLimits,
        retries: RetryPolicy,
        prices: Prices,
        max_tokens: int,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._model, self._ledger, self._limits, self._retries = model, ledger, limits, retries
        self._prices, self._max_tokens, self._sleep = prices, max_tokens, sleep
        self._clock = clock or ledger.now

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
            reply = self._answer(request, call, progress, max_cost)
        except BaseException as error:
            self._settle_failed(call, progress, max_cost, error)
            if isinstance(error, TransientError):
                raise self._final_error(error, progress) from error
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
            reply,
            usage=usage.model_copy(update={"seconds": outcome.seconds, "cost": cost}),
            outage_s=progress.attempted - progress.started if progress.outages else 0.0,
        )

    def _answer(
        self, request: ModelRequest, call: int, progress: _CallProgress, max_cost: float
    ) -> ModelReply:
        """Makes a call with retries, and again after an outage of the model."""
        while True:
            reply = self._wait_for_model(request, call, progress, max_cost)
            if reply is not None:
                return reply
            try:
                return self._retrying()(self._attempt, request, call, progress, max_cost)
            except TransientError as error:
                if not self._retries.outage_s or not _is_retryable(error) or progress.outages >= _MAX_OUTAGES:
                    raise
                progress.outages += 1
                now = self._clock()
                if self._ledger.begin_outage(self.name, now, now + self._probe_wait(error, 0.0)):
                    hours = self._retries.outage_s / 3600
                    self._report(f"{error}; all calls wait until it answers, for at most {hours:g} hours")

    def _wait_for_model(
        self, request: ModelRequest, call: int, progress: _CallProgress, max_cost: float
    ) -> ModelReply | None:
        """Waits while the model does not answer.

        Returns:
          The answer, if this call was the one that found that the model answers again; else None.

        Raises:
          TransientError: the outage has lasted for too long.
        """
        while self._retries.outage_s and (outage := self._ledger.outage(self.name)) is not None:
            progress.outages = max(1, progress.outages)
            now = self._clock()
            if now < outage.probe_at:
                wait = min(outage.probe_at - now, _LOOK_S)
                self._ledger.extend_call(call, now + wait + self._lease_s)
                self._sleep(wait)
            elif self._ledger.claim_probe(self.name, now, self._lease_s):
                try:
                    reply = self._attempt(request, call, progress, max_cost)
                except TransientError as error:
                    now = self._clock()
                    if not _is_retryable(error) or now - outage.since >= self._retries.outage_s:
                        raise
                    self._ledger.postpone_probe(self.name, now + self._probe_wait(error, now - outage.since))
                    continue
                except UserError:
                    self._ledger.end_outage(self.name)  # A refusal is an answer.
                    raise
                self._ledger.end_outage(self.name)
                minutes = (self._clock() - outage.since) / 60
                self._report(f"{self.name}: answers again after {minutes:.1f} minutes; the calls go on")
                return reply
        return None

    def _probe_wait(self, error: TransientError, lasted: float) -> float:
        if error.retry_after_s:
            return error.retry_after_s
        return min(max(self._retries.first_wait_s, _PROBE_SHARE * lasted), _MAX_PROBE_WAIT_S)

    def _report(self, line: str) -> None:
        print(" ".join(line.split()), file=sys.stderr, flush=True)

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
        progress.attempted = self._clock()
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

        return tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_retryable),
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

    def _final_error(self, error: TransientError, progress: _CallProgress) -> UserError:
        reason = " ".join(str(error).split())
        if (error.retry_after_s or 0.0) > MAX_RETRY_AFTER_S:
            return UserError(
                f"{reason}: asks to wait {error.retry_after_s:.0f} s; run the same command again after that"
            )
        minutes = (self._clock() - progress.started) / 60
        duration = f" in {minutes:.0f} minutes" if progress.outages else ""
        return NoAnswerError(
            f"{reason}: no answer after {progress.attempts} calls{duration}; "
            "check that it is up, then run the same command again"
        )


def _is_retryable(error: BaseException) -> bool:
    return isinstance(error, TransientError) and (error.retry_after_s or 0.0) <= MAX_RETRY_AFTER_S


@dataclasses.dataclass
class _CallProgress:
    """State of a call that is being made.

    Attributes:
      attempted: time of the last attempt.
      outages: number of outages that it has met.
    """

    started: float
    attempted: float = 0.0
    attempts: int = 0
    outages: int = 0
    unanswered_cost: float = 0.0
    in_flight: bool = False
