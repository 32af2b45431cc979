"""Lean records omit fields and change nothing else, in every schema version."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.corpus.lean import decode_head, decode_run, lean
from rmsweb_jax.records.schema import (
    ActionResult,
    Element,
    ImagePart,
    Message,
    Observation,
    Step,
    Task,
    TextPart,
    Trajectory,
)
from tests.records.sets import trajectory

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
NAME = st.sampled_from(["0" * 64, "a1" * 32])
MESSAGES = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(["system", "user", "assistant"]),
        content=st.lists(
            st.one_of(st.builds(TextPart, text=TEXT), st.builds(ImagePart, sha256=NAME)), max_size=2
        ).map(tuple),
    ),
    max_size=2,
).map(tuple)
ELEMENTS = st.lists(
    st.builds(
        Element,
        index=st.none() | st.integers(0, 2**40),
        tag=TEXT,
        text=TEXT,
        attributes=st.dictionaries(TEXT, TEXT, max_size=2),
    ),
    max_size=3,
).map(tuple)
OBSERVATIONS = st.builds(
    Observation,
    url=TEXT,
    title=TEXT,
    tabs=st.just(()),
    current_tab=TEXT,
    page_text=TEXT,
    elements=ELEMENTS,
    fingerprint=TEXT,
    screenshot=st.none() | NAME,
)
RESULTS = st.builds(
    ActionResult, action=TEXT, text=TEXT, error=st.booleans(), changed=st.booleans(), output=TEXT
)
STEPS = st.builds(
    Step,
    number=st.integers(1, 500),
    observation=OBSERVATIONS,
    messages=MESSAGES,
    response=TEXT,
    results=st.lists(RESULTS, max_size=2).map(tuple),
    error=TEXT,
    repaired=st.booleans(),
    discarded=st.lists(TEXT, max_size=1).map(tuple),
)
TASKS = st.builds(
    Task,
    task_id=TEXT,
    website=TEXT,
    objective=TEXT,
    constraints=st.lists(TEXT, max_size=2).map(tuple),
    category=TEXT,
    environment=st.sampled_from(["web", "miniwob", "app"]),
    site=TEXT,
    seed=st.none() | st.integers(-5, 5),
)
TRAJECTORIES = st.builds(
    Trajectory,
    trajectory_id=TEXT,
    task=TASKS,
    actor=TEXT,
    model=TEXT,
    attempt=st.integers(1, 9),
    steps=st.lists(STEPS, max_size=3).map(tuple),
    outcome=st.sampled_from(["done", "max_steps", "unreachable", "crashed"]),
    declared_success=st.none() | st.booleans(),
    final_text=TEXT,
    reward=st.none() | st.floats(-1, 1),
    success=st.booleans(),
    judge_text=TEXT,
    judge_score=st.none() | st.floats(0, 1),
    retries=st.integers(0, 3),
)


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


@given(TRAJECTORIES)
def test_every_field_is_the_full_records(full):
    entry = full.model_dump_json().encode()
    small = decode_run(entry)
    assert_same(small, full)
    assert lean(full) == small
    head = decode_head(entry)
    assert (head.trajectory_id, head.task.task_id, head.success) == (
        full.trajectory_id,
        full.task.task_id,
        full.success,
    )


def test_fields_in_another_order_and_in_escapes():
    full = trajectory(3, None)
    entry = json.dumps(dict(reversed(full.model_dump(mode="json").items())), indent=2).encode()
    assert rb"\u00e9" in entry
    assert_same(decode_run(entry), full)


def test_messages_come_whole():
    text = 'line\n\u2028\u0000 "quoted" \\ and é, 漢字, 🦉 ' * 200
    parts = (TextPart(text=text), ImagePart(sha256="0" * 64), TextPart(text=""))
    messages = (Message(role="system", content=()), Message(role="user", content=parts))
    one = trajectory(1, None)
    full = one.model_copy(update={"steps": (one.steps[0].model_copy(update={"messages": messages}),)})
    (step,) = decode_run(full.model_dump_json().encode()).steps
    assert step.messages == messages
    assert step.messages[1].text == text


@pytest.mark.parametrize("read", [decode_run, decode_head])
@pytest.mark.parametrize("entry", [b"", b"[]", b"7", b"{}", b"\xff\xfe", b'{"unknown": 1}', b'{"task": {}}'])
def test_other_bytes_are_a_value_error(entry, read):
    with pytest.raises(ValueError):
        read(entry)


def test_a_record_cut_off_anywhere_is_a_value_error():
    entry = trajectory(2, None).model_dump_json().encode()
    for end in range(0, len(entry), 7):
        for read in (decode_run, decode_head):
            with pytest.raises(ValueError):
                read(entry[:end])


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": None},
        {"steps": [{}]},
        {"steps": [7]},
        {"outcome": "lost"},
        {"attempt": "first"},
        {"trajectory_id": None},
        {"task": {"task_id": 7}},
        {"success": "yes"},
    ],
)
def test_fields_of_other_types_are_a_value_error(changes):
    record = trajectory(2, None).model_dump(mode="json") | changes
    with pytest.raises(ValueError):
        decode_run(json.dumps(record).encode())


@pytest.mark.parametrize("messages", [None, 7, [{"role": "robot", "content": []}], [{"role": "user"}]])
def test_messages_of_another_form_are_a_value_error_when_read(messages):
    record = trajectory(2, None).model_dump(mode="json")
    record["steps"][0]["messages"] = messages
    (step,) = decode_run(json.dumps(record).encode()).steps
    with pytest.raises(ValueError):
        _ = step.messages
