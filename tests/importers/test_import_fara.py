"""Fara's run folders as trajectories; see `tests.importers.agent_runs`."""

import json

import pytest

from collection.importers import TaskInfo
from collection.importers.common import UnmappedError
from collection.importers.coordinates import Screen
from collection.importers.fara_actions import map_action
from rmsweb_jax.actions import parse_reply
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ActionResult
from tests.importers.agent_runs import FARA_CALLS, POINT_CALLS, SITE, fara_point, fara_run, fara_score, shot
from tests.importers.imports import OURS_ALONE, actions, imported

SCREEN = Screen(1440, 900)


def test_every_field_of_a_fara_7b_folder(tmp_path):
    fara_score(fara_run(tmp_path / "runs/Shop--1"), "AgentTrek_eval-3", 1)
    tasks = {"Shop--1": TaskInfo("Find a lamp.", SITE)}
    (run,), report = imported("fara", tmp_path / "runs", tasks)
    assert run.model_dump(exclude={"steps", "task", "missing", *OURS_ALONE}) == {
        "trajectory_id": "fara/Shop--1#gpt-1",
        "actor": "gpt",
        "model": "unknown",
        "attempt": 1,
        "outcome": "done",
        "detail": "",
        "declared_success": True,
        "final_text": "It costs 12 EUR.",
        "reward": None,
        "success": True,
        "judge": "AgentTrek_eval-3",
        "seconds": 32.5,
        "source": "fara",
    }
    assert run.judge_text == "Status: success"
    assert run.task.model_dump(exclude_defaults=True) == {
        "task_id": "fara/Shop--1",
        "website": SITE,
        "objective": "Find a lamp.",
        "site": "example.co.uk",
    }
    opened, entered, moved, scrolled, ended = run.steps
    assert actions(opened) == [{"go_to_url": {"url": "https://shop.example.co.uk"}}]
    assert opened.results == (ActionResult(action="go_to_url", text="I did visit_url."),)
    assert parse_reply(opened.response).thinking == "thought 1"
    # The model sees 1428 x 896 pixels of the window's 1440 x 900.
    assert actions(entered) == [
        {"click_coordinates": {"x": 720, "y": 450}},
        {"input_text": {"index": 0, "text": "lamp", "clear_existing": False}},
        {"send_keys": {"keys": "Enter"}},
    ]
    assert [(one.action, one.text) for one in entered.results] == [("click_coordinates", "I did type.")]
    assert moved.error == "No counterpart for action 'mouse_move': our action space has no such action"
    assert moved.response == 'Thought: thought 3\nAction: {"action": "mouse_move", "coordinate": [10, 10]}'
    assert actions(scrolled) == [{"scroll": {"down": True, "num_pages": 0.444}}]
    assert actions(ended) == [{"done": {"text": "thought 5", "success": True}}]
    # The screenshot before step N is that after action N - 1.
    store = ImageStore(tmp_path / "out")
    assert [store.get(step.observation.screenshot or "") for step in run.steps] == [
        shot(number) for number in range(5)
    ]
    assert entered.observation.url == SITE
    assert {"steps.messages", "steps.observation.elements", "model", "steps.usage"} <= set(run.missing)
    assert not {"success", "task.objective", "seconds", "declared_success", "outcome"} & set(run.missing)
    assert report["actions_not_mapped"] == {"mouse_move": 1}
    assert (report["steps"], report["steps_mapped"], report["screenshots"]) == (5, 4, 5)


def test_a_log_in_words_alone_and_a_torn_one(tmp_path):
    fara_run(tmp_path / "runs/a", structured=False, torn=True)
    (run,), report = imported("fara", tmp_path / "runs")
    assert len(run.steps) == 5 and actions(run.steps[4]) == [{"done": {"text": "thought 5", "success": True}}]
    assert report["left_out"] == {"lines of web_surfer.log": 1}
    assert {"task.objective", "success", "steps.observation.url"} <= set(run.missing)
    assert not run.success and not run.judge


@pytest.mark.parametrize(
    ("last", "score", "success"),
    [
        ({"action": "terminate", "status": "failure"}, 1, False),
        ({"action": "terminate"}, 1, True),
        ({"action": "terminate"}, 0, False),
        ({"action": "wait", "time": 3}, 1, False),
        ({"action": "terminate", "status": "success"}, "broken", False),
    ],
)
def test_success_needs_the_agents_end_and_a_verdict(tmp_path, last, score, success):
    fara_score(fara_run(tmp_path / "runs/a", calls=(*FARA_CALLS[:1], last)), "WebJudge-3", score)
    (run,), _ = imported("fara", tmp_path / "runs")
    assert run.success == success
    assert run.outcome == ("done" if last["action"] == "terminate" else "max_steps")
    assert bool(run.judge) == (score != "broken")


