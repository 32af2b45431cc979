"""Result folders of WebVoyager and Online-Mind2Web as trajectories; see `tests.formats.foreign_runs`."""

import pytest

from collection.formats import TaskInfo
from collection.formats.common import UnmappedError
from collection.formats.webvoyager import mind2web_action, webvoyager_actions
from rmsweb_jax.actions import parse_reply
from rmsweb_jax.records.schema import ActionResult, CallUsage, Element
from tests.formats.foreign_runs import (
    ELEMENTS,
    NOT_DONE,
    OTHER_ID,
    TASK_ID,
    evaluation,
    mind2web_v1,
    mind2web_v2,
    png,
    voyager_reply,
    voyager_user,
    webvoyager_messages,
    webvoyager_run,
)
from tests.formats.imports import actions, imported, shots, summary


def voyage(root, *replies, **options):
    return webvoyager_run(root / "results/20240101/taskAmazon--0", *webvoyager_messages(*replies), **options)


def test_every_field_of_a_webvoyager_folder(tmp_path):
    replies = ("Type [2]; green lamp", "Scroll [WINDOW]; down", "ANSWER; It costs $12.")
    voyage(tmp_path, *replies, calls=3, shots=(1, 3))
    (run,), _ = imported("webvoyager", tmp_path / "results")
    assert summary(run) == {
        "outcome": "done",
        "declared_success": True,
        "final_text": "It costs $12.",
        "source": "webvoyager",
    }
    assert run.task.model_dump(exclude_defaults=True) == {
        "task_id": "webvoyager/Amazon--0",
        "website": "https://www.amazon.com/",
        "objective": "Find a green lamp.",
        "site": "amazon.com",
    }
    typed, scrolled, answered = run.steps
    assert actions(typed) == [
        {"input_text": {"index": 2, "text": "green lamp"}},
        {"send_keys": {"keys": "Enter"}},
    ]
    assert actions(scrolled) == [{"scroll": {"down": True, "num_pages": 0.67}}]
    assert actions(answered) == [{"done": {"text": "It costs $12.", "success": True}}]
    assert parse_reply(typed.response).thinking == "I think."
    assert [step.usage for step in run.steps] == [
        CallUsage(prompt_tokens=1000 + call, response_tokens=50 + call) for call in range(3)
    ]
    # The pages of earlier steps were clipped from the file; the screenshot of step 2 is lost.
    assert [step.observation.page_text for step in run.steps] == ["", "", ELEMENTS]
    assert [step.observation.url for step in run.steps] == ["https://www.amazon.com/", "", ""]
    assert answered.observation.elements == (
        Element(index=0, tag="", text="Home", attributes={"aria-label": "Start page"}),
        Element(index=2, tag="input", text="Search Amazon"),
        Element(index=5, tag="", text="EN"),
    )
    assert shots(run, tmp_path / "results") == [png(1), None, png(3)]
    unknown = {"success", "model", "seconds", "steps.messages", "steps.results", "steps.response.memory"}
    assert unknown <= set(run.missing) and not {"steps.usage", "outcome"} & set(run.missing)


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        ("Click [12]", [{"click_element_by_index": {"index": 12}}]),
        ("Click 12", [{"click_element_by_index": {"index": 12}}]),
        ("Type 3; [a b]", [{"input_text": {"index": 3, "text": "a b"}}, {"send_keys": {"keys": "Enter"}}]),
        ("Scroll [WINDOW]; [up]", [{"scroll": {"down": False, "num_pages": 0.67}}]),
        ("Scroll [7]; down", [{"scroll": {"down": True, "num_pages": 1.0, "frame_element_index": 7}}]),
        ("Wait", [{"wait": {"seconds": 5}}]),
        ("GoBack", [{"go_back": {}}]),
        ("Google", [{"go_to_url": {"url": "https://www.google.com/"}}]),
        ("ANSWER; [42]", [{"done": {"text": "42", "success": True}}]),
        ("Click [0]", None),
        ("Type [0]; x", None),
        ("Hover [3]", None),
        ("", None),
    ],
)
def test_webvoyager_actions(words, ours):
    if ours is None:
        with pytest.raises(UnmappedError):
            webvoyager_actions(words)
    else:
        assert [action.to_json() for action in webvoyager_actions(words)] == ours


def test_failures_in_a_webvoyager_chat(tmp_path):
    webvoyager_run(
        tmp_path / "results/taskA--1",
        *webvoyager_messages("Click [5]"),
        {"role": "user", "content": NOT_DONE},
        {"role": "assistant", "content": "I would click the lamp."},
        {"role": "user", "content": "Format ERROR: Both 'Thought' and 'Action' should be included."},
        voyager_reply("Click [0]"),
        voyager_user(f"Observation: ... refer to the textual information.\n{ELEMENTS}"),
        voyager_reply("Scroll [5]; up"),
        calls=2,
    )
    (run,), report = imported("webvoyager", tmp_path / "results")
    clicked, prose, zero, last = run.steps
    assert clicked.results == (ActionResult(action="click_element_by_index", text=NOT_DONE, error=True),)
    assert (prose.response, prose.error) == (
        "I would click the lamp.",
        "Unusable reply: not in the form Thought, Action",
    )
    assert zero.response == "Thought: I think.\n\nAction: Click [0]"
    assert zero.error.startswith("No counterpart for action 'Click [0]'")
    assert last.observation.page_text == ELEMENTS
    assert (run.outcome, run.declared_success, run.final_text) == ("max_steps", None, "")
    # Two calls in the log for four replies: their tokens cannot be assigned.
    assert {"steps.response.action.scroll.num_pages", "steps.usage"} <= set(run.missing)
    assert report["steps_mapped"] == 2


