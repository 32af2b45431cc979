"""browser-use histories as trajectories; see `tests.formats.foreign_runs` for what the files are."""

import json

import pytest

from collection.agent.config import PromptConfig
from collection.agent.prompt import AgentState, build_messages
from collection.config import QualityConfig
from collection.corpus.filter import FilterCounts, make_samples, quality_filter
from collection.formats import TaskInfo
from collection.formats.browser_use import browser_use_action, parse_state_message
from collection.formats.common import UnmappedError
from rmsweb_jax.actions import action_catalogue, parse_reply
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ActionResult, CallUsage, Element, ImagePart, Observation, Tab, Task
from tests.formats.foreign_runs import (
    PAGES,
    SHOP,
    browser_use_run,
    first_version_item,
    history_item,
    png,
    state_message,
    without,
    write_json,
)
from tests.formats.imports import actions, imported, shots, summary


def items(**changes):
    """The four steps of a history."""
    return [history_item(number, **changes) for number in (1, 2, 3, 4)]


def lamp(tmp_path, history=None, tasks=None):
    browser_use_run(tmp_path / "runs/lamp", history)
    (run,), report = imported("browser_use", tmp_path / "runs", tasks)
    return run, report


def samples(run, tmp_path):
    """The samples that training would make of an imported run, and what was dropped on the way."""
    drops = []
    counts = FilterCounts(drops.append)
    kept = quality_filter([run], QualityConfig(), counts)
    return list(make_samples(kept, {}, [ImageStore(tmp_path / "out")], counts)), drops


def test_every_field_of_a_history(tmp_path):
    run, report = lamp(tmp_path)
    assert summary(run) == {
        "outcome": "done",
        "detail": "messages rebuilt for 4 of 4 steps",
        "declared_success": True,
        "final_text": "12 EUR",
        "success": True,
        "judge": "browser-use judge",
        "seconds": 10.0,
        "source": "browser-use",
    }
    assert run.missing == ("model", "steps.extractions", "steps.usage")
    assert run.task.model_dump(exclude_defaults=True) == {
        "task_id": "browser-use/lamp/history",
        "website": SHOP,
        "objective": "Find the price of the cheapest lamp.",
        "site": "example.co.uk",
    }
    first, _, third, last = run.steps
    reply = parse_reply(first.response)
    assert (reply.thinking, reply.memory, reply.next_goal) == ("thinking 1", "memory 1", "goal 1")
    assert actions(first) == [
        {"input_text": {"index": 12, "text": "lamp"}},
        {"click_element_by_index": {"index": 15}},
    ]
    assert first.results == (
        ActionResult(action="input_text", text="Input 'lamp' into element 12.", changed=True),
        ActionResult(action="click_element_by_index", text='Clicked button "Go"', changed=True),
    )
    assert third.results == (
        ActionResult(action="extract_structured_data", text="Query: price", output="<result>12 EUR</result>"),
    )
    assert last.results[0].text == "Task completed"
    assert (report["runs"], report["steps_mapped"], report["steps_with_messages"]) == (1, 4, 4)
    assert report["missing"]["steps.usage"] == report["sites"]["example.co.uk"] == 1


def test_the_page_is_read_back_from_the_state_message(tmp_path):
    run, _ = lamp(tmp_path)
    page, other, *_ = [step.observation for step in run.steps]
    assert page.page_text == PAGES[0].replace("|SCROLL[", "|SCROLL+")
    assert page.elements == (
        Element(index=None, tag="", text="Search"),
        Element(index=12, tag="input", text="", attributes={"id": "q", "aria-label": "Find lamps"}),
        Element(index=15, tag="button", text="Go"),
        Element(index=None, tag="button", text="Go"),
        Element(index=18, tag="div", text="", attributes={"role": "list"}),
    )
    assert (page.url, page.title, page.current_tab) == (SHOP, "Shop", "ABCD")
    assert page.tabs == (Tab(tab_id="ABCD", url=SHOP, title="Shop"),)
    assert (page.pages_above, page.pages_below, other.pages_below) == (0.0, 2.5, 0.0)
    assert shots(run, tmp_path / "runs") == [png(number) for number in (1, 2, 3, 4)]
    assert len({step.observation.fingerprint for step in run.steps}) == 3, "the last two pages are the same"


