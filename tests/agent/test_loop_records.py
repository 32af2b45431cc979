"""Prompts and records of an episode."""

import dataclasses
import json
import re

from collection.agent.prompt import GUIDANCE_TAG
from rmsweb_jax.records.schema import Incident
from tests.agent.plain_episode import CLICK, DONE, Lines, Page, reply, run


def test_guidance_is_live_only():
    secret = "The wrong element was used."
    teacher = Lines(reply(CLICK), reply(DONE))
    trajectory = run(Page(), teacher, guidance=secret)
    assert all(secret in request.messages[-1].text for request in teacher.requests)
    assert all(f"<{GUIDANCE_TAG}>" in request.messages[-1].text for request in teacher.requests)
    text = trajectory.model_dump_json()
    assert secret not in text and GUIDANCE_TAG not in text


def test_displayed_files_are_part_of_the_answer():
    shown = {"done": {"text": "see", "success": True, "files_to_display": ["12 EUR"]}}
    assert run(Page(), Lines(reply(shown))).final_text == "see\n\n12 EUR"


def test_model_output_is_recorded_without_secrets():
    done = {"done": {"text": "it is hunter2", "success": True}}
    trajectory = run(Page(), Lines("hunter2?", reply(done)))
    assert "hunter2" not in trajectory.model_dump_json()
    assert trajectory.final_text == "it is <secret>pw</secret>"


def test_files_plan_and_notice_are_shown():
    page = Page(file_system="a.csv (3 bytes)", todo_contents="- look", notice="A window was closed.")
    teacher = Lines(reply(DONE))
    run(page, teacher)
    text = teacher.requests[0].messages[-1].text
    assert "<file_system>\na.csv (3 bytes)\n</file_system>" in text
    assert "<todo_contents>\n- look\n</todo_contents>" in text
    assert "\nA window was closed.\n</agent_state>" in text


def test_a_step_has_the_incidents_of_observation_and_actions():
    class Eventful(Page):
        def act(self, *args):
            return dataclasses.replace(super().act(*args), incidents=(Incident(kind="popup", detail="b"),))

    page = Eventful(incidents=(Incident(kind="dialog", detail="a"),))
    trajectory = run(page, Lines(reply(CLICK), reply(DONE)))
    assert [[one.detail for one in step.incidents] for step in trajectory.steps] == [["a", "b"], ["a"]]


def test_only_full_prompts_contain_the_date():
    for style, shown in (("full", True), ("compact", False)):
        teacher = Lines(reply(DONE))
        run(Page(), teacher, style=style)
        text = teacher.requests[0].messages[-1].text
        assert (
            re.search(r"<step_info>Step 1 of 100\. Date: \d{4}-\d\d-\d\d</step_info>", text) is not None
        ) is shown


def test_thinking_is_not_carried_over():
    text = json.dumps({"thinking": "deep thought", **json.loads(reply(CLICK))})
    teacher = Lines(text, reply(DONE))
    run(Page(), teacher)
    assert "deep thought" not in teacher.requests[1].messages[-1].text
