"""OpenWebRL's samples as trajectories; see `tests.importers.agent_runs`."""

import pytest

from collection.importers.common import UnmappedError
from collection.importers.coordinates import Screen
from collection.importers.openwebrl_actions import Call, map_calls
from rmsweb_jax.actions import parse_reply
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ActionResult, Tab
from tests.importers.agent_runs import RL_CALLS, SITE, rl_result, rl_sample, shot
from tests.importers.foreign_runs import write_json
from tests.importers.imports import OURS_ALONE, actions, imported


@pytest.mark.parametrize("turn", [False, True])
def test_every_field_of_a_sample(tmp_path, turn):
    rl_sample(tmp_path / "runs", turn=turn)
    rl_result(tmp_path / "runs")
    (run,), report = imported("openwebrl", tmp_path / "runs")
    assert run.model_dump(exclude={"steps", "task", "missing", *OURS_ALONE}) == {
        "trajectory_id": "openwebrl/webvoyager_83#gpt-1",
        "actor": "gpt",
        "model": "unknown",
        "attempt": 1,
        "outcome": "done",
        "detail": "",
        "declared_success": None,
        "final_text": "12 EUR",
        "reward": None,
        "success": True,
        "judge": "openwebrl judge (default)",
        "seconds": 0.0,
        "source": "openwebrl",
    }
    assert run.judge_text == "It is so. SUCCESS"
    assert (run.task.objective, run.task.website) == ("Find a lamp.", SITE)
    clicked, entered, dragged, scrolled, done = run.steps
    assert actions(clicked) == [{"click_coordinates": {"x": 720, "y": 450}}]
    assert clicked.results == (ActionResult(action="click_coordinates", text="Succeed: `click` executed."),)
    assert actions(entered) == [
        {"input_text": {"index": 0, "text": "lamp"}},
        {"send_keys": {"keys": "Enter"}},
    ]
    assert [one.text for one in entered.results] == [
        "Succeed: `write` executed.",
        "Succeed: `press_keys` executed.",
    ]
    assert dragged.error == "No counterpart for action 'drag': our action space has no such action"
    assert '"start_point_2d"' in dragged.response
    assert actions(scrolled) == [{"scroll": {"down": True, "num_pages": 0.5}}]
    assert actions(done) == [{"done": {"text": "12 EUR"}}] and not done.results
    for number, step in enumerate((clicked, entered, scrolled, done), start=1):
        reply = parse_reply(step.response)
        number += number > 2
        assert (reply.thinking, reply.next_goal) == (f"thought {number}", f"do step {number}")
    seen = entered.observation
    assert (seen.url, seen.title, seen.current_tab) == (SITE, "Shop", "0001")
    assert seen.tabs[0] == Tab(tab_id="0000", url="about:blank", title="")
    store = ImageStore(tmp_path / "out")
    assert [store.get(step.observation.screenshot or "") for step in run.steps] == [
        shot(number) for number in range(5)
    ]
    assert {"steps.messages", "model", "steps.usage", "declared_success"} <= set(run.missing)
    assert not {"success", "outcome", "task.objective", "steps.observation.url"} & set(run.missing)
    assert report["actions_not_mapped"] == {"drag": 1}


def test_a_page_with_its_address_alone_and_a_sample_without_a_result(tmp_path):
    path = rl_sample(tmp_path / "runs")
    text = path.read_text()
    tabs = f"Current tab: 1\\nAvailable tabs:\\n- Tab 0: about:blank\\n- Tab 1 (active): {SITE} - Shop"
    path.write_text(text.replace(tabs, f"url: {SITE}"))
    (run,), _ = imported("openwebrl", tmp_path / "runs")
    assert run.steps[0].observation.url == run.task.website == SITE
    assert not run.steps[0].observation.tabs and "success" in run.missing and not run.success


@pytest.mark.parametrize(
    "reward",
    [
        {"judge_timeout": True},
        {"judge": 0.0, "judge_text": "Judge not run for status=Status.ABORTED"},
        {"judge": None},
    ],
)
def test_no_verdict_is_made_of_a_judge_that_did_not_answer(tmp_path, reward):
    rl_sample(tmp_path / "runs")
    rl_result(tmp_path / "runs", **reward)
    (run,), _ = imported("openwebrl", tmp_path / "runs")
    assert (run.judge, run.success, "success" in run.missing) == ("", False, True)


