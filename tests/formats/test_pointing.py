"""Runs of agents that act on points of screenshots as trajectories; see `tests.formats.agent_runs`."""

import json

import pytest

from collection.formats import TaskInfo
from collection.formats.common import Screen, UnmappedError
from collection.formats.fara import fara_actions
from collection.formats.pointing import molmoweb_actions, openwebrl_actions, webgym_actions
from rmsweb_jax.actions import parse_reply
from rmsweb_jax.records.schema import ActionResult, Tab
from tests.formats.agent_runs import (
    FARA_CALLS,
    GYM_ACTIONS,
    MOLMO_ACTIONS,
    POINT_CALLS,
    RL_CALLS,
    SITE,
    fara_point,
    fara_run,
    fara_score,
    gym_episode,
    molmo_run,
    rl_result,
    rl_sample,
    shot,
)
from tests.formats.foreign_runs import write_json
from tests.formats.imports import actions, imported, shots, summary

SCREEN = Screen(1440, 900)
CENTRE = {"click_coordinates": {"x": 720, "y": 450}}
NEVER = {"steps.messages", "steps.observation.elements", "model"}


def one(kind, tmp_path, tasks=None):
    (run,), report = imported(kind, tmp_path / "runs", tasks)
    assert set(run.missing) >= NEVER
    return run, report


def test_every_field_of_a_fara_7b_folder(tmp_path):
    fara_score(fara_run(tmp_path / "runs/Shop--1", torn=True), "AgentTrek_eval-3", 1)
    run, report = one("fara", tmp_path, {"Shop--1": TaskInfo("Find a lamp.", SITE)})
    assert summary(run) == {
        "outcome": "done",
        "declared_success": True,
        "final_text": "It costs 12 EUR.",
        "success": True,
        "judge": "AgentTrek_eval-3",
        "judge_text": "Status: success",
        "seconds": 32.5,
        "source": "fara",
    }
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
        CENTRE,
        {"input_text": {"index": 0, "text": "lamp", "clear_existing": False}},
        {"send_keys": {"keys": "Enter"}},
    ]
    assert [(done.action, done.text) for done in entered.results] == [("click_coordinates", "I did type.")]
    assert moved.error == "No counterpart for action 'mouse_move': our action space has no such action"
    assert moved.response == 'Thought: thought 3\nAction: {"action": "mouse_move", "coordinate": [10, 10]}'
    assert actions(scrolled) == [{"scroll": {"down": True, "num_pages": 0.444}}]
    assert actions(ended) == [{"done": {"text": "thought 5", "success": True}}]
    # The screenshot before step N is that after action N - 1.
    assert shots(run, tmp_path / "runs") == [shot(number) for number in range(5)]
    assert entered.observation.url == SITE and "steps.usage" in run.missing
    assert not {"success", "task.objective", "seconds", "declared_success", "outcome"} & set(run.missing)
    assert (report["steps"], report["steps_mapped"], report["screenshots"]) == (5, 4, 5)


def test_a_fara_log_in_words_alone(tmp_path):
    fara_run(tmp_path / "runs/a", structured=False)
    run, _ = one("fara", tmp_path)
    assert len(run.steps) == 5 and actions(run.steps[4]) == [{"done": {"text": "thought 5", "success": True}}]
    assert {"task.objective", "success", "steps.observation.url"} <= set(run.missing) and not run.success


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
    folder = fara_run(tmp_path / "runs/a", calls=(*FARA_CALLS[:1], last))
    # WebJudge comes before other judges, and the tasks file before all.
    fara_score(folder, "AgentTrek_eval-3", 1 - score if score != "broken" else score)
    fara_score(folder, "WebJudge-3", score)
    run, _ = one("fara", tmp_path)
    assert (run.success, run.judge) == (success, "" if score == "broken" else "WebJudge-3")
    assert run.outcome == ("done" if last["action"] == "terminate" else "max_steps")
    assert one("fara", tmp_path, {"a": TaskInfo(success=True)})[0].judge == "given"


