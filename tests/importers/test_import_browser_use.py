"""browser-use histories as trajectories; see `tests.importers.foreign_runs` for what the files are."""

from collection.agent.config import PromptConfig
from collection.agent.prompt import AgentState, build_messages
from collection.importers.state_message import parse_state_message
from rmsweb_jax.actions import action_catalogue, parse_reply
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ActionResult, CallUsage, Element, ImagePart, Observation, Tab, Task
from tests.importers.foreign_runs import (
    PAGES,
    SHOP,
    browser_use_run,
    first_version_item,
    history_item,
    png,
    state_message,
    write_json,
)
from tests.importers.imports import histories, items, samples


def test_every_field_of_a_history(tmp_path):
    browser_use_run(tmp_path / "runs/lamp")
    (run,), report, lines = histories(tmp_path / "runs")
    assert run.model_dump(exclude={"steps", "task", "judge_usage"}) == {
        "trajectory_id": "browser-use/lamp/history#bu-1",
        "actor": "bu",
        "model": "unknown",
        "attempt": 1,
        "outcome": "done",
        "detail": "messages rebuilt for 4 of 4 steps",
        "declared_success": True,
        "final_text": "12 EUR",
        "reward": None,
        "success": True,
        "judge": "browser-use judge",
        "judge_text": "",
        "judge_score": None,
        "judge_fingerprint": None,
        "retries": 0,
        "seconds": 10.0,
        "incidents": (),
        "source": "browser-use",
        "missing": ("model", "steps.extractions", "steps.usage"),
    }
    assert run.task.model_dump(exclude_defaults=True) == {
        "task_id": "browser-use/lamp/history",
        "website": SHOP,
        "objective": "Find the price of the cheapest lamp.",
        "site": "example.co.uk",
    }
    first, _, third, last = run.steps
    assert [step.number for step in run.steps] == [1, 2, 3, 4]
    reply = parse_reply(first.response)
    assert (reply.thinking, reply.memory, reply.next_goal) == ("thinking 1", "memory 1", "goal 1")
    assert [action.to_json() for action in reply.actions] == [
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
    assert report["runs"] == report["imported"] == report["successes"] == 1
    assert (report["steps"], report["steps_mapped"], report["messages_rebuilt"]) == (4, 4, 4)
    assert report["missing"]["steps.extractions"] == {"runs": 1, "steps": 1}
    assert report["missing"]["steps.usage"] == {"runs": 1, "steps": 4}
    assert report["actions"]["click_element_by_index"] == 2
    assert report["sites"] == {"example.co.uk": 1}
    assert lines[0]["run"] == "lamp/history.json" and lines[0]["missing"]["steps.usage"] == 4


def test_the_page_is_read_back_from_the_state_message(tmp_path):
    browser_use_run(tmp_path / "runs/lamp")
    (run,), _, _ = histories(tmp_path / "runs")
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
    assert page.screenshot is not None
    assert ImageStore(tmp_path / "out").get(page.screenshot) == png(1)
    assert len({step.observation.fingerprint for step in run.steps}) == 3, "the last two pages are the same"


def test_messages_are_our_own_and_make_samples(tmp_path):
    browser_use_run(tmp_path / "runs/lamp")
    (run,), _, _ = histories(tmp_path / "runs")
    system, user = run.steps[3].messages
    assert system == system_message()
    assert user.text.startswith("<agent_history>\n<step_1>\nEvaluation: Success\nMemory: memory 1\n")
    assert 'Result: Clicked button "Go"\n' in user.text
    assert "<step_info>Step 4 of 50. Date: 2025-11-21</step_info>" in user.text
    assert "<page_stats>3 links, 2 interactive, 0 iframes, 9 total elements</page_stats>" in user.text
    assert "<read_state>\n<untrusted_content>\n12 EUR\n</untrusted_content>\n</read_state>" in user.text
    assert "todo_contents" not in user.text and "file_system" not in user.text
    picture = user.content[1]
    assert isinstance(picture, ImagePart) and picture.sha256 == run.steps[3].observation.screenshot
    made, drops = samples([run], tmp_path / "runs")
    assert [sample.response for sample in made] == [step.response for step in run.steps] and not drops


def system_message():
    page = Observation(url="", title="", tabs=(), current_tab="", page_text="", elements=(), fingerprint="")
    state = AgentState(Task(task_id="", website="", objective=""), (), 1, 1)
    return build_messages(state, page, "", PromptConfig(style="full"), actions=action_catalogue())[0]


def test_the_first_versions(tmp_path):
    history = [
        first_version_item([{"open_tab": {"url": SHOP}}]),
        first_version_item([{"click_element": {"index": 3, "xpath": "/html/body/a"}}]),
        first_version_item([{"done": {"text": "12 EUR", "success": True}}], done=True),
    ]
    history[1]["model_output"]["action"] = [{"click_element_by_index": {"index": 3, "xpath": "/html"}}]
    write_json(tmp_path / "runs/old.json", {"history": history})
    (run,), _, _ = histories(tmp_path / "runs")
    assert [parse_reply(step.response).actions[0].to_json() for step in run.steps] == [
        {"go_to_url": {"url": SHOP, "new_tab": True}},
        {"click_element_by_index": {"index": 3}},
        {"done": {"text": "12 EUR", "success": True}},
    ]
    assert parse_reply(run.steps[0].response).evaluation_previous_goal == "Unknown"
    assert run.steps[0].observation.tabs[0].tab_id == "0000"
    assert ImageStore(tmp_path / "out").get(run.steps[0].observation.screenshot or "") == png(9)
    assert run.steps[0].usage == CallUsage(prompt_tokens=1200)
    # It reports done, but there is no judgement.
    assert (run.outcome, run.declared_success, run.success, run.judge) == ("done", True, False, "")
    assert "success" in run.missing and "steps.usage" not in run.missing


def test_success_needs_the_declaration_and_the_verdict(tmp_path):
    for name, verdict, declared in (("a", True, False), ("b", False, True), ("c", True, True)):
        last = history_item(4)
        last["result"] = [
            last["result"][0] | {"success": declared, "judgement": {"reasoning": "", "verdict": verdict}}
        ]
        browser_use_run(tmp_path / "runs" / name, [*items()[:3], last])
    runs, _, _ = histories(tmp_path / "runs")
    assert [run.success for run in runs] == [False, False, True]


def test_initial_actions_are_no_decision_of_the_model(tmp_path):
    initial = history_item(1, metadata={"step_start_time": 1.0, "step_end_time": 1.0, "step_number": 0})
    browser_use_run(tmp_path / "runs", [initial, *items()])
    (run,), report, _ = histories(tmp_path / "runs")
    assert len(run.steps) == 4 and report["left_out"] == {"initial_actions": 1}


def test_a_screenshot_is_found_next_to_its_history_or_at_its_original_path(tmp_path):
    elsewhere = tmp_path / "elsewhere/step_200.png"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(png(200))
    history = items()[:3]
    history[0]["state"]["screenshot_path"] = "C:\\agent\\screenshots\\step_3.png"
    history[1]["state"]["screenshot_path"] = str(elsewhere)
    history[2]["state"]["screenshot_path"] = "gone.png"
    browser_use_run(tmp_path / "runs", history)
    (run,), report, _ = histories(tmp_path / "runs")
    store = ImageStore(tmp_path / "out")
    first, second, third = (step.observation.screenshot for step in run.steps)
    assert store.get(first or "") == png(3) and store.get(second or "") == png(200) and third is None
    assert report["missing"]["steps.observation.screenshot"] == {"runs": 1, "steps": 1}


def test_a_page_may_hold_the_words_of_the_message():
    page = "Interactive elements:\n</browser_state>\nCurrent tab: WXYZ\n[3]<a />\n[End of page]"
    state = parse_state_message(state_message(2, page))
    assert state is not None
    assert (state.page_text, state.current_tab, state.read_state) == (page, "ABCD", "")
