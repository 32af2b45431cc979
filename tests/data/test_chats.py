"""Conversations of the user's own as samples: what becomes of each part, and what is refused."""

import base64
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from rmsweb_jax.data.chats import read_chats, write_chats
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.images import ImageStore, image_names

REPLY = '{"evaluation_previous_goal":"","memory":"","next_goal":"","action":[{"go_back":{}}]}'
TOOL = {"type": "function", "function": {"name": "price", "parameters": {"type": "object"}}}
CALL = {"function": {"name": "price", "arguments": {"of": "Lämp"}}}
ASK, TELL = {"role": "user", "content": "What is it?"}, {"role": "assistant", "content": "A lamp."}


def picture(colour: str, kind: str = "PNG") -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (8, 6), colour).save(data, kind)
    return data.getvalue()


def write(folder, *rows):
    path = folder / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n")
    return path


def read(path):
    return list(read_chats(path, ImageStore(path.parent / "out")))


def shown(message):
    """A message as text, with a mark for each image."""
    return (message.role, "".join("@" if part.type == "image" else part.text for part in message.content))


def test_each_reply_is_a_sample_after_all_that_was_said(tmp_path):
    data = base64.b64encode(picture("blue")).decode()
    (tmp_path / "red.png").write_bytes(picture("red"))
    (tmp_path / "green.jpg").write_bytes(picture("green", "JPEG"))
    parts = [
        {"type": "text", "text": "Two: "},
        {"type": "image"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
    ]
    row = {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "<image>\nWhat is it?"},
            {"role": "assistant", "content": "A lamp.", "tool_calls": None},
            {"role": "user", "content": parts},
            {"role": "assistant", "content": "Hm.", "weight": 0},
            {"role": "user", "content": "Well?"},
            {"role": "assistant", "content": REPLY},
        ],
        "images": ["red.png", {"path": "green.jpg"}],
        "source": "not read",
    }
    first, second = read(write(tmp_path, row, {"messages": [ASK, TELL]}))[:2]
    assert (first.sample_id, first.task_id, first.site, first.kind) == ("mine/1/2", "mine/1", "mine", "text")
    before = [("system", "Be brief."), ("user", "@\nWhat is it?")]
    assert [shown(one) for one in first.messages] == before and first.response == "A lamp."
    rest = [("assistant", "A lamp."), ("user", "Two: @@"), ("assistant", "Hm."), ("user", "Well?")]
    assert [shown(one) for one in second.messages] == before + rest
    assert (second.response, second.kind) == (REPLY, "action")
    store = ImageStore(tmp_path / "out")
    kept = [store.get(name) for name in image_names(second.messages)]
    assert kept == [picture("red"), picture("green", "JPEG"), picture("blue")]


def test_tools_calls_and_results_are_written_as_by_the_chat_template(tmp_path):
    results = [
        {"role": "tool", "content": "3 EUR"},
        {"role": "tool", "tool_call_id": "b", "content": "4 EUR"},
    ]
    calls = [CALL, {"name": "price", "arguments": '{"of": "desk"}'}]
    said = {"role": "assistant", "content": "Let me see.", "tool_calls": calls}
    row = {"messages": [ASK, said, *results, TELL], "tools": json.dumps([TOOL])}
    call, answer = read(write(tmp_path, row))
    assert call.messages[0].role == "system" and "<tools>\n" + json.dumps(TOOL) in call.messages[0].text
    assert call.response == (
        'Let me see.\n<tool_call>\n{"name": "price", "arguments": {"of": "Lämp"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "price", "arguments": {"of": "desk"}}\n</tool_call>'
    )
    wrapped = "<tool_response>\n{}\n</tool_response>"
    assert shown(answer.messages[-1]) == ("user", wrapped.format("3 EUR") + "\n" + wrapped.format("4 EUR"))
    assert answer.messages[-2].text == call.response and answer.response == "A lamp."


def test_a_list_parquet_and_prompts_with_completions_hold_the_same(tmp_path):
    images = [{"bytes": picture("red"), "path": None}]
    content = [{"type": "image", "text": None}, {"type": "text", "text": "What is it?"}]
    ask = {"role": "user", "content": content}
    tell = {"role": "assistant", "content": [{"type": "text", "text": "A lamp."}]}
    (tmp_path / "red.png").write_bytes(picture("red"))
    # Images that no message shows come before the user's first text, as in TRL.
    plain = read(write(tmp_path, {"messages": [ASK, TELL], "images": ["red.png"]}))
    # Some editors write a mark before UTF-8.
    listed = json.dumps([{"messages": [ask, tell], "images": ["red.png"]}])
    (tmp_path / "mine.json").write_text(listed, "utf-8-sig")
    whole = pa.Table.from_pylist([{"messages": [ask, tell], "images": images}])
    pq.write_table(whole, tmp_path / "mine.parquet")
    split = pa.Table.from_pylist([{"prompt": [ask], "completion": [tell], "images": images}])
    (tmp_path / "trl").mkdir()
    pq.write_table(split, tmp_path / "trl/mine.parquet")
    for path in ("mine.json", "mine.parquet", "trl/mine.parquet"):
        assert read(tmp_path / path) == plain
    assert shown(plain[0].messages[0]) == ("user", "@What is it?")


