"""Samples and prompts as other programs' messages: what their loaders look for, and back again."""

import io
import json

import pyarrow.parquet as pq
import pytest
import transformers
from PIL import Image

from rmsweb_jax.data.chats import read_chats
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.checkpoint import resolve_model
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.messages import WRITERS
from rmsweb_jax.records.schema import ImagePart, Message, RlPrompt, SftSample, TextPart
from tests.records.sets import png, trajectories

REPLY = '{"evaluation_previous_goal":"","memory":"","next_goal":"<image>","action":[{"go_back":{}}]}'


def said(role, *parts):
    content = [TextPart(text=part) if isinstance(part, str) else part for part in parts]
    return Message(role=role, content=tuple(content))


@pytest.fixture
def folders(tmp_path):
    """An SFT corpus and RL prompts: with two screenshots and a page that has a placeholder, and without."""
    for name in ("sft", "rl"):
        store = ImageStore(tmp_path / name)
        shots = [ImagePart(sha256=store.put(png(number))) for number in range(2)]
        system = said("system", "You operate a web page.")
        seen = (system, said("user", "Before", shots[0], "and an <image>", shots[1], "after"))
        names = {"task_id": "t", "site": "s"}
        if name == "sft":
            pairs = ((seen, REPLY), ((said("user", "No picture"),), "Yes."))
            records = [
                SftSample(
                    sample_id=f"s{number}",
                    kind="text" if number else "action",
                    messages=one,
                    response=reply,
                    **names,
                )
                for number, (one, reply) in enumerate(pairs)
            ]
        else:
            records = [RlPrompt(prompt_id="p", category="c", messages=seen, target=REPLY, **names)]
        write_dataset(tmp_path / name, records, "sft_samples" if name == "sft" else "rl_prompts")
    return tmp_path


def rows(writer, folders, name):
    output = folders / f"{writer}-{name}.parquet"
    count = WRITERS[writer](folders / name, output)
    table = pq.read_table(output)
    assert table.num_rows == count
    return table.to_pylist(), json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]


def test_trl(folders):
    found, features = rows("trl", folders, "sft")
    assert features["images"] == {"feature": {"_type": "Image"}, "_type": "List"}
    assert features["prompt"]["feature"]["content"]["feature"]["text"] == {
        "dtype": "string",
        "_type": "Value",
    }
    kinds = [part["type"] for part in found[0]["prompt"][1]["content"]]
    assert kinds == ["text", "image", "text", "image", "text"] and found[1]["images"] == []
    assert [image["bytes"] for image in found[0]["images"]] == [png(0), png(1)]
    # As the processor of transformers shows it to a model.
    tokenizer = transformers.AutoTokenizer.from_pretrained(resolve_model("tiny_base"))
    chat = [*found[0]["prompt"], *found[0]["completion"]]
    text = tokenizer.apply_chat_template(chat, tokenize=False)
    pad = "<|vision_start|><|image_pad|><|vision_end|>"
    assert f"user\nBefore{pad}and an <image>{pad}after<|im_end|>" in text and REPLY in text
    (prompt,), _ = rows("trl", folders, "rl")
    assert prompt["target"] == REPLY and prompt["prompt"] == found[0]["prompt"]
    # And back: the same samples.
    back = list(read_chats(folders / "trl-sft.parquet", ImageStore(folders / "back")))
    first, second = back
    assert first.messages[1].content == said("user", *back[0].messages[1].content).content
    assert [one.response for one in back] == [REPLY, "Yes."] and [one.kind for one in back] == [
        "action",
        "text",
    ]
    assert ImageStore(folders / "back").get(first.messages[1].content[1].sha256) == png(0)
    assert second.messages == (said("user", "No picture"),)


def test_verl(folders):
    found, _ = rows("verl", folders, "sft")
    user, reply = found[0]["messages"][1:]
    # Its loaders cut texts at placeholders and refuse more of them than there are images.
    assert user["content"] == "Before<image>and an < image><image>after" and "<image>" not in reply["content"]
    assert len(found[0]["images"]) == 2 and found[1]["images"] == []
    (prompt,), _ = rows("verl", folders, "rl")
    assert prompt["prompt"][1] == user and prompt["reward_model"] == {"style": "rule", "ground_truth": REPLY}
    assert prompt["extra_info"] == {"id": "p", "task_id": "t", "category": "c"}


def test_llama_factory(folders):
    output = folders / "factory"
    assert WRITERS["llama_factory"](folders / "sft", output) == 2
    info = json.loads((output / "dataset_info.json").read_text())["rmsweb"]
    first, second = (json.loads(line) for line in (output / info["file_name"]).read_text().splitlines())
    assert [message["role"] for message in first["messages"]] == ["system", "user", "assistant"]
    text = "".join(message["content"] for message in first["messages"])
    assert text.count("<image>") == len(first["images"]) == 2 and second["images"] == []
    opened = [Image.open(io.BytesIO((output / path).read_bytes())).size for path in first["images"]]
    assert opened == [Image.open(io.BytesIO(png(number))).size for number in range(2)]
    back = list(read_chats(output / info["file_name"], ImageStore(folders / "back")))
    assert back[0].messages[1].text == "Beforeand an < image>after"
    assert WRITERS["llama_factory"](folders / "rl", folders / "prompts") == 1
    with pytest.raises(UserError, match="is not empty: give a new folder"):
        WRITERS["llama_factory"](folders / "sft", output)


def test_other_data_sets_have_no_messages_to_train_on(folders):
    write_dataset(folders / "runs", trajectories(1), "trajectories")
    for name in ("trl", "verl"):
        with pytest.raises(UserError, match="holds trajectories: give an SFT corpus or RL prompts"):
            WRITERS[name](folders / "runs", folders / "out.parquet")