def test_webjudge_comes_before_other_judges_and_the_tasks_file_before_all(tmp_path):
    folder = fara_run(tmp_path / "runs/a")
    fara_score(folder, "AgentTrek_eval-3", 1)
    fara_score(folder, "WebJudge_Online_Mind2Web_eval-3", 0)
    (run,), _ = imported("fara", tmp_path / "runs")
    assert (run.judge, run.success) == ("WebJudge_Online_Mind2Web_eval-3", False)
    (run,), _ = imported("fara", tmp_path / "runs", {"a": TaskInfo(success=True)})
    assert (run.judge, run.success) == ("given", True)


def test_every_field_of_a_fara_1_5_data_point(tmp_path):
    verdicts = {
        "rubric": {"result_type": "mm_rubric", "score": 0.4, "reasoning": "partly"},
        "outcome": {"result_type": "mm_rubric_outcome", "output_success": True, "reasoning": "seen"},
    }
    fara_point(tmp_path / "runs/task_1_ab", verification=verdicts)
    (run,), report = imported("fara", tmp_path / "runs")
    assert (run.outcome, run.final_text, run.declared_success) == ("done", "12 EUR", None)
    assert (run.success, run.judge, run.judge_text) == (True, "outcome", "seen")
    assert (run.task.objective, run.task.website) == ("Find a lamp.", SITE)
    clicked, entered, scrolled, asked, question, ended = run.steps
    assert actions(clicked) == [{"click_coordinates": {"x": 720, "y": 450}}]
    assert clicked.results == (ActionResult(action="click_coordinates", text="I did left_click."),)
    assert actions(entered) == [{"input_text": {"index": 0, "text": "lamp", "clear_existing": False}}]
    assert actions(scrolled) == [{"scroll": {"down": True, "num_pages": 0.5}}]
    assert actions(asked) == [{"extract_structured_data": {"query": "the price"}}]
    assert question.error.startswith("No counterpart for action 'ask_user_question'")
    assert actions(ended) == [{"done": {"text": "12 EUR"}}]
    assert ImageStore(tmp_path / "out").get(ended.observation.screenshot or "") == shot(5)
    assert "declared_success" in run.missing and "task.objective" not in run.missing
    assert report["actions_not_mapped"] == {"ask_user_question": 1}


@pytest.mark.parametrize(
    ("status", "outcome"),
    [("complete", "max_steps"), ("aborted", "crashed"), ("waiting_for_user", "failures"), ("odd", "crashed")],
)
def test_a_data_point_that_did_not_end(tmp_path, status, outcome):
    fara_point(tmp_path / "runs/a", calls=POINT_CALLS[:2], status=status)
    (run,), _ = imported("fara", tmp_path / "runs")
    assert (run.outcome, run.success, "outcome" in run.missing) == (outcome, False, True)


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [
        {"action": "right_click", "coordinate": [1, 1]},
        {"action": "left_click"},
        {"action": "left_click", "coordinate": [1, "x"]},
        {"action": "left_click", "coordinate": [1, float("nan")]},
        {"action": "key", "keys": []},
        {"action": "scroll", "pixels": 0},
        {"action": "wait", "time": "soon"},
        {"action": "visit_url"},
        {"action": "web_search"},
        {},
    ],
)
def test_actions_without_a_counterpart(arguments, newer):
    with pytest.raises(UnmappedError):
        map_action(arguments, SCREEN, newer)


def test_points_need_the_size_of_the_screenshot(tmp_path):
    folder = fara_run(tmp_path / "runs/a")
    (folder / "screenshot1.png").unlink()
    (folder / "screenshot3.png").write_bytes(shot()[:200])
    (run,), report = imported("fara", tmp_path / "runs")
    assert run.steps[1].error == "No counterpart for action 'type': no screenshot gives the size of the page"
    assert run.steps[3].error.startswith("No counterpart for action 'scroll'")
    assert report["missing"]["steps.observation.screenshot"] == {"runs": 1, "steps": 2}


def test_partial_folders_are_skipped_and_named(tmp_path):
    root = tmp_path / "runs"
    fara_run(root / "good")
    (fara_run(root / "stopped") / "stopped_final_answer.json").unlink()
    fara_run(root / "empty", calls=())
    (fara_run(root / "broken") / "broken_final_answer.json").write_text("{")
    fara_point(root / "point", calls=())
    (fara_point(root / "torn") / "data_point.json").write_text('{"task": ')
    (fara_point(root / "odd") / "data_point.json").write_text(json.dumps({"task": {}}))
    runs, report = imported("fara", root)
    assert [run.task.task_id for run in runs] == ["fara/good"]
    reasons = {entry["run"]: entry["reason"] for entry in report["skipped"]}
    assert reasons.pop("torn").startswith("data_point.json is not JSON")
    assert reasons.pop("broken").startswith("broken_final_answer.json is not JSON")
    assert reasons == {
        "stopped": "no *_final_answer.json: the run was stopped",
        "empty": "web_surfer.log has no action",
        "point": "data_point.json has no action",
        "odd": "data_point.json: task.task_id: Field required",
    }
