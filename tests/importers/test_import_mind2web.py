"""Online-Mind2Web result folders as trajectories; see `tests.importers.foreign_runs`."""

import pytest

from collection.importers import TaskInfo
from collection.importers.common import UnmappedError
from collection.importers.online_mind2web import map_action
from rmsweb_jax.actions import parse_reply
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ActionResult
from tests.importers.foreign_runs import (
    OTHER_ID,
    TASK_ID,
    evaluation,
    mind2web_v1,
    mind2web_v2,
    png,
    write_json,
)
from tests.importers.imports import OURS_ALONE, actions, imported


def test_every_field_of_an_online_mind2web_v2_folder(tmp_path):
    mind2web_v2(tmp_path / "runs" / OTHER_ID)
    evaluation(tmp_path / "runs", "WebJudge_Online_Mind2Web_eval", {OTHER_ID: 1})
    (run,), report = imported("online_mind2web", tmp_path / "runs")
    assert run.model_dump(exclude={"steps", "task", "missing", *OURS_ALONE}) == {
        "trajectory_id": f"online-mind2web/{OTHER_ID}#gpt-1",
        "actor": "gpt",
        "model": "unknown",
        "attempt": 1,
        "outcome": "done",
        "detail": "",
        "declared_success": None,
        "final_text": "It opens at 10.",
        "reward": None,
        "success": True,
        "judge": "WebJudge_Online_Mind2Web_eval_o4-mini",
        "seconds": 0.0,
        "source": "online-mind2web",
    }
    assert run.task.model_dump(exclude_defaults=True) == {
        "task_id": f"online-mind2web/{OTHER_ID}",
        "website": "https://www.gamestop.com/",
        "objective": "Find the store's hours.",
        "site": "gamestop.com",
    }
    opened, clicked, waited, done = run.steps
    assert actions(opened) == [{"go_to_url": {"url": "https://www.gamestop.com/"}}]
    assert opened.results == (ActionResult(action="go_to_url", text="SUCCESS"),)
    assert parse_reply(opened.response).thinking == "thought 0"
    assert clicked.response == (
        "Thought: thought 1\nAction: CLICK coords(320, 180) -> click primary result | FAILED"
    )
    assert clicked.error == "No counterpart for action 'CLICK': its text names no element by index"
    assert actions(waited) == [{"wait": {}}]
    assert waited.results == (ActionResult(action="wait", text="SUCCESS"),)
    assert actions(done) == [{"done": {"text": "It opens at 10."}}]
    assert clicked.observation.url == "https://www.gamestop.com/stores"
    # A JPEG becomes a PNG, since records name PNGs.
    stored = ImageStore(tmp_path / "out").get(clicked.observation.screenshot or "")
    assert stored.startswith(b"\x89PNG")
    for name in (
        "steps.messages",
        "steps.observation.page_text",
        "steps.observation.elements",
        "steps.usage",
    ):
        assert name in run.missing
    assert "success" not in run.missing and "steps.observation.url" not in run.missing
    assert report["actions_not_mapped"] == {"CLICK": 1}
    assert (report["steps"], report["steps_mapped"], report["screenshots"]) == (4, 3, 4)


def test_every_field_of_an_online_mind2web_v1_folder(tmp_path):
    mind2web_v1(tmp_path / "runs" / TASK_ID)
    tasks = {TASK_ID: TaskInfo(website="https://www.discogs.com/")}
    (run,), report = imported("online_mind2web", tmp_path / "runs", tasks)
    assert (run.outcome, run.success, run.judge, run.final_text) == ("done", False, "", "The page is open.")
    assert (run.task.site, run.task.website) == ("discogs.com", "https://www.discogs.com/")
    store = ImageStore(tmp_path / "out")
    assert [store.get(step.observation.screenshot or "") for step in run.steps] == [png(0), png(9), png(10)]
    assert [step.error.split(":")[0] for step in run.steps] == [
        "No counterpart for action 'CLICK'",
        "No counterpart for action 'TYPE'",
        "",
    ]
    assert run.steps[0].response == 'Thought: Accept cookies.\nAction: <div role="button"> -> CLICK'
    assert actions(run.steps[2]) == [{"go_back": {}}]
    assert {"success", "steps.observation.url", "steps.results", "declared_success"} <= set(run.missing)
    assert report["actions_not_mapped"] == {"CLICK": 1, "TYPE": 1}


@pytest.mark.parametrize(
    ("labels", "answer", "judge", "success"),
    [
        ({"WebJudge_Online_Mind2Web_eval": 1}, "x", "WebJudge_Online_Mind2Web_eval_o4-mini", True),
        ({"WebJudge_Online_Mind2Web_eval": 0}, "x", "WebJudge_Online_Mind2Web_eval_o4-mini", False),
        (
            {"Autonomous_eval": 1, "WebJudge_Online_Mind2Web_eval": 0},
            "x",
            "WebJudge_Online_Mind2Web_eval_o4-mini",
            False,
        ),
        ({"Autonomous_eval": 1}, "x", "Autonomous_eval_o4-mini", True),
        ({"Autonomous_eval": None}, "x", "", False),
        # Passed by the judge, but the agent never said that it was finished.
        ({"WebJudge_Online_Mind2Web_eval": 1}, None, "WebJudge_Online_Mind2Web_eval_o4-mini", False),
    ],
)
def test_the_judge_s_label_decides(tmp_path, labels, answer, judge, success):
    mind2web_v1(tmp_path / "runs" / TASK_ID, final_result_response=answer)
    for mode, label in labels.items():
        evaluation(tmp_path, mode, {OTHER_ID: 1, TASK_ID: label}, torn=True)
    (run,), _ = imported("online_mind2web", tmp_path / "runs")
    assert (run.judge, run.success) == (judge, success)
    assert ("success" in run.missing) == (not judge)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('<a href="x"> -> CLICK', "CLICK"),
        ("Clicked the big button", "?"),
        ("page -> NAVIGATE -> open start page | SUCCESS", "NAVIGATE"),
        ('{"drag_drop": {}}', "drag_drop"),
        ("", "?"),
    ],
)
def test_mind2web_actions_without_a_counterpart(text, name):
    with pytest.raises(UnmappedError) as raised:
        map_action(text)
    assert raised.value.name == name


def test_partial_mind2web_folders_are_skipped_and_named(tmp_path):
    root = tmp_path / "runs"
    mind2web_v1(root / "good")
    (root / "empty/trajectory").mkdir(parents=True)
    mind2web_v1(root / "none", action_history=[])
    mind2web_v1(root / "odd", action_history=3)
    mind2web_v2(root / "newer", schema_version="online-mind2web-v3")
    write_json(root / "list/result.json", [])
    runs, report = imported("online_mind2web", root)
    assert [run.task.task_id for run in runs] == ["online-mind2web/good"]
    assert {entry["run"]: entry["reason"] for entry in report["skipped"]} == {
        "empty": "no result.json",
        "none": "result.json holds no action",
        "odd": "result.json: action_history: Input should be a valid tuple",
        "newer": "result.json: schema_version: Input should be 'online-mind2web-v2'",
        "list": "result.json: the file: Input should be a valid dictionary or instance of ResultV1",
    }
