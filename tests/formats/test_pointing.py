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
    CENTRE,
    FARA,
    FARA_1_5,
    FARA_CALLS,
    GYM,
    GYM_ACTIONS,
    MOLMO,
    MOLMO_ACTIONS,
    POINT_CALLS,
    RL,
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
NEVER = {"steps.messages", "steps.observation.elements", "model"}


def one(kind, tmp_path, tasks=None):
    (run,), report = imported(kind, tmp_path / "runs", tasks)
    assert set(run.missing) >= NEVER
    return run, report


def check(run, folder, table, unknown, known, **fields):
    """Asserts what steps, screenshots and task have become, and what the record calls missing."""
    for step, (_, ours) in zip(run.steps, table, strict=True):
        if isinstance(ours, str):
            assert step.error.startswith("No counterpart for action '") and step.error.endswith(f": {ours}")
        else:
            assert not step.error and actions(step) == ours
    assert summary(run) == {"outcome": "done", "final_text": "12 EUR", "success": True, **fields}
    assert (run.task.objective, run.task.website, run.task.site) == ("Find a lamp.", SITE, "example.co.uk")
    assert shots(run, folder) == [shot(number) for number in range(len(table))]
    assert unknown <= set(run.missing) and not known & set(run.missing)


def test_every_field_of_a_fara_7b_folder(tmp_path):
    fara_score(fara_run(tmp_path / "runs/Shop--1", torn=True), "AgentTrek_eval-3", 1)
    run, report = one("fara", tmp_path, {"Shop--1": TaskInfo("Find a lamp.", SITE)})
    # The screenshot before step N is that after action N - 1.
    check(
        *(run, tmp_path / "runs", FARA, {"steps.usage"}),
        {"success", "task.objective", "seconds", "declared_success", "outcome"},
        final_text="It costs 12 EUR.",
        declared_success=True,
        judge="AgentTrek_eval-3",
        judge_text="Status: success",
        seconds=32.5,
        source="fara",
    )
    opened, entered, moved, *_ = run.steps
    assert opened.results == (ActionResult(action="go_to_url", text="I did visit_url."),)
    assert parse_reply(opened.response).thinking == "thought 1" and entered.observation.url == SITE
    assert [(done.action, done.text) for done in entered.results] == [("click_coordinates", "I did type.")]
    kept = 'Thought: thought 3\nAction: {"action": "pause_and_memorize_fact", "fact": "red"}'
    assert moved.response == kept
    assert (report["steps"], report["steps_mapped"], report["screenshots"]) == (5, 4, 5)


def test_a_fara_log_in_words_alone(tmp_path):
    fara_run(tmp_path / "runs/a", structured=False)
    run, _ = one("fara", tmp_path)
    assert len(run.steps) == 5 and actions(run.steps[4]) == FARA[4][1]
    assert {"task.objective", "success", "steps.observation.url"} <= set(run.missing) and not run.success


def test_every_field_of_a_fara_1_5_data_point(tmp_path):
    verdicts = {
        "rubric": {"result_type": "mm_rubric", "score": 0.4, "reasoning": "partly"},
        "outcome": {"result_type": "mm_rubric_outcome", "output_success": True, "reasoning": "seen"},
    }
    fara_point(tmp_path / "runs/task_1_ab", verification=verdicts)
    run, _ = one("fara", tmp_path)
    fields = {"judge": "outcome", "judge_text": "seen", "source": "fara"}
    check(run, tmp_path / "runs", FARA_1_5, {"declared_success"}, {"task.objective"}, **fields)
    assert run.steps[0].results == (ActionResult(action="click_coordinates", text="I did left_click."),)


def test_points_need_the_size_of_the_screenshot_or_of_the_window(tmp_path):
    folder = fara_run(tmp_path / "runs/a")
    (folder / "screenshot1.png").unlink()
    (folder / "screenshot3.png").write_bytes(shot()[:200])
    run, _ = one("fara", tmp_path)
    assert run.steps[1].error == "No counterpart for action 'type': no screenshot gives the size of the page"
    assert run.steps[3].error.startswith("No counterpart for action 'scroll'")
    assert "steps.observation.screenshot" in run.missing
    next(gym_episode(tmp_path / "runs/g").parent.glob("*_step_000.png")).unlink()
    run, _ = one("webgym", tmp_path)
    assert actions(run.steps[0]) == [CENTRE] and "steps.observation.screenshot" in run.missing