def test_every_field_of_a_fara_1_5_data_point(tmp_path):
    verdicts = {
        "rubric": {"result_type": "mm_rubric", "score": 0.4, "reasoning": "partly"},
        "outcome": {"result_type": "mm_rubric_outcome", "output_success": True, "reasoning": "seen"},
    }
    fara_point(tmp_path / "runs/task_1_ab", verification=verdicts)
    run, _ = one("fara", tmp_path)
    assert (run.outcome, run.final_text, run.declared_success) == ("done", "12 EUR", None)
    assert (run.success, run.judge, run.judge_text) == (True, "outcome", "seen")
    assert (run.task.objective, run.task.website) == ("Find a lamp.", SITE)
    clicked, entered, scrolled, asked, question, ended = run.steps
    assert actions(clicked) == [CENTRE]
    assert clicked.results == (ActionResult(action="click_coordinates", text="I did left_click."),)
    assert actions(entered) == [{"input_text": {"index": 0, "text": "lamp", "clear_existing": False}}]
    assert actions(scrolled) == [{"scroll": {"down": True, "num_pages": 0.5}}]
    assert actions(asked) == [{"extract_structured_data": {"query": "the price"}}]
    assert question.error.startswith("No counterpart for action 'ask_user_question'")
    assert actions(ended) == [{"done": {"text": "12 EUR"}}]
    assert shots(run, tmp_path / "runs")[5] == shot(5)
    assert "declared_success" in run.missing and "task.objective" not in run.missing


@pytest.mark.parametrize(
    ("status", "outcome"),
    [("complete", "max_steps"), ("aborted", "crashed"), ("waiting_for_user", "failures"), ("odd", "crashed")],
)
def test_a_data_point_that_did_not_end(tmp_path, status, outcome):
    fara_point(tmp_path / "runs/a", calls=POINT_CALLS[:2], status=status)
    run, _ = one("fara", tmp_path)
    assert (run.outcome, run.success, "outcome" in run.missing) == (outcome, False, True)


def test_points_need_the_size_of_the_screenshot(tmp_path):
    folder = fara_run(tmp_path / "runs/a")
    (folder / "screenshot1.png").unlink()
    (folder / "screenshot3.png").write_bytes(shot()[:200])
    run, _ = one("fara", tmp_path)
    assert run.steps[1].error == "No counterpart for action 'type': no screenshot gives the size of the page"
    assert run.steps[3].error.startswith("No counterpart for action 'scroll'")
    assert "steps.observation.screenshot" in run.missing


def test_every_field_of_a_molmoweb_folder(tmp_path):
    folder = molmo_run(tmp_path / "runs/Shop--1")
    write_json(folder / "webvoyager_verdict.json", {"thought": "as shown", "verdict": "SUCCESS"})
    run, _ = one("molmoweb", tmp_path)
    assert summary(run) == {
        "outcome": "done",
        "final_text": "12 EUR",
        "success": True,
        "judge": "webvoyager",
        "judge_text": "as shown",
        "seconds": 7.0,
        "source": "molmoweb",
    }
    assert (run.task.objective, run.task.website) == ("Find a lamp.", SITE)
    opened, clicked, entered, selected, scrolled, hovered, answered, left = run.steps
    assert actions(opened) == [{"go_to_url": {"url": SITE}}] and actions(clicked) == [CENTRE]
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
    assert shots(run, tmp_path / "runs")[7] == shot(7)
    assert {"steps.observation.page_text", "declared_success"} <= set(run.missing)
    assert not {"success", "outcome", "task.objective", "seconds"} & set(run.missing)


def test_molmoweb_errors(tmp_path):
    """An episode that ended with an error, and a step without an action."""
    folder = molmo_run(tmp_path / "runs/a/errors", MOLMO_ACTIONS[:2], error={"ENV_STEP_ERROR": "page closed"})
    run, _ = one("molmoweb", tmp_path)
    failed = ActionResult(action="click_coordinates", text="ENV_STEP_ERROR: page closed", error=True)
    assert (run.task.task_id, run.outcome, run.detail) == ("molmoweb/a", "crashed", failed.text)
    assert run.steps[1].results == (failed,)
    steps = json.loads((folder / "trajectory.json").read_text())
    nothing = {"thought": None, "action": None, "action_name": None}
    steps["2"] |= {
        "action": {"action_output": nothing},
        "error": {"PREDICTION": "no reply"},
        "raw_output": None,
    }
    write_json(folder / "trajectory.json", steps)
    run, _ = one("molmoweb", tmp_path)
    assert run.steps[1].error == "No action was recorded. PREDICTION: no reply"


