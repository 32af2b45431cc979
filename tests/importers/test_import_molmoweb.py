"""MolmoWeb's result folders as trajectories; see `tests.importers.agent_runs`."""

import json

import pytest

from collection.importers.common import UnmappedError
from collection.importers.coordinates import Screen
from collection.importers.molmoweb import ActionOutput, map_action
from rmsweb_jax.actions import parse_reply
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ActionResult
from tests.importers.agent_runs import MOLMO_ACTIONS, SITE, molmo_run, shot
from tests.importers.foreign_runs import write_json
from tests.importers.imports import OURS_ALONE, actions, imported


def test_every_field_of_a_result_folder(tmp_path):
    folder = molmo_run(tmp_path / "runs/Shop--1")
    write_json(folder / "webvoyager_verdict.json", {"thought": "as shown", "verdict": "SUCCESS"})
    (run,), report = imported("molmoweb", tmp_path / "runs")
    assert run.model_dump(exclude={"steps", "task", "missing", *OURS_ALONE}) == {
        "trajectory_id": "molmoweb/Shop--1#gpt-1",
        "actor": "gpt",
        "model": "unknown",
        "attempt": 1,
        "outcome": "done",
        "detail": "",
        "declared_success": None,
        "final_text": "12 EUR",
        "reward": None,
        "success": True,
        "judge": "webvoyager",
        "seconds": 7.0,
        "source": "molmoweb",
    }
    assert run.judge_text == "as shown"
    assert (run.task.objective, run.task.website) == ("Find a lamp.", SITE)
    opened, clicked, entered, selected, scrolled, hovered, answered, left = run.steps
    assert actions(opened) == [{"go_to_url": {"url": SITE}}]
    assert actions(clicked) == [{"click_coordinates": {"x": 720, "y": 450}}]
    assert actions(entered) == [{"input_text": {"index": 0, "text": "lamp", "clear_existing": False}}]
    assert actions(selected) == [{"send_keys": {"keys": "Control+a"}}]
    assert actions(scrolled) == [{"scroll": {"down": True, "num_pages": 0.5}}]
    assert hovered.error == "No counterpart for action 'hover_at': our action space has no such action"
    assert json.loads(hovered.response)["action"]["name"] == "hover_at"
    assert answered.error.endswith("a message that does not end the episode")
    assert actions(left) == [{"done": {"text": "12 EUR"}}]
    first = parse_reply(opened.response)
    assert (first.thinking, first.next_goal) == ("thought 1", "do goto")
    assert (clicked.observation.url, clicked.observation.title) == (SITE, "Shop")
    assert ImageStore(tmp_path / "out").get(left.observation.screenshot or "") == shot(7)
    assert {"steps.messages", "steps.observation.page_text", "declared_success"} <= set(run.missing)
    assert not {"success", "outcome", "task.objective", "seconds"} & set(run.missing)
    assert report["actions_not_mapped"] == {"hover_at": 1, "send_msg_to_user": 1}


def test_an_episode_that_ended_with_an_error(tmp_path):
    molmo_run(tmp_path / "runs/a/errors", MOLMO_ACTIONS[:2], error={"ENV_STEP_ERROR": "page closed"})
    (run,), _ = imported("molmoweb", tmp_path / "runs")
    assert (run.task.task_id, run.outcome, run.detail) == (
        "molmoweb/a",
        "crashed",
        "ENV_STEP_ERROR: page closed",
    )
    assert run.steps[1].results == (
        ActionResult(action="click_coordinates", text="ENV_STEP_ERROR: page closed", error=True),
    )


def test_a_step_without_an_action(tmp_path):
    folder = molmo_run(tmp_path / "runs/a", MOLMO_ACTIONS[:2])
    path = folder / "trajectory.json"
    steps = json.loads(path.read_text())
    nothing = {"thought": None, "action": None, "action_name": None}
    steps["2"] |= {
        "action": {"action_str": None, "action_description": None, "action_output": nothing},
        "error": {"ACTION_PREDICTION_ERROR": "no reply"},
        "raw_output": None,
    }
    path.write_text(json.dumps(steps))
    (run,), _ = imported("molmoweb", tmp_path / "runs")
    assert run.steps[1].error == "No action was recorded. ACTION_PREDICTION_ERROR: no reply"


@pytest.mark.parametrize(
    ("last", "outcome", "declared", "text"),
    [
        ([], "max_steps", None, ""),
        ([("send_msg_to_user", {"msg": "[ANSWER] 12"})], "max_steps", None, "12"),
        ([("send_msg_to_user", {"msg": "It is 12."}), MOLMO_ACTIONS[-1]], "done", None, "It is 12."),
        ([("report_infeasible", {"infeasibility_reason": "No shop."})], "done", False, "No shop."),
    ],
)
def test_how_episodes_end(tmp_path, last, outcome, declared, text):
    folder = molmo_run(tmp_path / "runs/a", (MOLMO_ACTIONS[0], *last))
    write_json(folder / "webvoyager_verdict.json", {"thought": "", "verdict": "SUCCESS"})
    (run,), _ = imported("molmoweb", tmp_path / "runs")
    assert (run.outcome, run.declared_success, run.final_text) == (outcome, declared, text)
    assert run.success == (outcome == "done" and declared is None)
    assert ("outcome" in run.missing) == (outcome == "max_steps")


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("click", {"bid": "a12", "button": "left", "click_type": "single"}),
        ("mouse_dblclick", {"x": 1, "y": 1}),
        ("mouse_click", {"x": 1, "y": 1, "button": "right"}),
        ("mouse_click", {"x": None, "y": 1}),
        ("scroll", {"delta_x": 10, "delta_y": 0}),
        ("scroll", {"delta_x": 0, "delta_y": 0}),
        ("scroll", {"delta_x": 0, "delta_y": "far"}),
        ("browser_nav", {"nav_type": "tab_focus", "index": -1}),
        ("browser_nav", {"nav_type": "reload"}),
        ("keyboard_press", {}),
        ("goto", {}),
        (None, None),
    ],
)
def test_actions_without_a_counterpart(name, params):
    with pytest.raises(UnmappedError):
        map_action(ActionOutput(action=params, action_name=name), Screen(1440, 900), "")


def test_damaged_folders_and_screenshots(tmp_path):
    root = tmp_path / "runs"
    (molmo_run(root / "good") / "images/screenshot_002.png").unlink()
    (molmo_run(root / "good2") / "webvoyager_verdict.json").write_text("{")
    (molmo_run(root / "torn") / "trajectory.json").write_text('{"1": ')
    write_json(root / "none/trajectory.json", {})
    write_json(root / "named/trajectory.json", {"first": {}})
    write_json(root / "odd/trajectory.json", {"1": {"screenshot": 3}})
    runs, report = imported("molmoweb", root)
    assert [run.task.task_id for run in runs] == ["molmoweb/good", "molmoweb/good2"]
    # Points are pixels, so they need no screenshot.
    assert actions(runs[0].steps[1]) == [{"click_coordinates": {"x": 720, "y": 450}}]
    assert report["missing"]["steps.observation.screenshot"] == {"runs": 1, "steps": 1}
    assert "success" in runs[1].missing
    reasons = {entry["run"]: entry["reason"] for entry in report["skipped"]}
    assert reasons.pop("torn").startswith("trajectory.json is not JSON")
    assert reasons == {
        "none": "trajectory.json has no step",
        "named": "trajectory.json: 'first' is no number of a step",
        "odd": "trajectory.json: step 1: screenshot: Input should be a valid string",
    }
