"""The rubric verifier: what it asks, and that points and outcome are kept apart."""

import json

import pytest

from collection.judges.notes import Criterion, TaskNotes
from collection.judges.rubric import NO_RUBRIC, RubricAnswer, answer_schema, process_score, read_answer
from tests.judges.runs import RUBRIC, rubric_notes, run
from tests.judges.server import Pictures, judge_at, says
from tests.judges.verdicts import rubric_answer
from tests.llm.prompt_server import PromptServer


def judged(answer, **settings):
    reply_to = says(rubric=json.dumps(answer))
    with (
        PromptServer(reply_to) as server,
        judge_at(server, "own_rubric", rubric_notes(), **settings) as judge,
    ):
        return judge.judge(run(3), Pictures()), server.calls, server.prompts


def test_score_and_outcome_are_apart():
    verdict, _, (prompt,) = judged(rubric_answer(3, 2, outcome="failure"))
    assert (verdict.success, verdict.score) == (False, 1.0)
    assert json.loads(verdict.text)["outcome"] == "failure" and verdict.usage.prompt_tokens == 1000
    assert "1. Finds the lamp (0 to 3 points)\n   The lamp's page is opened." in prompt
    assert "3. Says that it is sold out (0 to 4 points)\n   Applies only if: the lamp is sold out" in prompt
    assert "each of the 3 criteria exactly once" in prompt
    assert 'click_element_by_index on button "Login" {"index": 3}' in prompt and "the last page" in prompt


def test_it_is_asked_for_json_and_held_to_a_schema():
    _, (call,), _ = judged(rubric_answer())
    assert call.body["response_format"] == {"type": "json_object"}
    _, (call,), _ = judged(rubric_answer(), structured="schema")
    schema = call.body["response_format"]["json_schema"]["schema"]
    assert schema == answer_schema(3)
    scores = schema["properties"]["criteria"]
    assert (scores["minItems"], scores["maxItems"]) == (3, 3)
    assert list(scores["items"]["properties"]) == ["number", "reason", "applies", "points"]
    assert schema["properties"]["outcome"]["enum"] == ["success", "failure", "unknown"]
    # What the schema says of an answer holds of one that is read.
    assert set(RubricAnswer.model_fields) == set(schema["properties"])


@pytest.mark.parametrize("notes", [{}, {"web/shop.test/1": TaskNotes()}])
def test_a_task_without_a_rubric_is_unjudged(notes):
    with PromptServer(says()) as server, judge_at(server, "own_rubric", notes) as judge:
        verdict = judge.judge(run(), Pictures())
        assert (verdict.success, verdict.text, verdict.key, server.calls) == (None, NO_RUBRIC, "", [])
        assert judge.judge(run(declared_success=False), Pictures()).success is False


def test_a_rubric_without_applicable_criteria_gives_no_verdict():
    rubric = (Criterion(criterion="Says so", condition="it is sold out", max_points=1),)
    answer = {"criteria": [{"number": 1, "reason": "", "applies": False, "points": 0}]}
    with pytest.raises(ValueError, match="no criterion applies"):
        read_answer(json.dumps(answer | {"reason": "", "outcome": "success"}), rubric)


@pytest.mark.parametrize(
    ("points", "score"), [((3, 2), 1.0), ((0, 0), 0.0), ((3, 2, 0), 5 / 9), ((1.5, 0.5, 4), 6 / 9)]
)
def test_points_of_criteria_that_do_not_apply_are_on_neither_side(points, score):
    answer = read_answer(json.dumps(rubric_answer(*points)), RUBRIC)
    assert process_score(answer, RUBRIC) == pytest.approx(score)