@pytest.mark.parametrize(
    ("last", "outcome", "declared", "text"),
    [
        ([], "max_steps", None, ""),
        ([("send_msg_to_user", {"msg": "[ANSWER] 12"})], "max_steps", None, "12"),
        ([("send_msg_to_user", {"msg": "It is 12."}), MOLMO_ACTIONS[-1]], "done", None, "It is 12."),
        ([("report_infeasible", {"infeasibility_reason": "No shop."})], "done", False, "No shop."),
    ],
)
def test_how_molmoweb_episodes_end(tmp_path, last, outcome, declared, text):
    folder = molmo_run(tmp_path / "runs/a", (MOLMO_ACTIONS[0], *last))
    write_json(folder / "webvoyager_verdict.json", {"thought": "", "verdict": "SUCCESS"})
    run, _ = one("molmoweb", tmp_path)
    assert (run.outcome, run.declared_success, run.final_text) == (outcome, declared, text)
    assert run.success == (outcome == "done" and declared is None)
    assert ("outcome" in run.missing) == (outcome == "max_steps")


@pytest.mark.parametrize("turn", [False, True])
def test_every_field_of_an_openwebrl_sample(tmp_path, turn):
    rl_sample(tmp_path / "runs", turn=turn)
    rl_result(tmp_path / "runs")
    run, _ = one("openwebrl", tmp_path)
    assert summary(run) == {
        "outcome": "done",
        "final_text": "12 EUR",
        "success": True,
        "judge": "openwebrl judge (default)",
        "judge_text": "It is so. SUCCESS",
        "source": "openwebrl",
    }
    assert (run.task.objective, run.task.website) == ("Find a lamp.", SITE)
    clicked, entered, dragged, scrolled, done = run.steps
    assert actions(clicked) == [CENTRE]
    assert clicked.results == (ActionResult(action="click_coordinates", text="Succeed: `click` executed."),)
    assert actions(entered) == [
        {"input_text": {"index": 0, "text": "lamp"}},
        {"send_keys": {"keys": "Enter"}},
    ]
    assert entered.results[1].text == "Succeed: `press_keys` executed."
    assert dragged.error == "No counterpart for action 'drag': our action space has no such action"
    assert '"start_point_2d"' in dragged.response
    assert actions(scrolled) == [{"scroll": {"down": True, "num_pages": 0.5}}]
    assert actions(done) == [{"done": {"text": "12 EUR"}}] and not done.results
    for number, step in ((1, clicked), (2, entered), (4, scrolled), (5, done)):
        reply = parse_reply(step.response)
        assert (reply.thinking, reply.next_goal) == (f"thought {number}", f"do step {number}")
    seen = entered.observation
    assert (seen.url, seen.title, seen.current_tab) == (SITE, "Shop", "0001")
    assert seen.tabs[0] == Tab(tab_id="0000", url="about:blank", title="")
    assert shots(run, tmp_path / "runs") == [shot(number) for number in range(5)]
    assert not {"success", "outcome", "task.objective", "steps.observation.url"} & set(run.missing)


def test_an_openwebrl_page_with_its_address_alone_and_a_damaged_image(tmp_path):
    path = rl_sample(tmp_path / "runs")
    tabs = f"Current tab: 1\\nAvailable tabs:\\n- Tab 0: about:blank\\n- Tab 1 (active): {SITE} - Shop"
    text = path.read_text().replace(tabs, f"url: {SITE}")
    path.write_text(text.replace("data:image/png;base64,iVBOR", "data:image/png;base64,AAAAA", 1))
    run, _ = one("openwebrl", tmp_path)
    assert run.steps[0].observation.url == run.task.website == SITE
    assert not run.steps[0].observation.tabs and "success" in run.missing and not run.success
    # The size of the page is in its text, too.
    assert run.steps[0].observation.screenshot is None and actions(run.steps[0]) == [CENTRE]


