"""The table of judges' words through both APIs' own clients, and what holds of any words at all."""

import contextlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.judges.base import unjudged
from collection.judges.cross_check import FindingAnswer
from collection.judges.model_judge import OutcomeAnswer, OwnJudge, RubricAnswer, read_answer
from tests.judges.runs import RUBRIC, rubric_notes, run
from tests.judges.server import Pictures, model_at
from tests.judges.verdicts import all_said, outcome, rubric_answer
from tests.llm.prompt_server import PromptServer
from tests.llm.server import Answer

SAID = all_said()


@pytest.fixture(scope="module", params=["chat", "gemini"])
def api(request):
    with PromptServer(lambda _: Answer()) as server:
        yield request.param, server


@pytest.mark.parametrize("said", SAID, ids=lambda said: f"{said.judge}: {said.name}")
def test_words_are_read_right(api, said):
    kind, server = api
    server.reply_to = lambda _: said.answer(kind)
    # A model with calls of its own, since all ask the same.
    verdict = OwnJudge(said.judge, model_at(server, kind), rubric_notes()).judge(run(), Pictures())
    assert verdict.success is said.success, verdict
    assert verdict.score == said.score or math.isclose(verdict.score or 0, said.score or 0)
    assert verdict.text.strip() or verdict.success is not None


def test_names_of_the_table_are_unique():
    assert len({(said.judge, said.name) for said in SAID}) == len(SAID)


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
