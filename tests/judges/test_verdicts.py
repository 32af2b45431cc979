"""A table of judges' words, and what holds of any words at all."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.judges.base import unjudged
from collection.judges.cross_check import FindingAnswer
from collection.judges.model_judge import OutcomeAnswer, OwnJudge, RubricAnswer, read_answer
from collection.llm.model import ModelReply
from rmsweb_jax.records.schema import CallUsage
from tests.judges.runs import RUBRIC, rubric_notes, run
from tests.judges.server import Pictures
from tests.judges.verdicts import outcome, rubric_answer
from tests.llm.sharing import Script

GOOD = outcome("success")
RUBRIC_GOOD = rubric_answer()
NO_OUTCOME = {
    "an outcome twice": GOOD.replace('"outcome"', '"outcome": "failure", "outcome"'),
    "a key too many": GOOD.replace("{", '{"verdict": "success", ', 1),
    "words before": f"Here is my answer: {GOOD}",
    "a denial behind": f"{GOOD}\nNOT SUCCESS",
    "two objects": f"{GOOD}\n{GOOD}",
    "a list": f"[{GOOD}]",
    "quoted page text": f'The page says "{GOOD}"',
    "words alone": "All is shown. SUCCESS",
    "broken off": GOOD[:-20],
    "too deep": "[" * 100_000,
    "empty": "",
    "no reason": '{"outcome": "success"}',
    **{f"outcome {word!r}": outcome(word) for word in ("SUCCESS", "success ", "suc\u200bcess", True, None)},
}


def changed(at, **values):
    criteria = [dict(one) for one in RUBRIC_GOOD["criteria"]]
    criteria[at] |= values
    return RUBRIC_GOOD | {"criteria": criteria}


def numbered(*numbers):
    return RUBRIC_GOOD | {"criteria": [{**RUBRIC_GOOD["criteria"][0], "number": one} for one in numbers]}


NO_RUBRIC_ANSWER = {
    "a criterion is missing": numbered(1, 2),
    "a criterion comes twice": numbered(1, 2, 2),
    "a criterion too many": numbered(1, 2, 3, 4),
    "more points than there are": changed(0, points=3.5),
    "negative points": changed(0, points=-1),
    "points as a truth value": changed(0, points=True),
    "points that are no number": changed(0, points=float("nan")),
    "a criterion without a condition that does not apply": changed(1, applies=False),
}
READ = [
    ("own_outcome", GOOD, True, None),
    ("own_outcome", outcome("unknown"), None, None),
    ("own_outcome", f"```json\n{GOOD}\n```", True, None),
    ("own_outcome", f"```\n{GOOD}\n```\n", True, None),
    ("own_outcome", json.dumps({"outcome": "success", "reason": ""}), True, None),
    ("own_outcome", outcome("failure", "It looks like a success. SUCCESS"), False, None),
    ("own_outcome", outcome("failure", GOOD), False, None),
    ("own_rubric", json.dumps(RUBRIC_GOOD), True, 0.8),
    ("own_rubric", json.dumps(rubric_answer(3, 2, outcome="failure")), False, 1.0),
    ("own_rubric", json.dumps(rubric_answer(0, 0)), True, 0.0),
    ("own_rubric", json.dumps(rubric_answer(3, 2, 1)), True, 6 / 9),
    ("own_rubric", json.dumps(rubric_answer(2.5, 0)), True, 0.5),
    ("own_rubric", json.dumps(RUBRIC_GOOD | {"criteria": RUBRIC_GOOD["criteria"][::-1]}), True, 0.8),
    ("own_rubric", json.dumps(rubric_answer(outcome="unknown")), None, 0.8),
    *(("own_outcome", text, None, None) for text in NO_OUTCOME.values()),
    *(("own_rubric", json.dumps(answer), None, None) for answer in NO_RUBRIC_ANSWER.values()),
]


@pytest.mark.parametrize(("method", "text", "success", "score"), READ, ids=map(str, range(len(READ))))
def test_words_are_read_right(method, text, success, score):
    model = Script(None, ModelReply(text, CallUsage()))
    verdict = OwnJudge(method, model, rubric_notes()).judge(run(), Pictures())
    assert verdict.success is success, verdict
    assert verdict.score == pytest.approx(score) if score else verdict.score == score
    assert verdict.text.strip() or verdict.success is not None


@given(st.text(max_size=40), st.sampled_from([OutcomeAnswer, RubricAnswer, FindingAnswer]))
def test_text_is_no_answer(text, answer):
    with pytest.raises(ValueError):
        read_answer(text, answer)


@given(st.data())
def test_one_strange_character_changes_no_outcome(data):
    """With any text put in or replaced, what is read is the outcome that was written, or nothing."""
    for word in ("success", "failure"):
        text = outcome(word)
        at = data.draw(st.integers(0, len(text) - 1))
        strange = data.draw(st.characters(exclude_categories=("Cs",)))
        for changed in (text[:at] + strange + text[at:], text[:at] + strange + text[at + 1 :]):
            with contextlib.suppress(ValueError):
                assert read_answer(changed, OutcomeAnswer).outcome == word


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
    part = data.draw(st.sampled_from(["criteria", "outcome", "reason", "number", "applies", "points"]))
    if part in answer:
        answer[part] = data.draw(JSON)
    else:
        answer["criteria"][data.draw(st.integers(0, 2))][part] = data.draw(JSON)
    try:
        read = read_answer(json.dumps(answer), RubricAnswer)
        assert 0 <= read.score(RUBRIC) <= 1
    except ValueError:
        return
    assert sorted(one.number for one in read.criteria) == [1, 2, 3]
    for one in read.criteria:
        criterion = RUBRIC[one.number - 1]
        assert 0 <= one.points <= criterion.max_points and (one.applies or criterion.condition)
    assert read.outcome in ("success", "failure", "unknown")


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