@pytest.mark.parametrize(
    ("reward", "judged"),
    [
        ({"judge_timeout": True}, False),
        ({"judge": 0.0, "judge_text": "Judge not run for status=Status.ABORTED"}, False),
        ({"judge": None}, False),
        ({"judge": 0.0, "judge_text": "NOT SUCCESS"}, True),
    ],
)
def test_openwebrl_verdicts(tmp_path, reward, judged):
    rl_sample(tmp_path / "runs")
    rl_result(tmp_path / "runs", **reward)
    run, _ = one("openwebrl", tmp_path)
    assert (bool(run.judge), run.success, "success" in run.missing) == (judged, False, not judged)


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
def test_how_openwebrl_runs_end(tmp_path, status, reason, outcome):
    rl_sample(tmp_path / "runs", RL_CALLS[:2], status=status, terminate_reason=reason)
    run, _ = one("openwebrl", tmp_path)
    assert (run.outcome, run.detail, run.final_text) == (outcome, reason, "")


def test_every_field_of_a_webgym_episode(tmp_path):
    gym_episode(tmp_path / "runs/rollout/3")
    run, _ = one("webgym", tmp_path)
    assert summary(run) == {
        "outcome": "done",
        "final_text": "12 EUR",
        "success": True,
        "judge": "webgym evaluator",
        "judge_text": '["criterion 1: met"]',
        "source": "webgym",
    }
    assert (run.task.objective, run.task.website) == ("Find a lamp.", SITE)
    clicked, entered, scrolled, hovered, opened, answered = run.steps
    assert actions(clicked) == [CENTRE]
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
    assert shots(run, tmp_path / "runs")[4] == shot(4)
    assert {"seconds", "steps.observation.tabs"} <= set(run.missing)
    assert not {"success", "outcome", "task.objective", "task.website"} & set(run.missing)


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
def test_outcomes_and_verdicts_of_webgym(tmp_path, changes, outcome, judge, success):
    folder = gym_episode(tmp_path / "runs", **changes).parent
    next(folder.glob("*_step_000.png")).unlink()
    run, _ = one("webgym", tmp_path)
    assert (run.outcome, bool(run.judge), run.success) == (outcome, judge, success)
    assert ("success" in run.missing) == (not judge)
    # Without a screenshot the recorded window gives the points.
    assert actions(run.steps[0]) == [CENTRE] and "steps.observation.screenshot" in run.missing


def test_webgym_episodes_of_one_task_are_its_attempts(tmp_path):
    for version in ("3", "4"):
        for number in range(2):
            gym_episode(tmp_path / "runs" / version, GYM_ACTIONS[:1], number=number, evaluation=None)
    runs, _ = imported("webgym", tmp_path / "runs")
    assert [(run.attempt, run.outcome) for run in runs] == [(number, "max_steps") for number in (1, 2, 3, 4)]


def fara(**given):
    return fara_actions(given, SCREEN, newer=False) and fara_actions(given, SCREEN, newer=True)


def molmoweb(action_name=None, **given):
    return molmoweb_actions({"action_name": action_name, "action": given}, SCREEN, "")


def openwebrl(name, tab="0001", **given):
    return openwebrl_actions(name, given, SCREEN, tab)


def webgym(key=None, **given):
    return webgym_actions({"key": key, "arguments": given}, SCREEN, SITE)


TAB = {"send_keys": {"keys": "Tab"}}