def test_every_field_of_a_molmoweb_folder(tmp_path):
    folder = molmo_run(tmp_path / "runs/Shop--1")
    write_json(folder / "webvoyager_verdict.json", {"thought": "as shown", "verdict": "SUCCESS"})
    run, _ = one("molmoweb", tmp_path)
    check(
        *(run, tmp_path / "runs", MOLMO, {"steps.observation.page_text", "declared_success"}),
        {"success", "outcome", "task.objective", "seconds"},
        judge="webvoyager",
        judge_text="as shown",
        seconds=7.0,
        source="molmoweb",
    )
    assert json.loads(run.steps[5].response)["action"]["name"] == "upload"
    first = parse_reply(run.steps[0].response)
    assert (first.thinking, first.next_goal) == ("thought 1", "do goto")
    assert (run.steps[1].observation.url, run.steps[1].observation.title) == (SITE, "Shop")


def test_molmoweb_errors(tmp_path):
    """An episode that ended with an error, and a step without an action."""
    folder = molmo_run(tmp_path / "runs/a/errors", MOLMO_ACTIONS[:2], error={"ENV_STEP_ERROR": "page closed"})
    run, _ = one("molmoweb", tmp_path)
    failed = ActionResult(action="click_coordinates", text="ENV_STEP_ERROR: page closed", error=True)
    assert (run.task.task_id, run.outcome, run.detail) == ("molmoweb/a", "crashed", failed.text)
    assert run.steps[1].results == (failed,)
    steps = json.loads((folder / "trajectory.json").read_text())
    nothing = {"thought": None, "action": None, "action_name": None}
    error = {"error": {"PREDICTION": "no reply"}, "raw_output": None}
    steps["2"] |= {"action": {"action_output": nothing}, **error}
    write_json(folder / "trajectory.json", steps)
    run, _ = one("molmoweb", tmp_path)
    assert run.steps[1].error == "No action was recorded. PREDICTION: no reply"


@pytest.mark.parametrize("turn", [False, True])
def test_every_field_of_an_openwebrl_sample(tmp_path, turn):
    rl_sample(tmp_path / "runs", turn=turn)
    rl_result(tmp_path / "runs")
    run, _ = one("openwebrl", tmp_path)
    check(
        *(run, tmp_path / "runs", RL, set()),
        {"success", "outcome", "task.objective", "steps.observation.url"},
        judge="openwebrl judge (default)",
        judge_text="It is so. SUCCESS",
        source="openwebrl",
    )
    clicked, entered, asked, _, done = run.steps
    assert clicked.results == (ActionResult(action="click_coordinates", text="Succeed: `click` executed."),)
    assert entered.results[1].text == "Succeed: `press_keys` executed." and not done.results
    assert '"call_user"' in asked.response
    reply = parse_reply(done.response)
    assert (reply.thinking, reply.next_goal) == ("thought 5", "do step 5")
    seen = entered.observation
    assert (seen.url, seen.title, seen.current_tab) == (SITE, "Shop", "0001")
    assert seen.tabs[0] == Tab(tab_id="0000", url="about:blank", title="")


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


def test_every_field_of_a_webgym_episode(tmp_path):
    gym_episode(tmp_path / "runs/rollout/3")
    run, _ = one("webgym", tmp_path)
    check(
        *(run, tmp_path / "runs", GYM, {"seconds", "steps.observation.tabs"}),
        {"success", "outcome", "task.objective", "task.website"},
        judge="webgym evaluator",
        judge_text='["criterion 1: met"]',
        source="webgym",
    )
    clicked, zoomed = run.steps[0], run.steps[3]
    assert clicked.results == (ActionResult(action="click_coordinates", text="The page changed."),)
    assert zoomed.response == "Thought: thought 3\nAction: do zoom"
    reply = parse_reply(clicked.response)
    assert (reply.thinking, reply.memory, reply.next_goal) == ("thought 0", "memory 0", "do click")
    assert (clicked.observation.url, clicked.observation.title) == (SITE, "Shop")


# --- How runs end, and their verdicts ---

SAID = ("send_msg_to_user", {"msg": "It is 12."})
INFEASIBLE = ("report_infeasible", {"infeasibility_reason": "No shop."})
CUT = (RL_CALLS[:2],)
ERROR = "generation_error: rollout_task_timeout after 900s"


def fara_ended(root, last, score):
    """WebJudge comes before other judges."""
    folder = fara_run(root / "a", calls=(*FARA_CALLS[:1], {"action": "terminate"} | last))
    fara_score(folder, "AgentTrek_eval-3", 1 - score if score != "broken" else score)
    fara_score(folder, "WebJudge-3", score)


def molmo_ended(root, *last):
    folder = molmo_run(root / "a", (MOLMO_ACTIONS[0], *last))
    write_json(folder / "webvoyager_verdict.json", {"thought": "", "verdict": "SUCCESS"})