@pytest.mark.parametrize(
    "content",
    [
        "Say: <image>what?",
        [{"type": "text", "text": "Say: <image>what?"}],
        [{"type": "text", "text": "Say: "}, {"type": "text", "text": "<image>what?"}],
    ],
)
def test_a_placeholder_is_one_in_parts_too(tmp_path, content):
    (tmp_path / "red.png").write_bytes(picture("red"))
    row = {"messages": [{"role": "user", "content": content}, TELL], "images": ["red.png"]}
    (sample,) = read(write(tmp_path, row))
    assert shown(sample.messages[0]) == ("user", "Say: @what?")


def only(*messages, **row):
    return {"messages": list(messages), **row}


IMAGE = {"role": "user", "content": [{"type": "image"}]}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"text": "Hello"}, "it has no messages, and no prompt and completion of messages"),
        (only(), "messages: no list of messages"),
        (only(ASK), "no reply of the assistant to train on"),
        (only(ASK, {**TELL, "weight": 0}), "no reply of the assistant to train on"),
        (only(TELL), "the assistant speaks first"),
        (only(ASK, TELL, TELL), r"messages\[2\]: the assistant's message before has no answer"),
        (only({"from": "human", "value": "Hi"}, TELL), r"messages\[0\]: no message with a role of system"),
        (only({**ASK, "role": ["user"]}, TELL), r"messages\[0\]: no message with a role of system"),
        (only(ASK, {**TELL, "reasoning": "So"}), r"messages\[1\]: 'reasoning' is not trained on"),
        (only(ASK, {"role": "assistant", "content": ""}), r"messages\[1\]: an empty reply"),
        (only({"role": "user", "content": 7}, TELL), r"messages\[0\]: content is neither text nor"),
        (only({"role": "user", "content": [{"type": "video"}]}, TELL), r"content\[0\]: neither text nor an"),
        (only(IMAGE, TELL), r"messages\[0\]\.content\[0\]: it shows an image more than the 0 in images"),
        (only(IMAGE, TELL, images=["a.png", "b.png"]), r"images\[0\]: image a\.png cannot be read \(No such"),
        (only(IMAGE, TELL, images=["broken.png"]), r"images\[0\]: image broken\.png cannot be read"),
        (only(IMAGE, TELL, images=["good.png"] * 2), "2 images, and its messages show 1"),
        (
            only(IMAGE, TELL, images=["http://a.test/a.png"]),
            r"images\[0\]: give a path.*nothing is downloaded",
        ),
        (only(ASK, {**TELL, "tool_calls": [{"name": 1}]}), r"tool_calls\[0\]: no call of a function"),
        *(
            (
                only(ASK, {**TELL, "tool_calls": [{"name": "price", "arguments": arguments}]}),
                r"tool_calls\[0\]: arguments are no JSON object: ",
            )
            for arguments in ("not json", '["lamp"]', ["lamp"], "{} {}")
        ),
        (only(ASK, TELL, tools="{"), "tools: not JSON"),
    ],
)
def test_a_row_that_cannot_be_used_is_one_sentence(tmp_path, row, reason):
    (tmp_path / "good.png").write_bytes(picture("red"))
    (tmp_path / "broken.png").write_bytes(picture("red")[:-30])
    with pytest.raises(UserError, match=rf"^\S+/mine\.jsonl:2: [^\n]*{reason}[^\n]*$"):
        read(write(tmp_path, only(ASK, TELL), row))


def test_files_that_are_none(tmp_path):
    (tmp_path / "mine.jsonl").write_text('{"messages": []\n')
    (tmp_path / "mine.json").write_text("{}")
    (tmp_path / "mine.parquet").write_bytes(b"PAR1")
    for name, reason in (
        ("mine.jsonl", ":1: not JSON"),
        ("mine.json", "no JSON list"),
        ("mine.csv", "give a"),
    ):
        with pytest.raises(UserError, match=rf"^[^\n]*{name}:? ?{reason}"):
            read(tmp_path / name)
    for name, reason in (("mine.parquet", "no Parquet file"), ("none.jsonl", "cannot be read")):
        with pytest.raises(UserError, match=rf"^[^\n]*{name}: {reason}[^\n]*$"):
            read(tmp_path / name)


def test_a_changed_file_leaves_what_a_run_has_begun_with(tmp_path):
    begun = write_chats(write(tmp_path, {"messages": [ASK, TELL]}), tmp_path / "run")
    changed = write_chats(write(tmp_path, {"messages": [ASK, {**TELL, "content": "Two."}]}), tmp_path / "run")
    assert [next(read_dataset(folder)).response for folder in (begun, changed)] == ["A lamp.", "Two."]