@pytest.mark.parametrize(
    ("mapped", "ours"),
    [
        (
            openwebrl("press_keys", keys=["Control", "a"], is_hotkey=True),
            [{"send_keys": {"keys": "Control+a"}}],
        ),
        (openwebrl("press_keys", keys=["Tab"], presses=2), [TAB, TAB]),
        (openwebrl("new_tab"), [{"go_to_url": {"url": "about:blank", "new_tab": True}}]),
        (openwebrl("switch_tab", tab_index=2), [{"switch_tab": {"tab_id": "0002"}}]),
        (openwebrl("close_tab"), [{"close_tab": {"tab_id": "0001"}}]),
        (openwebrl("scroll", direction="up", amount=7), [{"scroll": {"down": False, "num_pages": 1.0}}]),
        (openwebrl("go_back"), [{"go_back": {}}]),
        (webgym("click", coordinates=[400, 400, 600, 600]), [CENTRE]),
        (webgym("click", element_id="7"), [{"click_element_by_index": {"index": 7}}]),
        (webgym("wait"), [{"wait": {"seconds": 2}}]),
        (webgym("goback", goback_to="last_page"), [{"go_back": {}}]),
        (webgym("goback", goback_to="homepage"), [{"go_to_url": {"url": SITE}}]),
        (webgym("scroll", direction="up"), [{"scroll": {"down": False, "num_pages": 0.944}}]),
    ],
)
def test_actions(mapped, ours):
    assert [action.to_json() for action in mapped] == ours


@pytest.mark.parametrize(
    ("mapper", "given"),
    [
        (fara, {"action": "right_click", "coordinate": [1, 1]}),
        (fara, {"action": "left_click"}),
        (fara, {"action": "left_click", "coordinate": [1, "x"]}),
        (fara, {"action": "left_click", "coordinate": [1, float("nan")]}),
        (fara, {"action": "key", "keys": []}),
        (fara, {"action": "scroll", "pixels": 0}),
        (fara, {"action": "wait", "time": "soon"}),
        (fara, {"action": "visit_url"}),
        (fara, {"action": "web_search"}),
        (fara, {}),
        (molmoweb, {"action_name": "click", "bid": "a12", "button": "left"}),
        (molmoweb, {"action_name": "mouse_click", "x": 1, "y": 1, "button": "right"}),
        (molmoweb, {"action_name": "mouse_click", "x": None, "y": 1}),
        (molmoweb, {"action_name": "scroll", "delta_x": 10, "delta_y": 0}),
        (molmoweb, {"action_name": "scroll", "delta_x": 0, "delta_y": 0}),
        (molmoweb, {"action_name": "scroll", "delta_x": 0, "delta_y": "far"}),
        (molmoweb, {"action_name": "browser_nav", "nav_type": "tab_focus", "index": -1}),
        (molmoweb, {"action_name": "browser_nav", "nav_type": "reload"}),
        (molmoweb, {"action_name": "keyboard_press"}),
        (molmoweb, {"action_name": "goto"}),
        (molmoweb, {}),
        (openwebrl, {"name": "click", "point_2d": [1, 1], "clicks": 2}),
        (openwebrl, {"name": "click", "point_2d": [1, 1], "button": "right"}),
        (openwebrl, {"name": "click"}),
        (openwebrl, {"name": "scroll", "direction": "left"}),
        (openwebrl, {"name": "scroll", "amount": 0}),
        (openwebrl, {"name": "scroll", "point_2d": [5, 5]}),
        (openwebrl, {"name": "scroll", "amount": "much"}),
        (openwebrl, {"name": "press_keys", "keys": []}),
        (openwebrl, {"name": "press_keys", "keys": ["Tab"], "presses": 50}),
        (openwebrl, {"name": "close_tab", "tab": ""}),
        (openwebrl, {"name": "switch_tab", "tab_index": -1}),
        (openwebrl, {"name": "call_user", "question": "?"}),
        (openwebrl, {"name": "write"}),
        (webgym, {"key": "invalid_step", "error": "500"}),
        (webgym, {"key": "click", "coordinates": [1]}),
        (webgym, {"key": "click", "element_id": "0"}),
        (webgym, {"key": "scroll", "coordinates": [1, 1], "direction": "up"}),
        (webgym, {"key": "navigate", "url": ""}),
        (webgym, {"key": "answer", "content": 3}),
        (webgym, {}),
    ],
)
def test_actions_without_a_counterpart(mapper, given):
    with pytest.raises(UnmappedError):
        mapper(**given)
