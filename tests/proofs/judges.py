"""Judges on texts that judge models write or may write, through the client libraries. Seconds."""

from __future__ import annotations

import json

from tests.judges.playing import APIS, JudgeRun, play_all
from tests.judges.verdicts import PLAN, Said, all_said
from tests.proofs.result import Claim, Figures, Proof, main, table

TITLES = {
    "own_outcome": "Outcome judge of ours: the last line is SUCCESS or the text ends in NOT SUCCESS",
    "own_webjudge": "WebJudge of ours: the last line is `Status: success` or `Status: failure`",
    "own_rubric": "Rubric judge of ours: one JSON object, criteria of 3, 2 and (on a condition) 4 points",
}
_MAX_CHARS = 160


def measure() -> Figures:
    table = all_said()
    played = {(one.said.judge, one.said.name, one.api): one for one in play_all(table)}
    cases = []
    for said in table:
        both = [played[said.judge, said.name, api] for api in APIS]
        cases.append(
            {
                "judge": said.judge,
                "case": said.name,
                "words": _shown(said.text) if said.chat is None else None,
                "read_as": list(dict.fromkeys(map(_read, both))),
                "passes": any(one.verdict.success for one in both),
                "should_pass": said.success is True,
                "passes_by_keyword": said.chat is None and _passes_by_keyword(said),
                "holds": all(one.fits for one in both),
            }
        )
    return {"cases": cases}


def _passes_by_keyword(said: Said) -> bool:
    """Verdict by keyword only, as in the judges' published code (Online-Mind2Web, WebVoyager)."""
    if said.judge == "own_webjudge":
        return "success" in said.text.lower().partition("status:")[2]
    return "SUCCESS" in said.text and "NOT SUCCESS" not in said.text


def _read(played: JudgeRun) -> str:
    verdict = played.verdict
    word = {True: "success", False: "failure", None: "no verdict"}[verdict.success]
    return word if verdict.score is None else f"{word}, score {verdict.score:.2f}"


def _shown(text: str) -> str:
    """The text on one line, with invisible characters escaped."""
    short = text.replace(PLAN, "(reasons)")
    spelt = "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in short)
    return (
        spelt if len(spelt) <= _MAX_CHARS else f"{spelt[: _MAX_CHARS // 2]} ... {spelt[-_MAX_CHARS // 2 :]}"
    )


def claims(figures: Figures) -> list[Claim]:
    cases = figures["cases"]
    held, passed = sum(case["holds"] for case in cases), [case for case in cases if case["passes"]]
    wrong = sum(not case["should_pass"] for case in passed)
    others = [
        case
        for case in cases
        if not case["should_pass"] and case["words"] is not None and case["judge"] != "own_rubric"
    ]
    loose = sum(case["passes_by_keyword"] for case in others)
    return [
        Claim(
            "each text is read as expected, through both APIs", f"{held} of {len(cases)}", held == len(cases)
        ),
        Claim("no text passes that should not", f"{wrong} of {len(passed)} that pass", not wrong),
        Claim(
            "a reader of the keyword alone, as published code has, passes many that should not",
            f"{loose} of {len(others)} texts of the outcome judge and WebJudge",
            None,
        ),
    ]


def tables(figures: Figures) -> str:
    parts = []
    for judge, title in TITLES.items():
        rows = [
            (
                case["case"],
                _quoted(case["words"]),
                " / ".join(case["read_as"]),
                "yes" if case["holds"] else "NO",
            )
            for case in figures["cases"]
            if case["judge"] == judge
        ]
        parts += [f"## {title}", table(("case", "words", "read as", "holds"), rows)]
    return "\n\n".join(parts)


def _quoted(words: str | None) -> str:
    return "(an answer without text)" if words is None else f"`{words.replace('`', chr(39)) or ' '}`"


ABOUT = """\
Each row is a finished run given to a judge (`collection/judges`) whose model is an endpoint on this machine
that answers with the words of the second column, once through google-genai and once through openai. Where
there is *no verdict* the run is unjudged: it counts as no success and is reported separately.
`tests/judges/test_verdicts.py` holds the same cases in the test suite, with properties of arbitrary texts.
"""
PROOF = Proof(
    "Reading of judge models' texts", ABOUT, measure, claims, tables, packages=("google-genai", "openai")
)

if __name__ == "__main__":
    main(PROOF)