def test_a_tasks_file_brings_the_verdict_and_runs_are_numbered(tmp_path):
    voyage(tmp_path, "ANSWER; 1")
    webvoyager_run(tmp_path / "results/20240102/taskAmazon--0", *webvoyager_messages("Wait"))
    tasks = {"Amazon--0": TaskInfo(objective="Other words.", success=True)}
    runs, _ = imported("webvoyager", tmp_path / "results", tasks)
    assert [(run.trajectory_id, run.success, run.judge) for run in runs] == [
        ("webvoyager/Amazon--0#gpt-1", True, "given"),
        ("webvoyager/Amazon--0#gpt-2", False, "given"),
    ]
    assert runs[0].task.objective == "Other words."


def test_text_only_runs_keep_their_trees_in_files(tmp_path):
    start = "Now given a task: X  Please interact with http://a.test/ and get the answer. "
    folder = webvoyager_run(
        tmp_path / "results/taskA--1",
        {"role": "user", "content": start},
        voyager_reply("Click [3]"),
        {"role": "user", "content": "Observation: An accessibility tree. (Omitted in context.)"},
        voyager_reply("Click [4]"),
        {"role": "user", "content": "Observation: please ... give the Thought and Action.\n[3] link 'News'"},
        voyager_reply("ANSWER; 1"),
    )
    (folder / "accessibility_tree2.txt").write_text("[4] button 'Buy'\n")
    (run,), _ = imported("webvoyager", tmp_path / "results")
    texts = [step.observation.page_text for step in run.steps]
    assert texts == ["", "[4] button 'Buy'", "[3] link 'News'"]


def test_every_field_of_an_online_mind2web_v2_folder(tmp_path):
    mind2web_v2(tmp_path / "runs" / OTHER_ID)
    evaluation(tmp_path / "runs", "WebJudge_Online_Mind2Web_eval", {OTHER_ID: 1})
    (run,), _ = imported("online_mind2web", tmp_path / "runs", {OTHER_ID: TaskInfo("Other words.")})
    assert summary(run) == {
        "outcome": "done",
        "final_text": "It opens at 10.",
        "success": True,
        "judge": "WebJudge_Online_Mind2Web_eval_o4-mini",
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
    assert actions(waited) == [{"wait": {}}] and actions(done) == [{"done": {"text": "It opens at 10."}}]
    assert clicked.observation.url == "https://www.gamestop.com/stores"
    # A JPEG becomes a PNG, since records name PNGs.
    assert all((shot or b"").startswith(b"\x89PNG") for shot in shots(run, tmp_path / "runs"))
    assert {"steps.messages", "steps.observation.page_text", "steps.usage"} <= set(run.missing)
    assert not {"success", "steps.observation.url"} & set(run.missing)


def test_every_field_of_an_online_mind2web_v1_folder(tmp_path):
    mind2web_v1(tmp_path / "runs" / TASK_ID)
    tasks = {TASK_ID: TaskInfo(website="https://www.discogs.com/")}
    (run,), report = imported("online_mind2web", tmp_path / "runs", tasks)
    assert (run.outcome, run.success, run.judge, run.final_text) == ("done", False, "", "The page is open.")
    assert (run.task.site, run.task.website) == ("discogs.com", "https://www.discogs.com/")
    assert shots(run, tmp_path / "runs") == [png(0), png(9), png(10)]
    assert run.steps[0].response == 'Thought: Accept cookies.\nAction: <div role="button"> -> CLICK'
    assert actions(run.steps[2]) == [{"go_back": {}}]
    assert {"success", "steps.observation.url", "steps.results", "declared_success"} <= set(run.missing)
    names = ("CLICK", "TYPE")
    assert report["unusable"] == {f"No counterpart for action {name!r}": 1 for name in names}


@pytest.mark.parametrize(
    ("labels", "answer", "judge", "success"),
    [
        ({"WebJudge_Online_Mind2Web_eval": 1}, "x", "WebJudge_Online_Mind2Web_eval_o4-mini", True),
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
    assert (run.judge, run.success, "success" in run.missing) == (judge, success, not judge)


@pytest.mark.parametrize(
    "words",
    ['<a href="x"> -> CLICK', "Clicked it", "page -> NAVIGATE -> start | SUCCESS", '{"drag_drop": {}}', ""],
)
def test_mind2web_actions_without_a_counterpart(words):
    with pytest.raises(UnmappedError):
        mind2web_action(words)
