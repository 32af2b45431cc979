"""browser-use histories with gaps or faults: nothing is invented; see `tests.importers.foreign_runs`."""

import json

import pytest

from collection.importers import TaskInfo
from rmsweb_jax.actions import parse_reply
from tests.importers.foreign_runs import (
    PAGES,
    browser_use_run,
    history_item,
    state_message,
    without,
)
from tests.importers.imports import histories, items, samples


@pytest.mark.parametrize(
    ("history", "missing", "fault"),
    [
        # 0.7.10 and before: no text of the state, so nothing to build a prompt from.
        ([without(item, "state_message") for item in items()], "steps.messages", "step 1: no_messages"),
        (
            items(state_message=state_message(1, PAGES[0], extra="<sensitive_data>x</sensitive_data>\n")),
            "steps.messages",
            "step 1: no_messages",
        ),
        # Flash mode: the model writes its memory and actions only.
        (
            [
                item | {"model_output": without(item["model_output"], "next_goal", "thinking")}
                for item in items()
            ],
            "steps.response.next_goal",
            "steps.response.next_goal: incomplete_reply",
        ),
    ],
)
def test_fields_missing_from_a_history_are_not_trained_on(tmp_path, history, missing, fault):
    browser_use_run(tmp_path / "runs", history)
    tasks = {"history": TaskInfo(objective="Find the price.", success=True)}
    (run,), report, _ = histories(tmp_path / "runs", tasks)
    assert run.success and missing in run.missing and report["missing"][missing]["steps"] == 4
    made, drops = samples([run], tmp_path / "runs")
    assert not made
    assert [(drop.reason, drop.detail) for drop in drops] == [("invalid_step", fault)]


def test_without_the_state_text_the_page_is_missing_and_not_invented(tmp_path):
    browser_use_run(tmp_path / "runs", [without(item, "state_message") for item in items()])
    (run,), _, _ = histories(tmp_path / "runs")
    assert run.steps[0].observation.page_text == "" and run.steps[0].observation.elements == ()
    assert run.task.objective == ""
    for name in ("task.objective", "steps.observation.elements", "steps.results.changed"):
        assert name in run.missing
    assert not any(result.changed for step in run.steps for result in step.results)


def test_a_step_without_a_counterpart_keeps_its_text_and_the_reason(tmp_path):
    strange = history_item(2)
    strange["model_output"]["action"] = [{"click": {"index": 3}}, {"drag_drop": {"element_source": "a"}}]
    silent = history_item(3, model_output=None, result=[{"error": "Rate limit reached."}])
    browser_use_run(tmp_path / "runs", [history_item(1), strange, silent, history_item(4)])
    (run,), report, _ = histories(tmp_path / "runs")
    assert json.loads(run.steps[1].response) == strange["model_output"]
    assert run.steps[1].error == "No counterpart for action 'drag_drop': unknown action 'drag_drop'"
    assert run.steps[2].error == "No model output was recorded. Rate limit reached."
    assert not run.steps[1].results and not run.steps[2].results
    assert report["actions_not_mapped"] == {"drag_drop": 1}
    assert report["steps_mapped"] == 2 and "steps.response" in run.missing
    made, drops = samples([run], tmp_path / "runs")
    assert not made and drops[0].detail == "step 2: unusable_reply"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "broken.json is not JSON"),
        ("[1, 2]", "broken.json is not a browser-use history"),
        ('{"history": []}', "broken.json has no step"),
        ('{"history": [{"result": []}]}', "broken.json: history.0.state: Field required"),
        (
            '{"history": [{"state": {"url": 3}}]}',
            "broken.json: history.0.state.url: Input should be a valid string",
        ),
        ('{"history": 3}', "broken.json: history: Input should be a valid tuple"),
    ],
)
def test_a_broken_history_is_skipped_and_named(tmp_path, content, reason):
    browser_use_run(tmp_path / "runs/good")
    (tmp_path / "runs/broken.json").write_text(content)
    runs, report, lines = histories(tmp_path / "runs")
    assert len(runs) == 1 and report["runs"] == 2
    assert report["skipped"][0]["run"] == "broken.json"
    assert report["skipped"][0]["reason"].startswith(reason)
    assert {"run": "broken.json", "skipped": report["skipped"][0]["reason"]} in lines


def test_odd_values_do_not_break_an_import(tmp_path):
    odd = history_item(1)
    odd["model_output"]["memory"] = "half a pair \ud83d"
    odd["state"] = {"url": None, "title": None, "tabs": [], "screenshot": "no base64!"}
    textless = history_item(2, state_message="")
    textless["model_output"]["action"] = "click"
    browser_use_run(tmp_path / "runs", [odd, textless])
    (tmp_path / "runs/screenshots/step_2.png").write_bytes(b"GIF89a no")
    (run,), _, _ = histories(tmp_path / "runs")
    assert run.model_dump_json()
    assert parse_reply(run.steps[0].response).memory == "half a pair ?"
    assert [step.observation.screenshot for step in run.steps] == [None, None]
    assert run.steps[1].error == "Unusable reply: no action"
    assert (run.outcome, run.declared_success, run.success) == ("max_steps", None, False)
    assert "outcome" in run.missing
