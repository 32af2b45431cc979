"""WebGym's episodes as trajectories; see `tests.importers.agent_runs`."""

import pytest

from collection.importers.common import UnmappedError
from collection.importers.coordinates import Screen
from collection.importers.webgym import map_action
from rmsweb_jax.actions import parse_reply
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ActionResult
from tests.importers.agent_runs import GYM_ACTIONS, SITE, gym_episode, shot
from tests.importers.foreign_runs import write_json
from tests.importers.imports import OURS_ALONE, actions, imported

SCREEN = Screen(1440, 900)


def test_every_field_of_an_episode(tmp_path):
    gym_episode(tmp_path / "runs/rollout/3")
    (run,), report = imported("webgym", tmp_path / "runs")
    assert run.model_dump(exclude={"steps", "task", "missing", *OURS_ALONE}) == {
        "trajectory_id": "webgym/17#gpt-1",
        "actor": "gpt",
        "model": "unknown",
        "attempt": 1,
        "outcome": "done",
        "detail": "",
        "declared_success": None,
        "final_text": "12 EUR",
        "reward": None,
        "success": True,
        "judge": "webgym evaluator",
        "seconds": 0.0,
        "source": "webgym",
    }
    assert run.judge_text == '["criterion 1: met"]'
    assert (run.task.objective, run.task.website) == ("Find a lamp.", SITE)
    clicked, entered, scrolled, hovered, opened, answered = run.steps
    assert actions(clicked) == [{"click_coordinates": {"x": 720, "y": 450}}]
    assert clicked.results == (ActionResult(action="click_coordinates", text="The page changed."),)
    assert actions(entered) == [
        {"click_coordinates": {"x": 144, "y": 180}},
        {"input_text": {"index": 0, "text": "lamp"}},
        {"send_keys": {"keys": "Enter"}},
    ]
    assert actions(scrolled) == [{"scroll": {"down": True, "num_pages": 0.944}}]
    assert hovered.error == "No counterpart for action 'hover': our action space has no such action"
    assert hovered.response == "Thought: thought 3\nAction: do hover"
    assert actions(opened) == [{"go_to_url": {"url": SITE}}]
    assert actions(answered) == [{"done": {"text": "12 EUR"}}]
    reply = parse_reply(clicked.response)
    assert (reply.thinking, reply.memory, reply.next_goal) == ("thought 0", "memory 0", "do click")
    assert (clicked.observation.url, clicked.observation.title) == (SITE, "Shop")
    # Next to the episode, wherever it was recorded.
    assert ImageStore(tmp_path / "out").get(opened.observation.screenshot or "") == shot(4)
    assert {"steps.messages", "model", "seconds", "steps.observation.tabs"} <= set(run.missing)
    assert not {"success", "outcome", "task.objective", "task.website"} & set(run.missing)
    assert report["actions_not_mapped"] == {"hover": 1}


@pytest.mark.parametrize(
    ("changes", "outcome", "judge", "success"),
    [
        ({"reward": 0.0}, "done", True, False),
        ({"reward": 0.73}, "done", True, True),  # Discounted for its length.
        ({"evaluation": None, "reward": 0.0}, "done", False, False),
        ({"evaluation": ["Evaluation failed: 429"], "reward": 0.0}, "done", False, False),
        ({"is_blocked": True, "reward": 0.0}, "blocked", True, False),
        ({"episode_timed_out": True, "evaluation": None, "reward": 0.0}, "timeout", False, False),
    ],
)
def test_outcomes_and_verdicts(tmp_path, changes, outcome, judge, success):
    gym_episode(tmp_path / "runs", **changes)
    (run,), _ = imported("webgym", tmp_path / "runs")
    assert (run.outcome, bool(run.judge), run.success) == (outcome, judge, success)
    assert ("success" in run.missing) == (not judge)


def test_episodes_of_one_task_are_its_attempts(tmp_path):
    for version in ("3", "4"):
        for number in range(2):
            gym_episode(tmp_path / "runs" / version, GYM_ACTIONS[:1], number=number, evaluation=None)
    runs, _ = imported("webgym", tmp_path / "runs")
    assert [(run.attempt, run.outcome) for run in runs] == [(number, "max_steps") for number in (1, 2, 3, 4)]


def test_without_a_screenshot_the_recorded_window_gives_the_points(tmp_path):
    folder = gym_episode(tmp_path / "runs").parent
    next(folder.glob("*_step_000.png")).unlink()
    (run,), report = imported("webgym", tmp_path / "runs")
    assert actions(run.steps[0]) == [{"click_coordinates": {"x": 720, "y": 450}}]
    assert report["missing"]["steps.observation.screenshot"] == {"runs": 1, "steps": 1}


@pytest.mark.parametrize(
    ("action", "mapped"),
    [
        (
            {"key": "click", "arguments": {"coordinates": [400, 400, 600, 600]}},
            {"click_coordinates": {"x": 720, "y": 450}},
        ),
        ({"key": "click", "arguments": {"element_id": "7"}}, {"click_element_by_index": {"index": 7}}),
        ({"key": "wait", "arguments": {}}, {"wait": {"seconds": 2}}),
        ({"key": "goback", "arguments": {"goback_to": "last_page"}}, {"go_back": {}}),
        ({"key": "goback", "arguments": {"goback_to": "homepage"}}, {"go_to_url": {"url": SITE}}),
        (
            {"key": "scroll", "arguments": {"direction": "up"}},
            {"scroll": {"down": False, "num_pages": 0.944}},
        ),
    ],
)
def test_actions(action, mapped):
    (found,) = map_action(action, SCREEN, SITE)
    assert found.to_json() == mapped


@pytest.mark.parametrize(
    "action",
    [
        {"key": "invalid_step", "arguments": {"error": "500"}},
        {"key": "click", "arguments": {"coordinates": [1]}},
        {"key": "click", "arguments": {"element_id": "0"}},
        {"key": "click"},
        {"key": "scroll", "arguments": {"coordinates": [1, 1], "direction": "up"}},
        {"key": "navigate", "arguments": {"url": ""}},
        {"key": "answer", "arguments": {"content": 3}},
        {},
    ],
)
def test_actions_without_a_counterpart(action):
    with pytest.raises(UnmappedError):
        map_action(action, SCREEN, SITE)


def test_damaged_episodes_are_skipped_and_named(tmp_path):
    root = tmp_path / "runs"
    gym_episode(root)
    write_json(root / "none_ep0.json", {"steps": []})
    write_json(root / "odd_ep0.json", {"steps": 3})
    (root / "torn_ep0.json").write_text('{"steps": [')
    write_json(root / "config.json", {})
    runs, report = imported("webgym", root)
    assert [run.task.task_id for run in runs] == ["webgym/17"]
    reasons = {entry["run"]: entry["reason"] for entry in report["skipped"]}
    assert reasons.pop("torn_ep0.json").startswith("torn_ep0.json is not JSON")
    assert reasons == {
        "none_ep0.json": "none_ep0.json has no step",
        "odd_ep0.json": "odd_ep0.json: steps: Input should be a valid tuple",
    }