def test_messages_are_our_own_and_make_samples(tmp_path):
    run, _ = lamp(tmp_path)
    system, user = run.steps[3].messages
    empty = Observation(url="", title="", tabs=(), current_tab="", page_text="", elements=(), fingerprint="")
    state = AgentState(Task(task_id="", website="", objective=""), (), 1, 1)
    assert (
        system == build_messages(state, empty, "", PromptConfig(style="full"), actions=action_catalogue())[0]
    )
    assert user.text.startswith("<agent_history>\n<step_1>\nEvaluation: Success\nMemory: memory 1\n")
    assert 'Result: Clicked button "Go"\n' in user.text
    assert "<step_info>Step 4 of 50. Date: 2025-11-21</step_info>" in user.text
    assert "<page_stats>3 links, 2 interactive, 0 iframes, 9 total elements</page_stats>" in user.text
    assert "<read_state>\n<untrusted_content>\n12 EUR\n</untrusted_content>\n</read_state>" in user.text
    assert "todo_contents" not in user.text and "file_system" not in user.text
    picture = user.content[1]
    assert isinstance(picture, ImagePart) and picture.sha256 == run.steps[3].observation.screenshot
    made, drops = samples(run, tmp_path)
    assert [sample.response for sample in made] == [step.response for step in run.steps] and not drops


def test_the_first_versions(tmp_path):
    history = [
        first_version_item([{"open_tab": {"url": SHOP}}]),
        first_version_item([{"click_element_by_index": {"index": 3, "xpath": "/html"}}]),
        first_version_item([{"done": {"text": "12 EUR", "success": True}}], done=True),
    ]
    write_json(tmp_path / "runs/old.json", {"history": history})
    (run,), _ = imported("browser_use", tmp_path / "runs")
    assert [actions(step)[0] for step in run.steps] == [
        {"go_to_url": {"url": SHOP, "new_tab": True}},
        {"click_element_by_index": {"index": 3}},
        {"done": {"text": "12 EUR", "success": True}},
    ]
    assert parse_reply(run.steps[0].response).evaluation_previous_goal == "Unknown"
    assert run.steps[0].observation.tabs[0].tab_id == "0000" and shots(run, tmp_path / "runs")[0] == png(9)
    assert run.steps[0].usage == CallUsage(prompt_tokens=1200)
    # It reports done, but there is no judgement.
    assert (run.outcome, run.declared_success, run.success, run.judge) == ("done", True, False, "")
    assert "success" in run.missing and "steps.usage" not in run.missing


@pytest.mark.parametrize(("verdict", "declared"), [(True, False), (True, None), (False, True), (True, True)])
def test_success_needs_the_declaration_and_the_verdict(tmp_path, verdict, declared):
    last = history_item(4)
    judged = {"success": declared, "judgement": {"reasoning": "", "verdict": verdict}}
    last["result"] = [last["result"][0] | judged]
    # Step 0 holds initial actions, which are no decision of the model.
    initial = history_item(1, metadata={"step_start_time": 1.0, "step_end_time": 1.0, "step_number": 0})
    run, _ = lamp(tmp_path, [initial, *items()[:3], last])
    assert len(run.steps) == 4 and run.success == bool(verdict and declared)


def test_a_screenshot_is_found_next_to_its_history_or_at_its_original_path(tmp_path):
    elsewhere = tmp_path / "step_200.png"
    elsewhere.write_bytes(png(200))
    history = items()
    paths = ("C:\\agent\\screenshots\\step_3.png", str(elsewhere), "gone.png", "/tmp/step_4.png")
    for item, path in zip(history, paths, strict=True):
        item["state"]["screenshot_path"] = path
    browser_use_run(tmp_path / "runs", history)
    (tmp_path / "runs/screenshots/step_4.png").write_bytes(png(4)[:-15])
    (run,), _ = imported("browser_use", tmp_path / "runs")
    assert shots(run, tmp_path / "runs") == [png(3), png(200), None, None]
    assert "steps.observation.screenshot" in run.missing


def test_a_page_may_hold_the_words_of_the_message():
    page = (
        "Interactive elements:\n</browser_state>\n</agent_state>\nCurrent tab: WXYZ\n[3]<a />\n[End of page]"
    )
    state = parse_state_message(state_message(2, page))
    assert state is not None
    assert (state.page_text, state.current_tab, state.read_state) == (page, "ABCD", "")
    assert (state.max_steps, state.date) == (50, "2025-11-21")


def test_the_state_message_of_0_13(tmp_path):
    """The request is before the agent's state, the step and the date are after the page."""
    message = state_message(1, PAGES[0])
    request = "<user_request>\nFind the price of the cheapest lamp.\n</user_request>\n"
    step = "<step_info>Step1 maximum:50\nToday:2025-11-21</step_info>\n"
    newer = request + message.replace(request, "").replace(step, "") + step
    assert parse_state_message(newer) == parse_state_message(message)


