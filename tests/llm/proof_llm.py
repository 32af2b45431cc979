"""What the wrapper makes of each answer that a model endpoint may give, as a table.

python -m tests.llm.proof_llm --output=docs/results/llm.md
"""

from __future__ import annotations

import argparse
import platform
import random
import sys
import warnings
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from rmsweb_jax.records.files import write_atomic
from tests.llm.answers import Case
from tests.llm.cases import all_cases
from tests.llm.playing import MAX_TOKENS, TIMEOUT_S, Played, play

INTRODUCTION = """\
# What the wrapper makes of a model endpoint's answers

    make proof-llm

runs `{command}`, which writes this page;
`tests/llm/test_responses.py` holds the same table in the test suite.

Each row is one call through the wrapper (`collection/llm/metered.py`) and the API's own client library,
google-genai {genai} or openai {openai}, to a local server that answers as the second column says: a request
with a system message, text, an image and the reply's JSON schema, without streaming, at most {tokens}
tokens, {timeout:.0f} s a call, 5 attempts. The clock is simulated, so waits are what the wrapper would have
waited; waits without a figure from the server are drawn at random below 1, 2, 4, 8 s. *Lost* are attempts
whose answer was lost on the way: they may be billed, and count against the cap at the most they may cost.

{held} of {count} rows are as expected (bounds in `tests/llm/gemini_cases.py` and `chat_cases.py`).
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    output: Path = parser.parse_args(arguments).output
    random.seed(0)
    warnings.filterwarnings("ignore", message="NEW_REASON")
    played = [(case, play(case)) for case in all_cases()]
    held = sum(one.fits(case) for case, one in played)
    lines = [
        INTRODUCTION.format(
            command=f"python -m tests.llm.proof_llm --output={output}",
            genai=metadata.version("google-genai"),
            openai=metadata.version("openai"),
            tokens=MAX_TOKENS,
            timeout=TIMEOUT_S,
            held=held,
            count=len(played),
        )
    ]
    for api, title in (("gemini", "Gemini API"), ("chat", "Chat completions")):
        lines.append(
            f"## {title}\n\n| case | sent | calls | waits, s | lost | what the wrapper did | holds |"
        )
        lines.append("|---|---|---|---|---|---|---|")
        lines += [_row(case, one) for case, one in played if case.api == api]
        lines.append("")
    lines.append(f"Python {platform.python_version()}.\n")
    write_atomic(output, "\n".join(lines).encode())
    print(f"{output}: {held} of {len(played)} as expected")
    sys.exit(held != len(played))


def _row(case: Case, played: Played) -> str:
    waits = ", ".join(f"{wait:.1f}" for wait in played.waits)
    cells = (case.name, case.sent, str(len(played.calls)), waits or "-", str(case.lost), _did(played))
    return f"| {' | '.join(cells)} | {'yes' if played.fits(case) else 'NO'} |"


def _did(played: Played) -> str:
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


if __name__ == "__main__":
    main()
