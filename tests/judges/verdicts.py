"""Texts of judges and their correct reading. None means no verdict and never passes."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from tests.llm.answers import candidate, completion, gemini_error
from tests.llm.server import Answer

REASON = "The request asks for the price of a lamp below 20 EUR. The page shows 12 EUR."


@dataclasses.dataclass(frozen=True)
class Said:
    """A judge's words.

    Attributes:
      judge: own_outcome or own_rubric.
      success: what is to be read; None: no verdict.
      chat, gemini: what the endpoints send, where it is not the text.
    """

    judge: str
    name: str
    text: str
    success: bool | None
    score: float | None = None
    chat: Answer | None = None
    gemini: Answer | None = None

    def answer(self, api: str) -> Answer:
        if api == "chat":
            return self.chat or completion(self.text)
        return self.gemini or candidate([{"text": self.text}])


def outcome(word: Any, reason: Any = REASON, **changes: Any) -> str:
    """An answer of the outcome judge."""
    return json.dumps({"reason": reason, "outcome": word} | changes, ensure_ascii=False)


def rubric_answer(*points: Any, outcome: Any = "success", **changes: Any) -> dict[str, Any]:
    """An answer to `tests.judges.runs.RUBRIC`; the third criterion applies where it is given points."""
    earned = points or (3, 1)
    criteria = [
        {
            "number": number,
            "reason": "as shown",
            "applies": number <= len(earned),
            "points": earned[number - 1] if number <= len(earned) else 0,
        }
        for number in (1, 2, 3)
    ]
    return {"criteria": criteria, "reason": "all is there", "outcome": outcome} | changes


def _no_answers(good: str) -> list[tuple[str, str]]:
    """Texts that are no answer, made from a good one of success."""
    return [
        ("an outcome twice", good.replace('"outcome"', '"outcome": "failure", "outcome"')),
        ("a key too many", good.replace("{", '{"verdict": "success", ', 1)),
        ("words before", f"Here is my answer: {good}"),
        ("words behind", f"{good}\nBut the date is wrong."),
        ("a denial behind", f"{good}\nNOT SUCCESS"),
        ("two objects", f"{good}\n{good}"),
        ("a list", f"[{good}]"),
        ("a fence in words", f"I say:\n```json\n{good}\n```"),
        ("quoted page text", f'The page says "{good}"'),
        ("words alone", "All is shown. SUCCESS"),
        ("a refusal", "I'm sorry, but I can't help with that request."),
        ("broken off", good[:-20]),
        ("too deep", "[" * 100_000),
        ("null", "null"),
        ("empty", ""),
        ("white space", " \n\t\n"),
        *(
            (f"outcome {word!r}", good.replace('"outcome": "success"', f'"outcome": {json.dumps(word)}'))
            for word in (
                *("SUCCESS", "Success", "not success", "unsuccessful", "success, in part", "成功", "ÉXITO"),
                *("suc\u200bcess", "su\u0441\u0441ess", "success ", True, 1, None, ["success"]),
            )
        ),
        ("no outcome", good.replace('"outcome"', '"verdict"')),
        ("no reason", good.replace('"reason": "all is there", ', "").replace(f'"reason": "{REASON}", ', "")),
        ("a reason that is no text", good.replace('"all is there"', "1").replace(f'"{REASON}"', "1")),
    ]


def _rubric() -> list[tuple[str, str, bool | None, float | None]]:
    good = rubric_answer()
    text = json.dumps(good)

    def changed(at: int, **values: Any) -> str:
        criteria = [dict(one) for one in good["criteria"]]
        criteria[at] |= values
        return json.dumps(good | {"criteria": criteria})

    def criteria(*numbers: int) -> str:
        return json.dumps(good | {"criteria": [{**good["criteria"][0], "number": one} for one in numbers]})

    wrong = {
        "a criterion is missing": criteria(1, 2),
        "a criterion comes twice": criteria(1, 2, 2),
        "a criterion too many": criteria(1, 2, 3, 4),
        "a number that is none": criteria(0, 1, 2),
        "no criteria": json.dumps(good | {"criteria": []}),
        "more points than there are": changed(0, points=3.5),
        "negative points": changed(0, points=-1),
        "points as text": changed(0, points="3"),
        "points as a truth value": changed(0, points=True),
        "points that are no number": changed(0, points=float("nan")),
        "points without end": changed(0, points=float("inf")),
        "no points": changed(0, points=None),
        "a criterion without a condition that does not apply": changed(1, applies=False),
        "applies as text": changed(2, applies="false"),
    }
    return [
        ("success", text, True, 0.8),
        ("failure with most points", json.dumps(rubric_answer(3, 2, outcome="failure")), False, 1.0),
        ("success without points", json.dumps(rubric_answer(0, 0)), True, 0.0),
        ("the condition holds", json.dumps(rubric_answer(3, 2, 1)), True, 6 / 9),
        ("half a point", json.dumps(rubric_answer(2.5, 0)), True, 0.5),
        ("another order", json.dumps(good | {"criteria": good["criteria"][::-1]}), True, 0.8),
        ("fenced", f"```json\n{text}\n```", True, 0.8),
        ("unknown", json.dumps(rubric_answer(outcome="unknown")), None, 0.8),
        *((name, words, None, None) for name, words in wrong.items()),
        *((name, words, None, None) for name, words in _no_answers(text)),
    ]


def _outcome() -> list[tuple[str, str, bool | None]]:
    good = outcome("success")
    return [
        ("success", good, True),
        ("failure", outcome("failure"), False),
        ("unknown", outcome("unknown"), None),
        ("fenced", f"```json\n{good}\n```", True),
        ("a fence without a name", f"```\n{good}\n```\n", True),
        ("another order", json.dumps({"outcome": "success", "reason": ""}), True),
        ("a reason that says otherwise", outcome("failure", "It looks like a success. SUCCESS"), False),
        ("a reason with a verdict inside", outcome("failure", good), False),
        ("Chinese reasons", outcome("success", "页面显示价格为12欧元。"), True),
        *((name, words, None) for name, words in _no_answers(good)),
    ]


def _endpoints() -> list[Said]:
    """Responses without a verdict, with any text."""
    good = outcome("success")
    refusal = {"message": {"content": good, "refusal": "I can't judge this."}, "finish_reason": "stop"}
    blocked = Answer(body={"promptFeedback": {"blockReason": "SAFETY"}})
    short = dataclasses.replace(completion(good), short=5)
    rows = {
        "cut off behind the verdict": (completion(good, "length"), candidate([{"text": good}], "MAX_TOKENS")),
        "refused": (Answer(body={"choices": [refusal]}), blocked),
        "blocked": (completion(good, "content_filter"), candidate([{"text": good}], "SAFETY")),
        "no content": (completion(None), candidate(None)),
        "too long for the model": (
            Answer(400, {"error": {"message": "maximum context length is 8192 tokens"}}),
            gemini_error(400, "The input token count (9000) exceeds the maximum"),
        ),
        "overloaded in all attempts": (
            Answer(503, {"error": {"message": "overloaded"}}),
            gemini_error(503, "The model is overloaded."),
        ),
        "reset in all attempts": (Answer(reset=True), Answer(reset=True)),
        "short answer in all attempts": (short, short),
    }
    return [Said("own_outcome", name, "", None, None, *answers) for name, answers in rows.items()]


def all_said() -> list[Said]:
    """The whole table; names are unique by judge."""
    return [
        *(Said("own_outcome", *row) for row in _outcome()),
        *(Said("own_rubric", *row) for row in _rubric()),
        *_endpoints(),
    ]
