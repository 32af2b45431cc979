"""Runs a case with the real client library and a clock that does not really wait."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest

from collection.llm.build import make_model
from collection.llm.calls import Calls
from collection.llm.config import ModelConfig, Prices
from collection.llm.model import ModelReply, ModelRequest
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
      totals: sums of the call.
    """

    calls: list[Call]
    waits: list[float]
    reply: ModelReply | None
    error: UserError | None
    totals: dict[str, float]

    def fits(self, case: Case) -> bool:
        """True if the model did what the case says."""
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
        return len(self.calls) == case.calls == self.totals["attempts"] and within and as_expected and lost

    def _reports(self, problem: str) -> bool:
        said = self.reply.problem if self.reply else ""
        return said.startswith(problem) if problem else not said


def play(case: Case, file: Path | None = None) -> CallRun:
    """Makes one call to a server that answers as the case says; the libraries' waits take no time."""
    clock = Clock()
    with ModelServer(case.answers) as server, pytest.MonkeyPatch.context() as patch, Calls(file) as calls:
        patch.setenv("GEMINI_API_KEY", "key")
        config = ModelConfig(
            kind=case.api,
            model="gem",
            base_url=server.url + ("/v1" if case.api == "chat" else ""),
            api_key_env="GEMINI_API_KEY",
            max_tokens=MAX_TOKENS,
            timeout_s=TIMEOUT_S if any(one.silent for one in case.answers) else 60.0,
            structured="schema",
            price=(PRICES.prompt, 0.0, PRICES.response),
        )
        model = make_model(config, calls)
        patch.setattr(time, "sleep", clock.sleep)
        reply = error = None
        try:
            reply = model.complete(REQUEST)
        except UserError as raised:
            error = raised
        return CallRun(server.calls, clock.slept, reply, error, calls.totals()["reply"])
