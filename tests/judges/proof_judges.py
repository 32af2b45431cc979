"""What the judges make of words that judges write or may write, as a table.

python -m tests.judges.proof_judges --output=docs/results/judges.md
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from rmsweb_jax.records.files import write_atomic
from tests.judges.playing import APIS, Played, play_all
from tests.judges.verdicts import PLAN, Said, all_said

INTRODUCTION = """\
# What the judges make of a model's words

    make proof-judges

runs `{command}`, which writes this page; `tests/judges/test_verdicts.py` holds the same table in the test
suite, with properties of any words at all.

Each row is a finished run given to a judge (`collection/judges`) whose model is an endpoint on this machine
that says what the second column holds, once through google-genai {genai} and once through openai {openai}.
{texts} of {count} rows are texts, the others answers that are none. Where there is *no verdict*, the run is
unjudged: no success, and counted apart.

{held} of {count} rows are as expected through both. {passed} pass; {wrong} of these should not. A reader that
looks for "success" anywhere behind "status:", or for SUCCESS anywhere in a text without NOT SUCCESS, as
published ones do, would pass {loose} of the {others} texts of the first two judges that are no pass.
"""
TITLES = {
    "outcome": "Outcome judge: the last line is SUCCESS or the text ends in NOT SUCCESS",
    "webjudge": "WebJudge: the last line is `Status: success` or `Status: failure`",
    "rubric": "Rubric verifier: one JSON object, three criteria of 3, 2 and (on a condition) 4 points",
}
_MAX_CHARS = 160


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    output: Path = parser.parse_args(arguments).output
    table = all_said()
    played = {(one.said.judge, one.said.name, one.api): one for one in play_all(table)}
    rows = [(said, [played[said.judge, said.name, api] for api in APIS]) for said in table]
    held = sum(all(one.fits for one in both) for _, both in rows)
    passes = [said for said, both in rows if any(one.verdict.success for one in both)]
    prose = [
        said
        for said in table
        if said.success is not True and said.chat is None and said.judge in ("outcome", "webjudge")
    ]
    lines = [
        INTRODUCTION.format(
            command=f"python -m tests.judges.proof_judges --output={output}",
            genai=metadata.version("google-genai"),
            openai=metadata.version("openai"),
            texts=sum(said.chat is None for said in table),
            count=len(table),
            held=held,
            passed=len(passes),
            wrong=sum(said.success is not True for said in passes),
            loose=sum(map(_passes_loosely, prose)),
            others=len(prose),
        )
    ]
    for judge, title in TITLES.items():
        lines.append(f"## {title}\n\n| case | words | read as | holds |\n|---|---|---|---|")
        lines += [_row(said, both) for said, both in rows if said.judge == judge]
        lines.append("")
    lines.append(f"Python {platform.python_version()}.\n")
    write_atomic(output, "\n".join(lines).encode())
    print(f"{output}: {held} of {len(table)} as expected")
    sys.exit(held != len(table))


def _passes_loosely(said: Said) -> bool:
    """By the word alone, as the judges' published code reads it (Online-Mind2Web, WebVoyager)."""
    if said.judge == "webjudge":
        return "success" in said.text.lower().partition("status:")[2]
    return "SUCCESS" in said.text and "NOT SUCCESS" not in said.text


def _row(said: Said, both: Sequence[Played]) -> str:
    found = " / ".join(dict.fromkeys(_read(one) for one in both))
    words = f"`{_shown(said.text)}`" if said.chat is None else "(an answer that is none)"
    return f"| {said.name} | {words} | {found} | {'yes' if all(one.fits for one in both) else 'NO'} |"


def _read(played: Played) -> str:
    verdict = played.verdict
    word = {True: "success", False: "failure", None: "no verdict"}[verdict.success]
    return word if verdict.score is None else f"{word}, score {verdict.score:.2f}"


def _shown(text: str) -> str:
    """On one line, with what cannot be seen spelt out."""
    short = text.replace(PLAN, "(reasons)")
    spelt = "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in short)
    cut = spelt if len(spelt) <= _MAX_CHARS else f"{spelt[: _MAX_CHARS // 2]} ... {spelt[-_MAX_CHARS // 2 :]}"
    return cut.replace("|", "\\|").replace("`", "'") or " "


if __name__ == "__main__":
    main()
