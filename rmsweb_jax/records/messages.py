"""SFT samples and RL prompts as messages and images, for TRL, LLaMA-Factory and verl.

The rows are what these programs' own loaders read: of TRL 1.16, LLaMA-Factory 0.9.5 and verl 0.9.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import iter_records
from rmsweb_jax.records.files import make_folder, replacing, write_atomic
from rmsweb_jax.records.images import ImageStore, image_names
from rmsweb_jax.records.schema import Message, RlPrompt, SftSample, TextPart
from rmsweb_jax.records.shards import read_manifest
from rmsweb_jax.storage import AnyPath

# What LLaMA-Factory and verl replace in a text. A page that has one of them gets a space into it.
_PLACEHOLDERS = ("<image>", "<video>", "<audio>")
_DATA = "data.jsonl"
# How LLaMA-Factory reads the file, in its own words.
_DATASET_INFO = {
    "file_name": _DATA,
    "formatting": "sharegpt",
    "columns": {"messages": "messages", "images": "images"},
    "tags": {
        "role_tag": "role",
        "content_tag": "content",
        "user_tag": "user",
        "assistant_tag": "assistant",
        "system_tag": "system",
    },
}


def read_samples(folder: AnyPath) -> Iterator[SftSample | RlPrompt]:
    """Yields the records of an SFT corpus or of mined prompts.

    Raises:
      UserError: as `read_dataset`; or the data set is of another kind.
    """
    manifest = read_manifest(folder)
    if manifest.kind not in ("sft_samples", "rl_prompts"):
        raise UserError(
            f"{folder}: holds {manifest.kind}: give an SFT corpus or RL prompts (experiments.build_sft, mine)"
        )
    for record in iter_records(folder, manifest):
        assert isinstance(record, SftSample | RlPrompt)
        yield record


def trl_row(record: SftSample | RlPrompt, images: ImageStore) -> dict[str, Any]:
    """Makes a row of TRL: prompt and completion (SFTTrainer), or prompt and target (GRPOTrainer), and images.

    GRPOTrainer hands `target` to reward functions.
    """
    row: dict[str, Any] = {**_names(record), "prompt": [_parts(message) for message in record.messages]}
    if isinstance(record, SftSample):
        reply = Message(role="assistant", content=(TextPart(text=record.response),))
        row["completion"] = [_parts(reply)]
    else:
        row["target"] = record.target
    return row | {"images": [{"bytes": images.get(name)} for name in image_names(record.messages)]}


def verl_row(record: SftSample | RlPrompt, images: ImageStore) -> dict[str, Any]:
    """Makes a row of verl: `messages` with the reply (SFT), or a prompt with its ground truth (RL)."""
    messages = [_text(message) for message in record.messages]
    if isinstance(record, SftSample):
        row = {**_names(record), "messages": [*messages, _reply(record.response)]}
    else:
        truth = {"style": "rule", "ground_truth": record.target}
        info = {**_names(record), "category": record.category}
        row = {
            "data_source": "rmsweb",
            "prompt": messages,
            "ability": "web",
            "reward_model": truth,
            "extra_info": info,
        }
    return row | {"images": [{"bytes": images.get(name)} for name in image_names(record.messages)]}


def export_llama_factory(folder: AnyPath, output: Path) -> int:
    """Writes a folder for LLaMA-Factory's `dataset_dir`: `data.jsonl`, `images` and `dataset_info.json`.

    The reply, or the verified reply of a prompt, is the last message.

    Returns:
      The number of rows.

    Raises:
      UserError: as `read_samples`; or the folder is not empty, or a screenshot is missing.
    """
    if output.exists() and any(output.iterdir()):
        raise UserError(f"--output: {output} is not empty: give a new folder")
    make_folder(output)
    source, store, count = ImageStore(folder), ImageStore(output), 0
    with replacing(output / _DATA) as temporary, open(temporary, "xb") as file:
        for record in read_samples(folder):
            names = [store.put(source.get(name)) for name in image_names(record.messages)]
            reply = record.response if isinstance(record, SftSample) else record.target
            row = {
                **_names(record),
                "messages": [*map(_text, record.messages), _reply(reply)],
                "images": [store.path(name).relative_to(output).as_posix() for name in names],
            }
            file.write(orjson.dumps(row) + b"\n")
            count += 1
    write_atomic(output / "dataset_info.json", orjson.dumps({"rmsweb": _DATASET_INFO}))
    return count


def _export_rows(row: Callable[[Any, ImageStore], dict[str, Any]]) -> Callable[[AnyPath, Path], int]:
    def export(folder: AnyPath, output: Path) -> int:
        from rmsweb_jax.records.parquet import write_rows

        store = ImageStore(folder)
        return write_rows(output, (row(record, store) for record in read_samples(folder)))

    return export


# Programs that take messages and images, and what writes their file or folder: (data set, output) -> rows.
WRITERS: dict[str, Callable[[AnyPath, Path], int]] = {
    "trl": _export_rows(trl_row),
    "llama_factory": export_llama_factory,
    "verl": _export_rows(verl_row),
}


def _names(record: SftSample | RlPrompt) -> dict[str, str]:
    name = record.sample_id if isinstance(record, SftSample) else record.prompt_id
    return {"id": name, "task_id": record.task_id}


def _parts(message: Message) -> dict[str, Any]:
    """A message with parts, of which those of images take the next image, as Hugging Face's templates do."""
    parts = [
        {"type": "text", "text": part.text} if isinstance(part, TextPart) else {"type": "image", "text": None}
        for part in message.content
    ]
    return {"role": message.role, "content": parts}


def _text(message: Message) -> dict[str, str]:
    """A message as text, with a placeholder where an image is."""
    parts = (_plain(part.text) if isinstance(part, TextPart) else "<image>" for part in message.content)
    return {"role": message.role, "content": "".join(parts)}


def _reply(response: str) -> dict[str, str]:
    return {"role": "assistant", "content": _plain(response)}


def _plain(text: str) -> str:
    for name in _PLACEHOLDERS:
        text = text.replace(name, f"< {name[1:]}")
    return text
