"""Runs a case with the real client library, the wrapper, and a clock that does not really wait."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from collection.llm.chat import ChatModel
from collection.llm.gemini import GeminiModel
from collection.llm.ledger import CallLedger
from collection.llm.metered import MeteredModel, RetryPolicy, UsageLimits
from collection.llm.model import ModelReply, ModelRequest
from collection.llm.prices import Prices
from rmsweb_jax.actions.json_schema import reply_schema
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import ImagePart, Message, TextPart
from tests.llm.answers import Case
from tests.llm.server import Call, ModelServer
from tests.llm.sharing import Clock

PNG = b"not really a png"
PRICES = Prices(prompt=2.0, response=10.0)
MAX_TOKENS = 64
# For a server on loopback that answers at once; only silence takes so long, also on a busy machine.
TIMEOUT_S = 2.0


class Images:
    def get(self, sha256: str) -> bytes:
        assert sha256 == "ab"
        return PNG


REQUEST = ModelRequest(
    messages=(
        Message(role="system", content=(TextPart(text="Be short."),)),
        Message(role="user", content=(TextPart(text="Look:"), ImagePart(sha256="ab"))),
    ),
    purpose="reply",
    seed=7,
    images=Images(),
    schema=reply_schema(),
)


@dataclasses.dataclass(frozen=True)
class CallRun:
    """Result of a case.

    Attributes:
      url: the server's.
      totals: the ledger's row for the call.
    """

    url: str
    calls: list[Call]
    waits: list[float]
    reply: ModelReply | None
    error: UserError | None
    totals: dict[str, float]

    def fits(self, case: Case) -> bool:
        """True if the wrapper did what the case says."""
        within = len(self.waits) == len(case.waits) and all(
            low <= wait <= high for wait, (low, high) in zip(self.waits, case.waits, strict=True)
        )
        if case.text is None:
            as_expected = self.reply is None and self.error is not None and case.problem in str(self.error)
        else:
            as_expected = (
                self.reply is not None and self.reply.text == case.text and self._reports(case.problem)
            )
        most = PRICES.cost(REQUEST.estimated_tokens, MAX_TOKENS)
        lost = abs(self.totals["unanswered_cost_usd"] - case.lost * most) < 1e-12
        attempts = self.totals["attempts"] + case.refused
        return len(self.calls) == case.calls == attempts and within and as_expected and lost

    def _reports(self, problem: str) -> bool:
        said = self.reply.problem if self.reply else ""
        return said.startswith(problem) if problem else not said


def play(case: Case, ledger: Path | None = None) -> CallRun:
    """Makes one call through the wrapper to a server that answers as the case says."""
    with ModelServer(case.answers) as server:
        if case.api == "gemini":
            model = GeminiModel("key", "gem", 1.0, MAX_TOKENS, TIMEOUT_S, "schema", server.url)
        else:
            model = ChatModel(f"{server.url}/v1", "gem", "", "key", 1.0, MAX_TOKENS, TIMEOUT_S, "schema")
        clock, kept = Clock(), CallLedger(ledger)
        retries = RetryPolicy(attempts=5, timeout_s=TIMEOUT_S)
        metered = MeteredModel(model, kept, UsageLimits(), retries, PRICES, MAX_TOKENS, clock, clock.sleep)
        reply = error = None
        try:
            reply = metered.complete(REQUEST)
        except UserError as raised:
            error = raised
        totals = kept.totals()["reply"]
        kept.close()
        return CallRun(server.url, server.calls, clock.slept, reply, error, totals)