def test_a_failure_is_a_verdict(tmp_path):
    rl_sample(tmp_path / "runs")
    rl_result(tmp_path / "runs", judge=0.0, judge_text="NOT SUCCESS")
    (run,), _ = imported("openwebrl", tmp_path / "runs")
    assert (bool(run.judge), run.success) == (True, False)


@pytest.mark.parametrize(
    ("status", "reason", "outcome"),
    [
        ("failed", "max_steps_exhausted", "max_steps"),
        ("failed", "format_error_failed", "failures"),
        ("truncated", "generation_length_limit", "failures"),
        ("aborted", "env_step_error", "crashed"),
        ("aborted", "generation_error: rollout_task_timeout after 900s", "timeout"),
    ],
)
def test_how_runs_end(tmp_path, status, reason, outcome):
    rl_sample(tmp_path / "runs", RL_CALLS[:2], status=status, terminate_reason=reason)
    (run,), _ = imported("openwebrl", tmp_path / "runs")
    assert (run.outcome, run.detail, run.final_text) == (outcome, reason, "")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("click", {"point_2d": [1, 1], "clicks": 2}),
        ("click", {"point_2d": [1, 1], "button": "right"}),
        ("click", {}),
        ("scroll", {"direction": "left"}),
        ("scroll", {"amount": 0}),
        ("scroll", {"point_2d": [5, 5]}),
        ("scroll", {"amount": "much"}),
        ("press_keys", {"keys": []}),
        ("press_keys", {"keys": ["Tab"], "presses": 50}),
        ("close_tab", {}),
        ("switch_tab", {"tab_index": -1}),
        ("call_user", {"question": "?"}),
        ("write", {}),
    ],
)
def test_calls_without_a_counterpart(name, arguments):
    with pytest.raises(UnmappedError):
        map_calls([Call(name, arguments)], Screen(1280, 720), "")


@pytest.mark.parametrize(
    ("name", "arguments", "mapped"),
    [
        (
            "press_keys",
            {"keys": ["Control", "a"], "is_hotkey": True},
            [{"send_keys": {"keys": "Control+a"}}],
        ),
        ("press_keys", {"keys": ["Tab"], "presses": 2}, [{"send_keys": {"keys": "Tab"}}] * 2),
        ("new_tab", {}, [{"go_to_url": {"url": "about:blank", "new_tab": True}}]),
        ("switch_tab", {"tab_index": 2}, [{"switch_tab": {"tab_id": "0002"}}]),
        ("close_tab", {}, [{"close_tab": {"tab_id": "0001"}}]),
        ("scroll", {"direction": "up", "amount": 7}, [{"scroll": {"down": False, "num_pages": 1.0}}]),
        ("go_back", {}, [{"go_back": {}}]),
    ],
)
def test_calls(name, arguments, mapped):
    found = map_calls([Call(name, arguments)], Screen(1280, 720), "0001")
    assert [action.to_json() for action in found] == mapped


def test_damaged_samples(tmp_path):
    root = tmp_path / "runs"
    good = rl_sample(root)
    good.write_text(good.read_text().replace("data:image/png;base64,iVBOR", "data:image/png;base64,AAAAA", 1))
    end = "_20260701_101500_completed_2steps.json"
    (root / f"torn{end}").write_text('{"llm_response": ')
    write_json(root / f"none{end}", {"llm_response": "", "llm_input_texts": "", "images": []})
    write_json(root / f"odd{end}", {"images": []})
    broken = rl_sample(root, RL_CALLS[:1], task="broken")
    broken.write_text(broken.read_text().replace('\\"name\\": \\"click\\"', '\\"name\\": click'))
    runs, report = imported("openwebrl", root)
    names = {run.task.task_id: run for run in runs}
    assert names.keys() == {"openwebrl/webvoyager_83", "openwebrl/broken"}
    assert names["openwebrl/broken"].steps[0].error == "Unusable reply: no tool call"
    # The size of the page is in its text, too.
    first = names["openwebrl/webvoyager_83"].steps[0]
    assert first.observation.screenshot is None
    assert actions(first) == [{"click_coordinates": {"x": 720, "y": 450}}]
    reasons = {entry["run"]: entry["reason"] for entry in report["skipped"]}
    assert reasons.pop(f"torn{end}").startswith(f"torn{end} is not JSON")
    assert reasons == {
        f"none{end}": f"none{end} has no reply of the agent",
        f"odd{end}": f"odd{end}: llm_response: Field required",
    }
