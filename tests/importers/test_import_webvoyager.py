"""WebVoyager result folders as trajectories; see `tests.importers.foreign_runs`."""

from pathlib import Path

import pytest

from collection.config import QualityConfig
from collection.corpus.filter import FilterCounts, quality_filter
from collection.importers import TaskInfo, webvoyager
from collection.importers.common import UnmappedError
from rmsweb_jax.actions import parse_reply
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ActionResult, CallUsage, Element
from tests.importers.foreign_runs import (
    ELEMENTS,
    NOT_DONE,
    png,
    voyager_reply,
    voyager_user,
    webvoyager_messages,
    webvoyager_run,
    write_json,
)
from tests.importers.imports import OURS_ALONE, actions, imported


def voyage(root: Path, *replies: str, name="Amazon--0", **options):
    return webvoyager_run(root / f"results/20240101/task{name}", *webvoyager_messages(*replies), **options)


def test_every_field_of_a_webvoyager_folder(tmp_path):
    voyage(
        tmp_path,
        "Type [2]; green lamp",
        "Scroll [WINDOW]; down",
        "ANSWER; It costs $12.",
        calls=3,
        shots=(1, 3),
    )
    (run,), report = imported("webvoyager", tmp_path / "results")
    assert run.model_dump(exclude={"steps", "task", "missing", *OURS_ALONE}) == {
        "trajectory_id": "webvoyager/Amazon--0#gpt-1",
        "actor": "gpt",
        "model": "unknown",
        "attempt": 1,
        "outcome": "done",
        "detail": "",
        "declared_success": True,
        "final_text": "It costs $12.",
        "reward": None,
        "success": False,
        "judge": "",
        "seconds": 0.0,
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
    shots = [step.observation.screenshot for step in run.steps]
    assert shots[1] is None and ImageStore(tmp_path / "out").get(shots[2] or "") == png(3)
    assert all(step.messages == () for step in run.steps)
    for name in ("success", "model", "seconds", "steps.messages", "steps.results", "steps.response.memory"):
        assert name in run.missing
    assert "steps.usage" not in run.missing and "outcome" not in run.missing
    assert report["missing"]["steps.observation.page_text"] == {"runs": 1, "steps": 2}
    assert report["missing"]["steps.observation.screenshot"] == {"runs": 1, "steps": 1}


@pytest.mark.parametrize(
    ("text", "ours"),
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
    ],
)
def test_webvoyager_actions(text, ours):
    assert [action.to_json() for action in webvoyager.map_action(text)] == ours


@pytest.mark.parametrize(
    ("text", "name"),
    [("Click [0]", "Click [0]"), ("Type [0]; x", "Type [0]"), ("Hover [3]", "Hover"), ("", "?")],
)
def test_webvoyager_actions_without_a_counterpart(text, name):
    with pytest.raises(UnmappedError) as raised:
        webvoyager.map_action(text)
    assert raised.value.name == name


def test_failures_in_a_webvoyager_chat(tmp_path):
    webvoyager_run(
        tmp_path / "results/taskA--1",
        *webvoyager_messages("Click [5]"),
        {"role": "user", "content": NOT_DONE},
        {"role": "assistant", "content": "I would click the lamp."},
        {
            "role": "user",
            "content": "Format ERROR: Both 'Thought' and 'Action' should be included in your reply.",
        },
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
    assert "steps.response.action.scroll.num_pages" in run.missing
    # Two calls in the log for four replies: their tokens cannot be assigned.
    assert "steps.usage" in run.missing
    assert report["actions_not_mapped"] == {"Click [0]": 1} and report["steps_mapped"] == 2


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


def test_imported_results_never_become_samples(tmp_path):
    voyage(tmp_path, "Click [2]", "Click [5]", "ANSWER; 1")
    runs, _ = imported("webvoyager", tmp_path / "results", {"Amazon--0": TaskInfo(success=True)})
    drops = []
    assert not list(quality_filter(runs, QualityConfig(), FilterCounts(drops.append)))
    assert [(drop.reason, drop.detail) for drop in drops] == [("invalid_step", "step 1: no_messages")]


def test_text_only_runs_keep_their_trees_in_files(tmp_path):
    folder = webvoyager_run(
        tmp_path / "results/taskA--1",
        {
            "role": "user",
            "content": "Now given a task: X  Please interact with http://a.test/ and get the answer. ",
        },
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


def test_partial_webvoyager_folders_are_skipped_and_named(tmp_path):
    root = tmp_path / "results"
    voyage(tmp_path, "ANSWER; 1")
    (root / "taskEmpty--1").mkdir()
    write_json(root / "taskOnly--2/interact_messages.json", [{"role": "system", "content": "x"}])
    write_json(root / "taskOdd--3/interact_messages.json", [{"role": "user"}])
    (root / "taskTorn--4").mkdir()
    (root / "taskTorn--4/interact_messages.json").write_text('[{"role": "sys')
    runs, report = imported("webvoyager", root)
    assert len(runs) == 1 and report["runs"] == 5
    reasons = {entry["run"]: entry["reason"] for entry in report["skipped"]}
    assert reasons["taskEmpty--1"] == "no interact_messages.json"
    assert reasons["taskOnly--2"] == "interact_messages.json has no reply of the agent"
    assert reasons["taskOdd--3"] == "interact_messages.json: messages.0.content: Field required"
    assert reasons["taskTorn--4"].startswith("interact_messages.json is not JSON")
