"""Lean records omit fields and change nothing else."""

import json
from typing import Any

import msgspec
import pytest

from collection.corpus.lean import decode_head, decode_run, lean
from rmsweb_jax.records.schema import ActionResult, Element, ImagePart, Message, TextPart, Trajectory
from tests.trajectories import CLICK, SHOT, step, trajectory

TEXT = 'line\n\u2028\u0000 "quoted" \\ and é, 漢字, 🦉 ' * 200
MESSAGES = (
    Message(role="system", content=()),
    Message(role="user", content=(TextPart(text=TEXT), ImagePart(sha256=SHOT), TextPart(text=""))),
)


def full_run() -> Trajectory:
    """A run in which every field that is kept differs from its default."""
    results = (ActionResult(action="a", text=TEXT, error=True, changed=True, output="é"),)
    first = step(1, CLICK, results=results, elements=(("a", "Go"),))
    elements = (
        Element(index=2**40, tag="a", text=TEXT, attributes={"é": TEXT}),
        Element(index=None, tag="", text=""),
    )
    first = first.model_copy(
        update={
            "messages": MESSAGES,
            "repaired": True,
            "discarded": ("x",),
            "observation": first.observation.model_copy(update={"elements": elements}),
        }
    )
    run = trajectory(
        first,
        step(2, screenshot=None, error="bad", response="{"),
        constraints=("c",),
        outcome="max_steps",
        declared_success=False,
        final_text=TEXT,
        judge_score=0.5,
    )
    return run.model_copy(update={"task": run.task.model_copy(update={"category": "Travel"})})


def assert_same(small: Any, full: Any, where: str = "") -> None:
    """Every field of a lean record equals the full record's."""
    if isinstance(small, msgspec.Struct):
        for name in small.__struct_fields__:
            name = name.removesuffix("_json")
            assert_same(getattr(small, name), getattr(full, name), f"{where}.{name}")
    elif isinstance(small, tuple) and len(small) == len(full):
        for at, (one, other) in enumerate(zip(small, full, strict=True)):
            assert_same(one, other, f"{where}[{at}]")
    else:
        assert type(small) is type(full) and small == full, where


def test_every_field_is_the_full_records():
    full = full_run()
    entry = full.model_dump_json().encode()
    assert_same(decode_run(entry), full)
    assert lean(full) == decode_run(entry)
    head = decode_head(entry)
    assert (head.trajectory_id, head.task.task_id) == (full.trajectory_id, full.task.task_id)
    assert head.success is full.success
    # Also with its fields in another order, and letters as escapes.
    other = json.dumps(dict(reversed(full.model_dump(mode="json").items())), indent=2).encode()
    assert rb"\u00e9" in other
    assert_same(decode_run(other), full)


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": None},
        {"steps": [{}]},
        {"outcome": "lost"},
        {"trajectory_id": None},
        {"task": {"task_id": 7}},
    ],
)
def test_a_record_of_another_form_is_a_value_error(changes):
    record = json.dumps(full_run().model_dump(mode="json") | changes).encode()
    for entry in (record, record[:-1], b"", b"7", b"\xff\xfe"):
        with pytest.raises(ValueError):
            decode_run(entry)


@pytest.mark.parametrize("messages", [None, 7, [{"role": "robot", "content": []}], [{"role": "user"}]])
def test_messages_of_another_form_are_a_value_error_when_read(messages):
    record = full_run().model_dump(mode="json")
    record["steps"][0]["messages"] = messages
    first, _ = decode_run(json.dumps(record).encode()).steps
    with pytest.raises(ValueError):
        _ = first.messages
