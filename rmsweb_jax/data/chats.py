"""Conversations of the user's own as SFT samples, from JSON lines, a JSON list or Parquet.

    {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}]},
                  {"role": "assistant", "content": "A lamp."}], "images": ["lamp.png"]}

Each reply of the assistant becomes a sample, whose prompt is all that was said before it: the loss is on
replies alone, and each reply of a conversation has the same weight, as each step of an episode has. Tools,
calls and their results are written as Qwen3's chat template writes them.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import contextlib
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import orjson
from PIL import Image

from rmsweb_jax.actions import ReplyError, score_response
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ImagePart, Message, Part, SftSample, TextPart
from rmsweb_jax.records.shards import MANIFEST
from rmsweb_jax.serve.tools import RESULT_CLOSE, RESULT_OPEN, call_text, signatures
from rmsweb_jax.storage import AnyPath

# Ends of their names.
CHAT_FILES = (".jsonl", ".json", ".parquet")
# Data sets that are made of files are there in the workdir of a training run.
_FOLDER = "chats"
# Where a text shows the next image of the column `images`, as LLaMA-Factory and verl write it.
PLACEHOLDER = "<image>"
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "user"}
_KEYS = frozenset(("role", "content", "tool_calls", "tool_call_id", "name", "weight"))
# Keys of a part that may hold its image.
_SOURCES = ("image", "image_url", "path", "url", "bytes")
# Files that stay as they are; others become PNGs.
_KEPT = ("PNG", "JPEG")
_BATCH = 32


class _BadRowError(Exception):
    """What is wrong with a conversation; one line."""


def read_chats(path: Path, images: ImageStore) -> Iterator[SftSample]:
    """Reads a file of conversations, one at a time, and stores their images.

    A row has `messages`, or TRL's `prompt` and `completion`, of which the latter is trained on; further
    columns are `images` and `tools`, others are not read. An assistant's message with the `weight` 0 is not
    trained on. The samples are of the kind `action` where the reply is one of an agent, else `text`.

    Args:
      path: `.jsonl`, `.json` or `.parquet`; images that it names are found from its folder.
      images: gets the images.

    Raises:
      UserError: the file cannot be read, or a row cannot be used; it names file, row (from 1) and reason.
    """
    for number, row in _rows(path):
        try:
            messages, trained = _Chat(row, path.parent, images).read()
            samples = list(_samples(messages, trained, f"{path.stem}/{number}", path.stem))
        except _BadRowError as error:
            raise UserError(f"{path}:{number}: {error}") from error
        yield from samples


def write_chats(path: Path, workdir: AnyPath) -> Path:
    """Makes an SFT data set of a file of conversations, in `chats` in the workdir; returns its folder.

    Raises:
      UserError: as `read_chats`; or the workdir is in a bucket, where another host could not see it.
    """
    if not isinstance(workdir, Path):
        raise UserError(
            f"{path}: with a workdir in a bucket make a data set of it first: experiments.build_sft "
            f"--config.chats={path}"
        )
    digest = chats_digest(path)
    # A changed file does not replace what a run has begun with.
    folder = workdir / _FOLDER / f"{path.stem}-{digest[:12]}"
    if not (folder / MANIFEST).exists():
        given = {"chats": {str(path): digest}}
        write_dataset(folder, read_chats(path, ImageStore(folder)), "sft_samples", given)
    return folder


def chats_digest(path: Path) -> str:
    """Hashes a file of conversations, without its images.

    Raises:
      UserError: it cannot be read, or its name has another end than `CHAT_FILES`.
    """
    if path.suffix not in CHAT_FILES:
        raise UserError(f"{path}: give a file of conversations: {', '.join(CHAT_FILES)}")
    with user_file(path), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def user_file(path: Path) -> Iterator[None]:
    """Turns errors of reading a file into one line."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}): give another file") from error


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Yields each row with its number from 1, in JSON lines that of its line."""
    match path.suffix:
        case ".jsonl":
            with user_file(path), open(path, "rb") as file:
                lines = ((number, line) for number, line in enumerate(file, 1) if line.strip())
                yield from ((number, _json(line, f"{path}:{number}")) for number, line in lines)
        case ".json":
            with user_file(path):
                listed = _json(path.read_bytes(), path)
            if not isinstance(listed, list):
                raise UserError(f"{path}: no JSON list: give one, or one object a line in a .jsonl file")
            yield from enumerate(listed, 1)
        case ".parquet":
            with user_file(path):
                yield from enumerate(_parquet(path), 1)
        case _:
            raise UserError(f"{path}: give a file of conversations: {', '.join(CHAT_FILES)}")


def _json(text: bytes, where: Any) -> Any:
    try:
        return orjson.loads(text.removeprefix(codecs.BOM_UTF8))
    except orjson.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON ({error}): give one object a line, or a list") from error


def _parquet(path: Path) -> Iterator[Any]:
    try:
        import pyarrow.parquet as pq
        from pyarrow import ArrowException
    except ImportError as error:
        raise UserError(f"{path}: Parquet needs pyarrow: pip install pyarrow ({error})") from error
    try:
        for batch in pq.ParquetFile(path).iter_batches(_BATCH):
            # Fields that only other rows have are null.
            yield from map(_without_nulls, batch.to_pylist())
    except ArrowException as error:
        raise UserError(f"{path}: no Parquet file ({' '.join(str(error).split())[:120]})") from error


def _without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nulls(one) for one in value]
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return value


class _Chat:
    """One row on its way to records."""

    def __init__(self, row: Any, folder: Path, images: ImageStore):
        if not isinstance(row, dict):
            raise _BadRowError("no object with messages")
        self._row, self._folder, self._store = row, folder, images
        listed = row.get("images") or row.get("image") or []
        self._images: list[Any] = listed if isinstance(listed, list) else [listed]
        self._shown, self._has_image_parts = 0, False

    def read(self) -> tuple[list[Message], list[int]]:
        """Returns the messages, and the places of the replies that are trained on."""
        given, first = self._given()
        messages: list[Message] = []
        trained: list[int] = []
        given = self._with_leading_images(given)
        before = ""
        for place, message in enumerate(given):
            where = f"messages[{place}]"
            role, parts, weight = self._message(message, where)
            if role == "assistant" and message["role"] == before:
                raise _BadRowError(f"{where}: the assistant's message before has no answer: join the two")
            if message["role"] == before == "tool":
                # The results of one turn are one message.
                parts = (*messages.pop().content, TextPart(text="\n"), *parts)
            if role == "assistant" and place >= first and weight:
                trained.append(len(messages))
            messages.append(Message(role=cast(Any, role), content=parts))
            before = message["role"]
        if self._shown < len(self._images):
            raise _BadRowError(
                f"{len(self._images)} images, and its messages show {self._shown}: write {PLACEHOLDER} or an "
                "image part for each"
            )
        if not trained:
            raise _BadRowError("no reply of the assistant to train on")
        if tools := self._tools():
            parts: tuple[Part, ...] = (TextPart(text=signatures(tools)),)
            if messages[0].role == "system":
                parts = (*messages.pop(0).content, TextPart(text="\n\n"), *parts)
                trained = [place - 1 for place in trained]
            messages.insert(0, Message(role="system", content=parts))
            trained = [place + 1 for place in trained]
        return messages, trained

    def _given(self) -> tuple[list[Any], int]:
        """Returns the messages as they are, and the place of the first that may be trained on."""
        row, first = self._row, 0
        if "messages" in row:
            given = row["messages"]
        elif isinstance(row.get("prompt"), list) and isinstance(row.get("completion"), list):
            given, first = [*row["prompt"], *row["completion"]], len(row["prompt"])
        else:
            raise _BadRowError("it has no messages, and no prompt and completion of messages")
        if not isinstance(given, list) or not given:
            raise _BadRowError("messages: no list of messages")
        return given, first

    def _with_leading_images(self, given: list[Any]) -> list[Any]:
        """Puts images that no message shows before the first text of the user, as TRL does."""
        contents = [message.get("content") for message in given if isinstance(message, dict)]
        parts = [part for content in contents if isinstance(content, list) for part in content]
        shown = any(isinstance(part, dict) and part.get("type") != "text" for part in parts)
        self._has_image_parts = shown
        texts = [*contents, *(part.get("text") for part in parts if isinstance(part, dict))]
        if not self._images or shown or any(isinstance(one, str) and PLACEHOLDER in one for one in texts):
            return given
        for place, message in enumerate(given):
            if isinstance(message, dict) and message.get("role") == "user":
                content = message.get("content")
                texts = content if isinstance(content, list) else [{"type": "text", "text": content}]
                parts = [*({"type": "image"} for _ in self._images), *texts]
                return [*given[:place], {**message, "content": parts}, *given[place + 1 :]]
        return given

    def _message(self, message: Any, where: str) -> tuple[str, tuple[Part, ...], bool]:
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str) or role not in _ROLES:
            raise _BadRowError(f"{where}: no message with a role of {', '.join(_ROLES)}")
        if unknown := {key for key, value in message.items() if value is not None} - _KEYS:
            raise _BadRowError(f"{where}: {min(unknown)!r} is not trained on: remove it")
        parts = tuple(self._content(message.get("content"), where))
        calls = message.get("tool_calls") or []
        if (calls and role != "assistant") or not isinstance(calls, list):
            raise _BadRowError(f"{where}: tool_calls are a list of an assistant's message")
        for number, call in enumerate(calls):
            lead = "\n" if parts or number else ""
            parts = (*parts, TextPart(text=lead + _call(call, f"{where}.tool_calls[{number}]")))
        if role == "tool":
            parts = (TextPart(text=RESULT_OPEN), *parts, TextPart(text=RESULT_CLOSE))
        if role == "assistant" and any(isinstance(part, ImagePart) for part in parts):
            raise _BadRowError(f"{where}: an assistant's message cannot show an image")
        if role == "assistant" and not "".join(part.text for part in parts if isinstance(part, TextPart)):
            raise _BadRowError(f"{where}: an empty reply")
        return _ROLES[role], parts, message.get("weight") != 0

    def _content(self, content: Any, where: str) -> Iterator[Part]:
        if isinstance(content, str):
            yield from self._text(content, where)
        elif isinstance(content, list):
            for number, part in enumerate(content):
                yield from self._part(part, f"{where}.content[{number}]")
        elif content is not None:
            raise _BadRowError(f"{where}: content is neither text nor a list of parts")

    def _text(self, content: str, where: str) -> Iterator[Part]:
        for number, text in enumerate(content.split(PLACEHOLDER) if self._images else [content]):
            if number:
                yield self._next(where)
            if text:
                yield TextPart(text=text)

    def _part(self, part: Any, where: str) -> Iterator[Part]:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            # Next to parts that are images, as TRL has them, a text means what it says.
            yield from (
                [TextPart(text=part["text"])] if self._has_image_parts else self._text(part["text"], where)
            )
            return
        if kind not in ("image", "image_url"):
            raise _BadRowError(f"{where}: neither text nor an image: {str(part)[:60]}")
        source = next((part[key] for key in _SOURCES if part.get(key) is not None), None)
        yield self._next(where) if source is None else self._image(source, where)

    def _next(self, where: str) -> ImagePart:
        if self._shown == len(self._images):
            raise _BadRowError(f"{where}: it shows an image more than the {self._shown} in images")
        self._shown += 1
        return self._image(self._images[self._shown - 1], f"images[{self._shown - 1}]")

    def _image(self, source: Any, where: str) -> ImagePart:
        """Stores an image: bytes, a path, a data URL, or an object that holds one of these."""
        while isinstance(source, dict):
            source = next((source[key] for key in ("bytes", "url", "path") if source.get(key)), None)
        try:
            if isinstance(source, str) and source.startswith("data:"):
                data = base64.b64decode(source.partition(",")[2], validate=True)
            elif isinstance(source, str) and not source.startswith(("http:", "https:")):
                data = (self._folder / source.removeprefix("file://")).read_bytes()
            elif isinstance(source, bytes):
                data = source
            else:
                shown = f"{source!r}"[:60]
                raise _BadRowError(
                    f"{where}: give a path, a data URL or bytes, not {shown}; nothing is downloaded"
                )
            return ImagePart(sha256=self._store.put(_still(data)))
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            name = "" if not isinstance(source, str) or source.startswith("data:") else f" {source}"
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            if isinstance(error, binascii.Error):
                reason = "no base64"
            raise _BadRowError(
                f"{where}: image{name} cannot be read ({' '.join(str(reason).split())})"
            ) from error

    def _tools(self) -> Sequence[Mapping[str, Any]]:
        tools = self._row.get("tools") or []
        if isinstance(tools, str):
            try:
                tools = json.loads(tools) if tools.strip() else []
            except ValueError as error:
                raise _BadRowError(f"tools: not JSON ({error})") from error
        if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            raise _BadRowError("tools: no list of functions")
        return tools


def _still(data: bytes) -> bytes:
    """Returns a whole image in a format that everything reads."""
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        if image.format in _KEPT:
            return data
        png = io.BytesIO()
        image.save(png, "PNG")
        return png.getvalue()


def _call(call: Any, where: str) -> str:
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise _BadRowError(f"{where}: no call of a function with a name")
    arguments = function.get("arguments") or {}
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    try:
        usable = isinstance(orjson.loads(written), dict)
    except orjson.JSONDecodeError:
        usable = False
    if not usable:
        raise _BadRowError(f"{where}: arguments are no JSON object: {written[:60]!r}")
    return call_text(function["name"], written)


def _samples(
    messages: Sequence[Message], trained: Sequence[int], name: str, site: str
) -> Iterator[SftSample]:
    for place in trained:
        prompt, response = tuple(messages[:place]), messages[place].text
        if not any(message.role == "user" for message in prompt):
            raise _BadRowError("the assistant speaks first: put a message of the user before")
        yield SftSample(
            sample_id=f"{name}/{place}",
            task_id=name,
            site=site,
            kind="action" if _is_action(response) else "text",
            messages=prompt,
            response=response,
        )


def _is_action(response: str) -> bool:
    try:
        return score_response(response, response) == 1.0
    except ReplyError:
        return False