def rl_end(status, reason):
    return {"status": status, "terminate_reason": reason}


def rl_ended(root, calls=RL_CALLS, **changes):
    rl_sample(root, calls, **changes)


def rl_judged(root, **reward):
    rl_sample(root)
    rl_result(root, **reward)


def gym_ended(root, **changes):
    gym_episode(root, **changes)


@pytest.mark.parametrize(
    ("kind", "write", "given", "changes", "outcome", "declared", "judge", "success"),
    [
        ("fara", fara_ended, ({"status": "failure"}, 1), {}, "done", False, "WebJudge-3", False),
        ("fara", fara_ended, ({}, 1), {}, "done", None, "WebJudge-3", True),
        ("fara", fara_ended, ({}, 0), {}, "done", None, "WebJudge-3", False),
        ("fara", fara_ended, ({"action": "wait"}, 1), {}, "max_steps", None, "WebJudge-3", False),
        ("fara", fara_ended, ({"status": "success"}, "broken"), {}, "done", True, "", False),
        ("molmoweb", molmo_ended, (), {}, "max_steps", None, "webvoyager", False),
        ("molmoweb", molmo_ended, (MOLMO_ACTIONS[-2],), {}, "max_steps", None, "webvoyager", False),
        ("molmoweb", molmo_ended, (SAID, MOLMO_ACTIONS[-1]), {}, "done", None, "webvoyager", True),
        ("molmoweb", molmo_ended, (INFEASIBLE,), {}, "done", False, "webvoyager", False),
        ("openwebrl", rl_judged, (), {"judge_timeout": True}, "done", None, "", False),
        ("openwebrl", rl_judged, (), {"judge": 0.0, "judge_text": "Judge not run"}, "done", None, "", False),
        ("openwebrl", rl_judged, (), {"judge": None}, "done", None, "", False),
        ("openwebrl", rl_judged, (), {"judge": 0.0}, "done", None, "openwebrl judge (default)", False),
        ("openwebrl", rl_ended, CUT, rl_end("failed", "max_steps_exhausted"), "max_steps", None, "", False),
        ("openwebrl", rl_ended, CUT, rl_end("failed", "format_error_failed"), "failures", None, "", False),
        ("openwebrl", rl_ended, CUT, rl_end("truncated", "too_long"), "failures", None, "", False),
        ("openwebrl", rl_ended, CUT, rl_end("aborted", "env_step_error"), "crashed", None, "", False),
        ("openwebrl", rl_ended, CUT, rl_end("aborted", ERROR), "timeout", None, "", False),
        ("webgym", gym_ended, (), {"reward": 0.0}, "done", None, "webgym evaluator", False),
        # Discounted for its length.
        ("webgym", gym_ended, (), {"reward": 0.73}, "done", None, "webgym evaluator", True),
        ("webgym", gym_ended, (), {"evaluation": None}, "done", None, "", False),
        ("webgym", gym_ended, (), {"evaluation": ["Evaluation failed: 429"]}, "done", None, "", False),
        ("webgym", gym_ended, (), {"is_blocked": True}, "blocked", None, "webgym evaluator", False),
        ("webgym", gym_ended, (), {"episode_timed_out": True}, "timeout", None, "webgym evaluator", False),
    ],
)
def test_success_needs_the_agents_end_and_a_verdict(
    tmp_path, kind, write, given, changes, outcome, declared, judge, success
):
    write(tmp_path / "runs", *given, **changes)
    run, _ = one(kind, tmp_path)
    assert (run.outcome, run.declared_success, run.judge, run.success) == (outcome, declared, judge, success)
    assert ("success" in run.missing) == (not judge)
    assert run.detail == changes.get("terminate_reason", "")
    if kind == "molmoweb" and given:
        assert run.final_text in ("12 EUR", "It is 12.", "No shop.")
    # The tasks file comes before all.
    tasks = {run.task.task_id.partition("/")[2]: TaskInfo(success=True)}
    assert one(kind, tmp_path, tasks)[0].judge == "given"


