"""Failures looked at again: what is sent, and which answers are findings."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.judges.base import GAVE_UP, NO_ANSWER
from collection.judges.cross_check import (
    FINDINGS,
    SCREENSHOTS,
    CrossCheck,
    answer_schema,
    is_worth_it,
    read_finding,
    summarize,
)
from collection.judges.judgements import Judgement
from rmsweb_jax.records.schema import CallUsage
from tests.judges.runs import run
from tests.judges.server import Pictures, model_at, says
from tests.llm.answers import completion
from tests.llm.prompt_server import PromptServer


def judgement(success: bool | None = False, text: str = "No price is shown.\nNOT SUCCESS", key: str = "k"):
    return Judgement(
        trajectory_id="web/shop.test/1#teacher-1",
        task_id="web/shop.test/1",
        judge="outcome",
        success=success,
        score=None,
        text=text,
        usage=CallUsage(),
        key=key,
    )


def checked(words, seen="the last page", trajectory=None, reply_to=None, **settings):
    with PromptServer(reply_to or says(cross_check=words)) as server:
        check = CrossCheck(model_at(server, **settings))
        found = check.check(trajectory or run(3), judgement(), seen, Pictures())
        return found, server


@pytest.mark.parametrize("finding", FINDINGS)
def test_each_finding_is_read(finding):
    found, server = checked(json.dumps({"reason": "As page 1 says.", "finding": finding}))
    assert found.finding == finding and found.judge == "outcome" and found.key
    assert found.usage.prompt_tokens == 1000
    (prompt,), (pictures,) = server.prompts, server.pictures
    for part in (
        "No price is shown.",
        "The judge went by: the last page.",
        "page 1",
        "page 2",
        "the last page",
    ):
        assert part in prompt
    assert pictures == 3 and "3 screenshots, of steps 1, 2, 3." in prompt
    assert server.calls[0].body["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize(
    "words",
    [
        "judge_error",
        '{"finding": "judge_error"}',
        '{"reason": "", "finding": "Judge_Error"}',
        '{"reason": "", "finding": "judge_error or confirmed_failure"}',
        '{"reason": "", "finding": ["judge_error", "dom_only_evidence"]}',
        '{"reason": "", "finding": "success"}',
        '{"reason": "", "finding": "confirmed_failure", "finding": "judge_error"}',
        '{"reason": "", "finding": "judge_error", "sure": true}',
        '{"reason": "", "finding": null}',
        '{"reason": "", "finding": "judge_err',
    ],
)
def test_anything_else_is_no_finding(words):
    found, _ = checked(words)
    assert found.finding is None and found.text.startswith(words) and "[no finding: " in found.text


def test_no_answer_is_no_finding():
    found, _ = checked("", reply_to=lambda _: completion("", "content_filter"))
    assert found.finding is None and found.text == "[the reply was blocked: content_filter]"


def test_long_runs_are_shown_from_end_to_end():
    long = run(100)
    pages = tuple(
        step.model_copy(
            update={
                "observation": step.observation.model_copy(
                    update={"page_text": f"text {step.number} " + "x" * 9000}
                )
            }
        )
        for step in long.steps
    )
    _, server = checked("{}", trajectory=long.model_copy(update={"steps": pages}), seen="")
    (prompt,) = server.prompts
    assert server.pictures == [SCREENSHOTS] and "of steps 1, " in prompt and ", 100." in prompt
    assert all(f"text {number} x" in prompt for number in range(1, 101)) and len(prompt) < 150_000
    assert "The judge went by" not in prompt


def test_only_declared_successes_that_were_judged_failures_are_reviewed():
    assert is_worth_it(run(), judgement())
    assert not is_worth_it(run(), judgement(success=True)) and not is_worth_it(run(), judgement(success=None))
    assert not is_worth_it(run(declared_success=False), judgement(text=GAVE_UP, key=""))
    assert not is_worth_it(run(outcome="max_steps"), judgement())
    assert not is_worth_it(run(final_text=""), judgement(text=NO_ANSWER, key=""))


def test_shares_are_of_the_false_negatives():
    findings = ["dom_only_evidence"] * 2 + ["judge_error"] + ["confirmed_failure"] * 4 + [None]
    found, _ = checked("{}")
    summary = summarize(found.model_copy(update={"finding": one}) for one in findings)
    assert (summary["checked"], summary["without_finding"], summary["false_negatives"]) == (8, 1, 3)
    assert summary["shares"] == {
        "dom_only_evidence": 2 / 3,
        "incomplete_screenshots": 0.0,
        "judge_error": 1 / 3,
    }
    assert set(summarize([])["shares"].values()) == {None}


@given(st.text(max_size=20))
def test_the_schema_and_the_reader_know_the_same_findings(word):
    assert answer_schema()["properties"]["finding"]["enum"] == list(FINDINGS)
    if word not in FINDINGS:
        with pytest.raises(ValueError):
            read_finding(json.dumps({"reason": "", "finding": word}))
