"""The table of judges' words through both APIs' own clients, and what holds of any words at all."""

import contextlib
import json
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.judges.base import unjudged
from collection.judges.reading import read_object, read_verdict
from collection.judges.rubric import read_answer
from tests.judges.playing import APIS, JudgeRun, play_all
from tests.judges.runs import RUBRIC, run
from tests.judges.verdicts import all_said, rubric_answer

SAID = all_said()


@pytest.fixture(scope="module")
def played():
    return {(one.said.judge, one.said.name, one.api): one for one in play_all(SAID)}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("said", SAID, ids=lambda said: f"{said.judge}: {said.name}")
def test_words_are_read_right(played, said, api):
    one: JudgeRun = played[said.judge, said.name, api]
    assert one.fits, one
    assert one.verdict.text.strip() or one.verdict.success is not None


def test_the_table_of_verdicts_is_consistent():
    assert len(SAID) >= 60 and len({(said.judge, said.name) for said in SAID}) == len(SAID)
    for judge in ("own_outcome", "own_rubric"):
        assert {said.success for said in SAID if said.judge == judge} == {True, False, None}


# Pieces of which verdicts, near misses and what may stand around them are made.
PIECES = st.sampled_from(
    (
        *("SUCCESS", "NOT", "NOT SUCCESS", "UN", "UNKNOWN", "success", "Status:", "status :", "failure"),
        *(
            "unsuccessful",
            "Verdict:",
            "The final verdict is",
            "not a",
            "Score:",
            "3",
            "5",
            "*",
            "**",
            '"',
            "`",
        ),
        *(
            ".",
            "!",
            ",",
            ":",
            " ",
            "  ",
            "\n",
            "\n\n",
            "\u200b",
            "\u00a0",
            "\u2028",
            "\uff33",
            "\u0421",
            "成功",
        ),
        *("#", ">", "-", "(", "no", "The lamp is shown.", "It says"),
    )
)
TEXTS = st.lists(PIECES, max_size=9).map("".join) | st.text(max_size=30)


def passes(read: Callable[[str], bool | None], text: str) -> bool:
    with contextlib.suppress(ValueError):
        return read(text) is True
    return False


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


@given(TEXTS)
def test_no_text_passes_an_outcome_without_a_verdict_line(text):
    if passes(read_verdict, text):
        words = re.findall(r"\w+", last_line(text))
        assert words.count("SUCCESS") == 1 and words[-1] == "SUCCESS"
        assert {word.lower() for word in words[:-1]} <= {"the", "final", "verdict", "status", "is"}
        assert not re.search(r"not[\s*_`]+SUCCESS", text, re.IGNORECASE)


@given(st.sampled_from(["SUCCESS", "**SUCCESS**", "Verdict: SUCCESS", "Done.\nSUCCESS"]), st.data())
def test_one_strange_character_makes_no_pass_of_a_word(text, data):
    start = text.index("SUCCESS")
    at = data.draw(st.integers(start + 1, start + 6))
    strange = data.draw(st.characters(exclude_characters="\n"))
    assert not passes(read_verdict, text[:at] + strange + text[at:])
    if text[at] != strange:
        assert not passes(read_verdict, text[:at] + strange + text[at + 1 :])


@given(st.text(st.characters(categories=("L",)), min_size=1, max_size=8))
def test_a_word_before_or_behind_makes_no_pass(word):
    for text in (f"{word}SUCCESS", f"SUCCESS{word}", f"SUCCESS {word}"):
        assert not passes(read_verdict, f"The lamp is shown.\n{text}")
    if word.lower() not in ("status", "verdict", "result", "decision", "judgment"):
        assert not passes(read_verdict, f"The lamp is shown.\n{word} SUCCESS")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 5) | st.floats() | st.sampled_from(("success", "failure")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("number", "applies", "points", "outcome")), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.data())
def test_one_wrong_part_makes_a_rubric_answer_none(data):
    """An accepted answer has every criterion once, with points within its range."""
    answer = rubric_answer(3, 1, 2)
    part = data.draw(
        st.sampled_from(["criteria", "outcome", "reason", "number", "applies", "points", "none"])
    )
    if part in answer:
        answer[part] = data.draw(JSON)
    elif part != "none":
        answer["criteria"][data.draw(st.integers(0, 2))][part] = data.draw(JSON)
    try:
        read = read_answer(json.dumps(answer), RUBRIC)
    except ValueError:
        return
    assert sorted(one.number for one in read.criteria) == [1, 2, 3]
    for one in read.criteria:
        criterion = RUBRIC[one.number - 1]
        assert 0 <= one.points <= criterion.max_points and (one.applies or criterion.condition)
    assert read.outcome in ("success", "failure", "unknown")


@given(st.text(max_size=40))
def test_an_object_is_an_object(text):
    with contextlib.suppress(ValueError):
        assert isinstance(read_object(text), dict)


def test_nesting_without_end_is_no_object():
    with pytest.raises(ValueError, match="nested too deeply"):
        read_object("[" * 100_000)


def test_unjudged_recorded_runs():
    asked = run(judge_text="UNKNOWN")
    # Also a right answer that says no may get no verdict, and a run that no judge was asked about.
    assert unjudged(asked.model_copy(update={"declared_success": False}))
    assert unjudged(asked) and unjudged(asked.model_copy(update={"judge_text": ""}))
    for changes in (
        {"judge": "own_outcome (m)"},
        {"declared_success": False, "judge_text": ""},
        {"outcome": "max_steps"},
        {"reward": 1.0},
        {"task": asked.task.model_copy(update={"environment": "miniwob"})},
    ):
        assert not unjudged(asked.model_copy(update=changes)), changes