@pytest.mark.parametrize(
    ("status", "outcome"),
    [("complete", "max_steps"), ("aborted", "crashed"), ("waiting_for_user", "failures"), ("odd", "crashed")],
)
def test_a_data_point_that_did_not_end(tmp_path, status, outcome):
    fara_point(tmp_path / "runs/a", calls=POINT_CALLS[:2], status=status)
    run, _ = one("fara", tmp_path)
    assert (run.outcome, run.success, "outcome" in run.missing) == (outcome, False, True)


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
AT_CENTRE, UP_A_PAGE = {"x": 720, "y": 450}, {"down": False, "num_pages": 0.944}
TWICE, HOVERED = [{"click_coordinates": AT_CENTRE | {"double": True}}], [{"hover_coordinates": AT_CENTRE}]
DRAGGED = [{"drag_coordinates": AT_CENTRE | {"to_x": 144, "to_y": 180}}]
SCROLLED = [{"scroll_coordinates": AT_CENTRE | {"down": True, "num_pages": 0.5}}]
UP = fara_actions({"action": "scroll", "pixels": 300}, SCREEN, newer=False)


@pytest.mark.parametrize(
    ("mapped", "ours"),
    [
        (
            openwebrl("press_keys", keys=["Control", "a"], is_hotkey=True),
            [{"send_keys": {"keys": "Control+a"}}],
        ),
        (UP, [{"scroll": {"down": False, "num_pages": 0.444}}]),
        (openwebrl("press_keys", keys=["Tab"], presses=2), [TAB, TAB]),
        (openwebrl("new_tab"), [{"go_to_url": {"url": "about:blank", "new_tab": True}}]),
        (openwebrl("switch_tab", tab_index=2), [{"switch_tab": {"tab_id": "0002"}}]),
        (openwebrl("close_tab"), [{"close_tab": {"tab_id": "0001"}}]),
        (openwebrl("scroll", direction="up", amount=7), [{"scroll": {"down": False, "num_pages": 1.0}}]),
        (openwebrl("go_back"), [{"go_back": {}}]),
        (openwebrl("click", point_2d=[500, 500], clicks=2), TWICE),
        (openwebrl("hover", point_2d=[500, 500]), HOVERED),
        (openwebrl("drag", start_point_2d=[500, 500], end_point_2d=[100, 200]), DRAGGED),
        (openwebrl("scroll", point_2d=[500, 500], amount=0.5), SCROLLED),
        (molmoweb("mouse_dblclick", x=720, y=450, click_type="double"), TWICE),
        (molmoweb("mouse_move", x=720, y=450), HOVERED),
        (molmoweb("mouse_drag_and_drop", from_x=720, from_y=450, to_x=144, to_y=180), DRAGGED),
        (molmoweb("scroll_at", x=720, y=450, delta_x=0, delta_y=450), SCROLLED),
        (fara_actions({"action": "double_click", "coordinate": [500, 500]}, SCREEN, newer=True), TWICE),
        (fara_actions({"action": "mouse_move", "coordinate": [714, 448]}, SCREEN, newer=False), HOVERED),
        (webgym("hover", coordinates=[500, 500]), HOVERED),
        (
            webgym("scroll", direction="up", coordinates=[500, 500]),
            [{"scroll_coordinates": AT_CENTRE | UP_A_PAGE}],
        ),
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


# Malformed ones once for each way to read a value; `tests.formats.test_damage` has any others.
@pytest.mark.parametrize(
    ("mapper", "given"),
    [
        (fara, {"action": "right_click", "coordinate": [1, 1]}),
        (fara, {"action": "left_click", "coordinate": [1, float("nan")]}),
        (fara, {"action": "key", "keys": []}),
        (fara, {"action": "scroll", "pixels": 0}),
        (fara, {"action": "wait", "time": "soon"}),
        (fara, {"action": "visit_url"}),
        (molmoweb, {"action_name": "click", "bid": "a12", "button": "left"}),
        (molmoweb, {"action_name": "mouse_click", "x": 1, "y": 1, "button": "right"}),
        (molmoweb, {"action_name": "scroll", "delta_x": 10, "delta_y": 5}),
        (molmoweb, {"action_name": "scroll", "delta_x": 0, "delta_y": "far"}),
        (molmoweb, {"action_name": "browser_nav", "nav_type": "reload"}),
        (openwebrl, {"name": "click", "point_2d": [1, 1], "clicks": 3}),
        (openwebrl, {"name": "click", "point_2d": [1, 1], "button": "right"}),
        (openwebrl, {"name": "scroll", "direction": "left"}),
        (openwebrl, {"name": "drag", "start_point_2d": [5, 5]}),
        (openwebrl, {"name": "press_keys", "keys": ["Tab"], "presses": 50}),
        (openwebrl, {"name": "close_tab", "tab": ""}),
        (webgym, {"key": "click", "element_id": "0"}),
        (webgym, {"key": "scroll", "coordinates": [1], "direction": "up"}),
        (webgym, {"key": "navigate", "url": ""}),
    ],
)
def test_actions_without_a_counterpart(mapper, given):
    with pytest.raises(UnmappedError):
        mapper(**given)
