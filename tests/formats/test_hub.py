"""Sessions of the Hub: header, messages, and calls that are linked to their results."""

import json

from hypothesis import given
from hypothesis import strategies as st

from collection.formats import hub_session
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory
from tests.formats.runs import SECRET, episode, imported_episode, without_steps
from tests.trajectories import CLICK, DONE, TYPE, step, trajectory

FIELDS = {"role", "content", "reasoningContent", "toolCalls", "toolCallId", "timestamp", "model"}


def lines(run: Trajectory, **options) -> list[dict]:
    data = hub_session(run, lambda sha256: f"images/{sha256}.png", "0.1.0", **options)
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.decode().splitlines()]


def check_session(found: list[dict]) -> list[dict]:
    """Asserts what the format asks of a session; returns its messages."""
    header, *rest = found
    assert header["type"] == "session" and header["harness"] and header["id"]
    open_calls: list[str] = []
    for line in rest:
        assert line.keys() == {"type", "message"} and line["type"] == "message"
        message = line["message"]
        assert message.keys() <= FIELDS and isinstance(message["content"], str)
        assert message["role"] in ("user", "assistant", "system", "tool")
        if message["role"] == "tool":
            assert message["toolCallId"] == open_calls.pop(0)
            continue
        assert not open_calls and "toolCallId" not in message
        for call in message.get("toolCalls", ()):
            assert message["role"] == "assistant" and isinstance(
                json.loads(call["function"]["arguments"]), dict
            )
            open_calls.append(call["id"])
    assert not open_calls
    return [line["message"] for line in rest]


def test_every_line_of_an_episode(tmp_path):
    run = episode(ImageStore(tmp_path))
    found = lines(run)
    header = found[0]
    assert (header["id"], header["name"], header["harness"]) == (
        "shop/1#teacher-1",
        "Find a lamp.",
        "rmsweb-jax",
    )
    assert (header["task_id"], header["outcome"], header["success"]) == ("shop/1", "done", True)
    messages = check_session(found)
    assert [message["role"] for message in messages] == [
        *("system", "user"),
        *("assistant", "tool", "tool"),
        *("assistant", "user"),
        *("assistant", "tool"),
        *("assistant", "tool"),
    ]
    shots = [one.observation.screenshot for one in run.steps]
    page = f"URL: {run.task.website}\nform"
    asked = f"Find a lamp.\nOnly green ones.\n\n{page}"
    assert messages[1]["content"] == f"{asked}\n\n![screenshot](images/{shots[0]}.png)"
    first = messages[2]
    assert (first["content"], first["model"]) == ("go on", "scripted")
    assert json.loads(first["toolCalls"][0]["function"]["arguments"]) == {"index": 2, "text": SECRET}
    assert messages[3] == {"role": "tool", "toolCallId": "step-1-1", "content": "ok"}
    assert messages[4]["content"] == f"ok\n\n{page}\n\n![screenshot](images/{shots[1]}.png)"
    assert messages[5]["content"] == "I do not know."
    assert messages[6]["content"] == f"the reply is not a JSON object\n\n{page}"
    assert messages[8]["content"].startswith("Read the page.\n12 EUR\n\n")
    assert messages[10]["content"] == ""


def test_thoughts_are_apart(tmp_path):
    response = json.dumps(
        {
            "thinking": "hm",
            "evaluation_previous_goal": "",
            "memory": "seen",
            "next_goal": "",
            "action": [CLICK],
        }
    )
    run = trajectory(step(1, CLICK, response=response, screenshot=None))
    said = check_session(lines(run))[2]
    assert (said["reasoningContent"], said["content"]) == ("hm", "seen")


def test_imported_runs_and_runs_without_steps(tmp_path):
    messages = check_session(lines(imported_episode(ImageStore(tmp_path)), page_text=False))
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert "form" not in messages[0]["content"]
    assert check_session(lines(without_steps())) == [{"role": "user", "content": "Log in."}]


@given(
    st.lists(st.tuples(st.lists(st.sampled_from([CLICK, TYPE, DONE]), min_size=1), st.booleans()), max_size=5)
)
def test_any_episode_is_a_session(moves):
    steps = [
        step(number, *actions, screenshot=None, error="broken" if bad else "", results=())
        for number, (actions, bad) in enumerate(moves, start=1)
    ]
    check_session(lines(trajectory(*steps)))
