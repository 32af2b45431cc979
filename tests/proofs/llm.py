"""Handling of every kind of API response, through the client libraries. Seconds."""

from __future__ import annotations

import random
import warnings

from tests.llm.cases import all_cases
from tests.llm.playing import MAX_TOKENS, TIMEOUT_S, CallRun, play
from tests.proofs.result import Claim, Figures, Proof, main, table

APIS = {"gemini": "Gemini API", "chat": "Chat completions"}


def measure() -> Figures:
    random.seed(0)
    warnings.filterwarnings("ignore", message="NEW_REASON")
    cases = []
    for case in all_cases():
        played = play(case)
        cases.append(
            {
                "api": case.api,
                "case": case.name,
                "sent": case.sent,
                "calls": len(played.calls),
                "waits": [round(wait, 1) for wait in played.waits],
                "lost": case.lost,
                "outcome": _outcome(played),
                "holds": played.fits(case),
            }
        )
    return {"max_tokens": MAX_TOKENS, "timeout_s": TIMEOUT_S, "cases": cases}


def _outcome(played: CallRun) -> str:
    if played.error is not None:
        # The server's port differs from run to run.
        line = str(played.error).replace(played.url, "URL")
        return f"ended the run, exit code {played.error.exit_code}: {line}"
    assert played.reply is not None
    text = f"`{played.reply.text}`" if played.reply.text.strip() else "no text"
    return (
        f"a reply with a problem: {played.reply.problem}; {text}"
        if played.reply.problem
        else f"answer {text}"
    )


def claims(figures: Figures) -> list[Claim]:
    held, count = sum(case["holds"] for case in figures["cases"]), len(figures["cases"])
    return [Claim("every kind of API response is handled as expected", f"{held} of {count}", held == count)]


def tables(figures: Figures) -> str:
    head = ("case", "sent", "calls", "waits, s", "lost", "what the wrapper did", "holds")
    parts = []
    for api, title in APIS.items():
        rows = [
            (
                *(case[name] for name in ("case", "sent", "calls")),
                ", ".join(map(str, case["waits"])) or "-",
                *(case["lost"], case["outcome"], "yes" if case["holds"] else "NO"),
            )
            for case in figures["cases"]
            if case["api"] == api
        ]
        parts += [f"## {title}", table(head, rows)]
    return "\n\n".join(parts)


ABOUT = """\
Each row is one call through the wrapper (`collection/llm/metered.py`) and the API's own client library to a
local server that answers as the second column says: a request with a system message, text, an image and the
reply's JSON schema, without streaming, at most {max_tokens} tokens, {timeout_s:.0f} s a call, 5 attempts.
The clock is simulated, so waits are what the wrapper would have waited; waits without a figure from the
server are drawn at random below 1, 2, 4, 8 s. A call that is refused for a parameter is repeated at once
without it, as part of the same attempt. *Lost* are attempts whose answer was lost: they may be
billed, and count against the cap at the most they may cost. `tests/llm/test_responses.py` holds the same
cases in the test suite.
"""
PROOF = Proof(
    "Handling of model API responses",
    ABOUT,
    measure,
    claims,
    tables,
    packages=("google-genai", "openai"),
)

if __name__ == "__main__":
    main(PROOF)