@pytest.mark.parametrize(
    ("raw", "ours"),
    [
        ({"search": {"query": "q", "engine": "bing"}}, {"search_engine": {"query": "q", "engine": "bing"}}),
        (
            {"search": {"query": "q", "search_engine": "bing"}},
            {"search_engine": {"query": "q", "engine": "bing"}},
        ),
        ({"search_google": {"query": "q"}}, {"search_engine": {"query": "q", "engine": "google"}}),
        ({"navigate": {"url": SHOP, "new_tab": False}}, {"go_to_url": {"url": SHOP}}),
        (
            {"input": {"index": 0, "text": "x", "clear": False}},
            {"input_text": {"index": 0, "text": "x", "clear_existing": False}},
        ),
        (
            {"scroll": {"down": True, "pages": 2.0, "index": 4}},
            {"scroll": {"down": True, "num_pages": 2.0, "frame_element_index": 4}},
        ),
        ({"scroll": {"down": False, "index": 0}}, {"scroll": {"down": False, "num_pages": 1.0}}),
        ({"scroll_down": {"amount": 500}}, {"scroll": {"down": True, "num_pages": 0.5}}),
        (
            {"extract_content": {"goal": "prices", "should_strip_link_urls": False}},
            {"extract_structured_data": {"query": "prices", "extract_links": True}},
        ),
        ({"switch": {"tab_id": "ABCD"}}, {"switch_tab": {"tab_id": "ABCD"}}),
        ({"switch_tab": {"page_id": 2}}, {"switch_tab": {"tab_id": "0002"}}),
        ({"go_back": {"description": "back"}}, {"go_back": {}}),
        (
            {"done": {"success": True, "data": {"price": 12}}},
            {"done": {"text": '{"price": 12}', "success": True}},
        ),
        (
            {"click": {"index": 3}, "interacted_element": {"tag_name": "a"}},
            {"click_element_by_index": {"index": 3}},
        ),
        ({"click": {"coordinate_x": 3, "coordinate_y": 4}}, None),
        ({"click": {"index": 0}}, None),
        ({"my_tool": {"name": 1}}, None),
        ({"click": [3]}, None),
        ({}, None),
        ("click", None),
    ],
)
def test_actions_of_all_versions(raw, ours):
    if ours is None:
        with pytest.raises(UnmappedError):
            browser_use_action(raw)
    else:
        assert browser_use_action(raw).to_json() == ours


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
def test_fields_missing_from_a_history_are_not_invented_and_not_trained_on(tmp_path, history, missing, fault):
    run, report = lamp(tmp_path, history, {"lamp": TaskInfo(objective="Find the price.", success=True)})
    assert run.success and missing in run.missing and report["missing"][missing] == 1
    if "state_message" not in history[0]:
        assert run.steps[0].observation.page_text == "" and run.steps[0].observation.elements == ()
        assert "steps.results.changed" in run.missing
        assert not any(result.changed for step in run.steps for result in step.results)
    made, drops = samples(run, tmp_path)
    assert not made and [(drop.reason, drop.detail) for drop in drops] == [("invalid_step", fault)]


def test_a_step_without_a_counterpart_keeps_its_text_and_the_reason(tmp_path):
    strange = history_item(2)
    strange["model_output"]["action"] = [{"click": {"index": 3}}, {"drag_drop": {"element_source": "a"}}]
    silent = history_item(3, model_output=None, result=[{"error": "Rate limit reached."}])
    run, report = lamp(tmp_path, [history_item(1), strange, silent, history_item(4)])
    assert json.loads(run.steps[1].response) == strange["model_output"]
    assert run.steps[1].error == "No counterpart for action 'drag_drop': unknown action 'drag_drop'"
    assert run.steps[2].error == "No model output was recorded. Rate limit reached."
    assert not run.steps[1].results and not run.steps[2].results
    assert report["unusable"]["No counterpart for action 'drag_drop'"] == 1
    assert report["steps_mapped"] == 2 and "steps.response" in run.missing


def test_odd_values_do_not_break_an_import(tmp_path):
    odd = history_item(1)
    odd["model_output"]["memory"] = "half a pair \ud83d"
    odd["state"] = {"url": 3, "title": None, "tabs": [], "screenshot": "no base64!"}
    textless = history_item(2, state_message="")
    textless["model_output"]["action"] = "click"
    run, _ = lamp(tmp_path, [odd, textless])
    assert parse_reply(run.steps[0].response).memory == "half a pair ?"
    assert run.steps[0].observation.url == "" and run.steps[0].observation.screenshot is None
    assert run.steps[1].error == "Unusable reply: no action"
    assert (run.outcome, run.declared_success, run.success) == ("max_steps", None, False)
    assert "outcome" in run.missing and "steps.observation.url" in run.missing
