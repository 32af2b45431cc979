"""Texts of judges and their correct reading. None means no verdict and never passes."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from tests.llm.answers import candidate, completion, gemini_error
from tests.llm.server import Answer

PLAN = "The request asks for the price of a lamp below 20 EUR. The page shows 12 EUR."


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


def _outcome() -> list[tuple[str, str, bool | None]]:
    ends = f"{PLAN}\n"
    return [
        # Passes: the word alone in the last line, or behind a label.
        ("own line", f"{ends}SUCCESS", True),
        ("word alone", "SUCCESS", True),
        ("bold", f"{ends}\n**SUCCESS**", True),
        ("heading", f"{ends}\n## SUCCESS", True),
        ("full stop", f"{ends}SUCCESS.", True),
        ("spaces and line ends behind", f"{ends}SUCCESS  \n\n", True),
        ("label", f"{ends}Verdict: SUCCESS", True),
        ("bold label", f"{ends}**Verdict:** SUCCESS", True),
        ("label with quotes", f'{ends}Final verdict: "SUCCESS".', True),
        ("label in a sentence", f"{ends}The final verdict is SUCCESS.", True),
        ("label in a line of its own", f"{ends}Verdict:\nSUCCESS", True),
        ("label as a heading", f"{ends}## Final verdict\n\nSUCCESS", True),
        ("list before, a blank line between", "- price: shown\n- below 20 EUR: yes\n\nSUCCESS", True),
        ("German reasons", "Der Preis steht auf der Seite, nichts fehlt.\nSUCCESS", True),
        ("Chinese reasons", "页面显示价格为12欧元,低于20欧元。\nSUCCESS", True),
        ("Arabic reasons", "السعر ظاهر في الصفحة.\nSUCCESS", True),
        ("not in the reasons", "Nothing is missing, and it is not sold out.\nSUCCESS", True),
        ("twice the same", f"SUCCESS\n{ends}SUCCESS", True),
        # Failures.
        ("NOT SUCCESS", f"{ends}NOT SUCCESS", False),
        ("NOT SUCCESS alone", "NOT SUCCESS", False),
        ("NOT SUCCESS bold", f"{ends}**NOT SUCCESS**", False),
        ("NOT bold, SUCCESS not", f"{ends}**NOT** SUCCESS", False),
        ("SUCCESS bold, NOT not", f"{ends}NOT **SUCCESS**", False),
        ("NOT SUCCESS in a sentence", f"{ends}The final verdict is NOT SUCCESS.", False),
        ("NOT SUCCESSFUL", f"{ends}NOT SUCCESSFUL", False),
        ("NOT and SUCCESS on two lines", f"{ends}NOT\nSUCCESS", False),
        ("NOT SUCCESS behind a wide space", f"{ends}NOT\u00a0SUCCESS", False),
        ("NOT SUCCESS behind a label", f'{ends}Verdict: "NOT SUCCESS"', False),
        ("both, NOT SUCCESS last", "It looks like SUCCESS.\nNOT SUCCESS", False),
        ("both as lines, NOT SUCCESS last", f"SUCCESS\n{ends}NOT SUCCESS", False),
        (
            "both in one line, NOT SUCCESS last",
            "It looks like SUCCESS, but the date is wrong: NOT SUCCESS",
            False,
        ),
        ("Spanish reasons and NOT SUCCESS", "No se encontró el precio.\nNOT SUCCESS", False),
        # None: UNKNOWN, and everything else.
        ("UNKNOWN", f"{ends}UNKNOWN", None),
        ("UNKNOWN with a label", f"{ends}Verdict: **UNKNOWN**", None),
        ("both, SUCCESS last", f"NOT SUCCESS\n{ends}SUCCESS", None),
        ("both, SUCCESS last, NOT SUCCESS in the reasons", "One could say NOT SUCCESS here.\nSUCCESS", None),
        ("both in lower case", "This is not SUCCESS.\nSUCCESS", None),
        ("UNKNOWN and SUCCESS", "UNKNOWN\nSUCCESS", None),
        ("FAILURE and SUCCESS", f"**FAILURE.**\n{ends}SUCCESS", None),
        ("unsuccessful and SUCCESS", f"Verdict: unsuccessful\n{ends}SUCCESS", None),
        ("two labels that differ", f"Verdict: NON-SUCCESS\n{ends}Final verdict: SUCCESS", None),
        ("both, either or", "SUCCESS or NOT SUCCESS? Hard to say.", None),
        ("unsuccessful", f"{ends}unsuccessful", None),
        ("UNSUCCESSFUL", f"{ends}UNSUCCESSFUL", None),
        ("UNSUCCESS", f"{ends}UNSUCCESS", None),
        ("un-SUCCESS", f"{ends}UN-SUCCESS", None),
        ("NON-SUCCESS", f"{ends}NON-SUCCESS", None),
        ("NOT-SUCCESS", f"{ends}NOT-SUCCESS", None),
        ("NOT_SUCCESS", f"{ends}NOT_SUCCESS", False),
        ("NO SUCCESS", f"{ends}NO SUCCESS", None),
        ("not a success", "The run was not a success.", None),
        ("not a SUCCESS", "This is not a SUCCESS", None),
        ("cannot call it", "I can't call this SUCCESS", None),
        ("far from", "This is far from SUCCESS", None),
        ("PARTIAL SUCCESS", f"{ends}PARTIAL SUCCESS", None),
        ("SUCCESS with a condition", f"{ends}SUCCESS, if the date is ignored", None),
        ("SUCCESS with a question mark", f"{ends}SUCCESS?", None),
        ("SUCCESS/FAILURE", f"{ends}SUCCESS/NOT DONE", None),
        ("lower case", f"{ends}success", None),
        ("capital letter", f"{ends}Success", None),
        ("SUCCESSFUL", f"{ends}SUCCESSFUL", None),
        ("The run was SUCCESSFUL", "The run was SUCCESSFUL", None),
        ("behind a sentence", "Everything was asked for and shown. SUCCESS", None),
        ("sentence goes on to the next line", "This is in no way a\nSUCCESS", None),
        ("sentence goes on below a blank line", "This is in no way a\n\nSUCCESS", None),
        ("German sentence goes on", "Das ist leider kein\nSUCCESS", None),
        ("announced quotation", "The banner of the shop reads:\nSUCCESS", None),
        ("announced quotation below a blank line", "The banner of the shop reads:\n\nSUCCESS", None),
        ("quoted page text", f'{ends}The page says "SUCCESS"', None),
        ("quoted line", f'{ends}"SUCCESS"', None),
        ("Markdown quotation", f"{ends}> SUCCESS", None),
        ("code block", f"{ends}```\nSUCCESS\n```", None),
        ("page text behind the verdict", "SUCCESS\nBut the date is wrong.", None),
        ("page text with the verdict inside", 'The page shows "Order placed! SUCCESS" in a banner.', None),
        ("empty", "", None),
        ("white space", " \n\t\n", None),
        ("no verdict", PLAN, None),
        ("yes", "Yes.", None),
        ("JSON", '{"verdict": "SUCCESS"}', None),
        ("a score", "Score: 5", None),
        ("WebJudge's form", f"{ends}Status: success", None),
        ("German verdict", f"{ends}ERFOLG", None),
        ("German denial", f"{ends}NICHT SUCCESS", None),
        ("German denial of a verdict", f"{ends}KEIN SUCCESS", None),
        ("Chinese verdict", f"{ends}成功", None),
        ("Chinese denial", f"{ends}不是 SUCCESS", None),
        ("Spanish verdict", f"{ends}ÉXITO", None),
        ("Spanish denial", f"{ends}NO ES SUCCESS", None),
        ("Arabic verdict", f"{ends}نجاح", None),
        ("Russian verdict", f"{ends}УСПЕХ", None),
        ("French denial", f"{ends}PAS SUCCESS", None),
        ("Japanese verdict", f"{ends}成功しました。", None),
        ("full-width letters", f"{ends}\uff33\uff35\uff23\uff23\uff25\uff33\uff33", None),
        ("Cyrillic look-alikes", f"{ends}SU\u0421\u0421ESS", None),
        ("NOT with a Cyrillic letter", f"{ends}N\u041eT SUCCESS", None),
        ("zero width inside", f"{ends}SUC\u200bCESS", None),
        ("zero width behind", f"{ends}SUCCESS\u200b", None),
        ("zero width for the space", f"{ends}NOT\u200bSUCCESS", None),
        ("right to left mark", f"{ends}\u202eSUCCESS", None),
        ("spaced letters", f"{ends}S U C C E S S", None),
        ("spelt wrong", f"{ends}SUCESS", None),
        ("check mark", f"{ends}✅ SUCCESS", None),
        ("word inside another", f"{ends}MYSUCCESS", None),
        ("address", f"{ends}https://shop.test/SUCCESS", None),
        (
            "echo of the prompt",
            "SUCCESS when everything was fulfilled,\nNOT SUCCESS when something was not,\n"
            "UNKNOWN when the evidence does not allow a decision.",
            None,
        ),
        ("echo of the prompt, and a verdict", "I say SUCCESS, NOT SUCCESS or UNKNOWN.\nSUCCESS", None),
        ("refusal in words", "I'm sorry, but I can't help with that request.", None),
        ("refusal with the word", "I'm sorry, but I cannot judge whether this is a SUCCESS.", None),
        ("broken off before the verdict", f"{PLAN} Therefore my final verdict is", None),
        ("broken off in the verdict", f"{ends}SUCC", None),
    ]


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


def _rubric() -> list[tuple[str, str, bool | None, float | None]]:
    good = rubric_answer()
    text = json.dumps(good)

    def changed(at: int, **values: Any) -> str:
        criteria = [dict(one) for one in good["criteria"]]
        criteria[at] |= values
        return json.dumps(good | {"criteria": criteria})

    def criteria(*numbers: int) -> str:
        return json.dumps(good | {"criteria": [{**good["criteria"][0], "number": one} for one in numbers]})

    return [
        ("success", text, True, 0.8),
        ("failure with most points", json.dumps(rubric_answer(3, 2, outcome="failure")), False, 1.0),
        ("success without points", json.dumps(rubric_answer(0, 0)), True, 0.0),
        ("the condition holds", json.dumps(rubric_answer(3, 2, 1)), True, 6 / 9),
        ("half a point", json.dumps(rubric_answer(2.5, 0)), True, 0.5),
        ("another order", json.dumps(good | {"criteria": good["criteria"][::-1]}), True, 0.8),
        ("fenced", f"```json\n{text}\n```", True, 0.8),
        ("unknown", json.dumps(rubric_answer(outcome="unknown")), None, 0.8),
        ("a criterion is missing", criteria(1, 2), None, None),
        ("a criterion comes twice", criteria(1, 2, 2), None, None),
        ("a criterion too many", criteria(1, 2, 3, 4), None, None),
        ("a number that is none", criteria(0, 1, 2), None, None),
        ("no criteria", json.dumps(good | {"criteria": []}), None, None),
        ("more points than there are", changed(0, points=3.5), None, None),
        ("negative points", changed(0, points=-1), None, None),
        ("points as text", changed(0, points="3"), None, None),
        ("points as a truth value", changed(0, points=True), None, None),
        ("points that are no number", changed(0, points=float("nan")), None, None),
        ("points without end", changed(0, points=float("inf")), None, None),
        ("no points", changed(0, points=None), None, None),
        ("a criterion without a condition that does not apply", changed(1, applies=False), None, None),
        ("applies as text", changed(2, applies="false"), None, None),
        ("unsuccessful", json.dumps(rubric_answer(outcome="unsuccessful")), None, None),
        ("not success", json.dumps(rubric_answer(outcome="NOT SUCCESS")), None, None),
        ("SUCCESS in capitals", json.dumps(rubric_answer(outcome="SUCCESS")), None, None),
        ("success as a truth value", json.dumps(rubric_answer(outcome=True)), None, None),
        ("Chinese", json.dumps(rubric_answer(outcome="成功"), ensure_ascii=False), None, None),
        ("an outcome twice", text.replace('"outcome"', '"outcome": "failure", "outcome"'), None, None),
        ("no outcome", json.dumps({key: good[key] for key in ("criteria", "reason")}), None, None),
        ("a key too many", json.dumps(good | {"verdict": "success"}), None, None),
        ("words before", f"Here is my answer: {text}", None, None),
        ("words behind", f"{text}\nSUCCESS", None, None),
        ("two objects", f"{text}\n{text}", None, None),
        ("a list", f"[{text}]", None, None),
        ("words alone", "All points. SUCCESS", None, None),
        ("broken off", text[:-20], None, None),
        ("too deep", "[" * 100 + "]" * 100, None, None),
        (
            "the prompt's example",
            '{"criteria": [{"number": 1, "reason": "...", "applies": true}, ...]}',
            None,
            None,
        ),
        ("null", "null", None, None),
        ("empty", "", None, None),
    ]


def _endpoints() -> list[Said]:
    """Responses without a verdict, with any text."""
    refusal = {"message": {"content": "SUCCESS", "refusal": "I can't judge this."}, "finish_reason": "stop"}
    blocked = Answer(body={"promptFeedback": {"blockReason": "SAFETY"}})
    cut = ("cut off behind the verdict", "SUCCESS")
    return [
        Said(
            "own_outcome",
            *cut,
            None,
            None,
            completion("SUCCESS", "length"),
            candidate([{"text": "SUCCESS"}], "MAX_TOKENS"),
        ),
        Said("own_outcome", "refused", "", None, None, Answer(body={"choices": [refusal]}), blocked),
        Said(
            *("own_outcome", "blocked behind the verdict", "", None, None),
            completion("SUCCESS", "content_filter"),
            candidate([{"text": "SUCCESS"}], "SAFETY"),
        ),
        Said("own_outcome", "no content", "", None, None, completion(None), candidate(None)),
        Said(
            *("own_outcome", "too long for the model", "", None, None),
            Answer(400, {"error": {"message": "maximum context length is 8192 tokens"}}),
            gemini_error(400, "The input token count (9000) exceeds the maximum"),
        ),
        Said(
            *("own_outcome", "overloaded in all attempts", "", None, None),
            Answer(503, {"error": {"message": "overloaded"}}),
            gemini_error(503, "The model is overloaded."),
        ),
        Said("own_outcome", "reset in all attempts", "", None, None, Answer(reset=True), Answer(reset=True)),
        Said("own_outcome", "short answer in all attempts", "", None, None, *[_short()] * 2),
    ]


def _short() -> Answer:
    return dataclasses.replace(completion("SUCCESS"), short=5)


def all_said() -> list[Said]:
    """The whole table; names are unique by judge."""
    return [
        *(Said("own_outcome", *row) for row in _outcome()),
        *(Said("own_rubric", *row) for row in _rubric()),
        *_endpoints(),
    ]
