"""Shared parts of the importers: reading foreign files, storing screenshots, recording missing fields."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from PIL import Image
from pydantic import BaseModel, ConfigDict, ValidationError

from rmsweb_jax.actions import Action, Reply, ReplyError, normalize_action, render_reply
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore

UNKNOWN_MODEL = "unknown"
_MARKS = re.compile(r"^(\t*)\*?(\|[A-Z]+\+)?\[?\d+\]", re.MULTILINE)
_ID_KEYS = ("task_id", "id")
_TASK_KEYS = ("task", "confirmed_task", "ques", "objective")
_SITE_KEYS = ("website", "web", "url")


class BrokenRunError(Exception):
    """A run that cannot be imported; the message is one line."""


class UnmappedError(Exception):
    """An action without a counterpart in this project's action space."""

    def __init__(self, name: str, reason: str):
        super().__init__(reason)
        self.name, self.reason = name, reason


class Foreign(BaseModel):
    """Base of foreign formats; ignores keys that are not needed."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=(), allow_inf_nan=False)


@dataclasses.dataclass(frozen=True)
class TaskInfo:
    """Task data from a tasks file, for runs whose own files lack it; empty or None if unknown."""

    objective: str = ""
    website: str = ""
    success: bool | None = None


@dataclasses.dataclass
class Notes:
    """Record of one imported run.

    Attributes:
      missing: field name -> number of steps that lack it (1 for a field of the whole run).
      actions: canonical names of mapped actions.
      not_mapped: foreign names of actions without a counterpart.
      left_out: parts of the files that are not decisions of the model.
    """

    missing: Counter[str] = dataclasses.field(default_factory=Counter)
    actions: Counter[str] = dataclasses.field(default_factory=Counter)
    not_mapped: Counter[str] = dataclasses.field(default_factory=Counter)
    left_out: Counter[str] = dataclasses.field(default_factory=Counter)
    rebuilt: int = 0

    def lacks(self, *fields: str) -> None:
        self.missing.update(fields)

    def reply(self, *texts: str, actions: Sequence[Action], thinking: str | None = None) -> str:
        """Returns the canonical text of a mapped reply (its three texts in order), and counts its actions."""
        self.actions.update(action.name for action in actions)
        evaluation, memory, goal = texts
        return render_reply(
            Reply(
                thinking=thinking or None,
                evaluation_previous_goal=evaluation,
                memory=memory,
                next_goal=goal,
                actions=tuple(actions),
            )
        )


@dataclasses.dataclass(frozen=True)
class RunContext:
    """Context of an importer.

    Attributes:
      root: the imported folder; names are relative to it.
      tasks: content of the tasks file, by task id.
      actor: `Trajectory.actor` of everything imported.
    """

    root: Path
    images: ImageStore
    tasks: dict[str, TaskInfo]
    actor: str
    notes: Notes

    def info(self, *names: str) -> TaskInfo:
        """Returns the tasks file's entry for the first of these names that it contains, or an empty entry."""
        return next((self.tasks[name] for name in names if name in self.tasks), TaskInfo())


M = TypeVar("M", bound=BaseModel)


def read_json(path: Path) -> Any:
    """Reads a foreign JSON file; unpaired surrogates become question marks, since UTF-8 cannot encode them.

    Raises:
      BrokenRunError: missing, unreadable or not JSON.
    """
    try:
        return clean(json.loads(path.read_text(encoding="utf-8", errors="replace")))
    except FileNotFoundError as error:
        raise BrokenRunError(f"no {path.name}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise BrokenRunError(f"{path.name} is not JSON ({' '.join(str(error).split())})") from error


def validated(model: type[M], value: Any, name: str) -> M:
    """Validates `value` against a foreign format.

    Raises:
      BrokenRunError: the value does not fit; names the first place.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise BrokenRunError(f"{name}: {where}: {first['msg']}") from error


def load_tasks(path: Path) -> dict[str, TaskInfo]:
    """Reads a tasks file: a JSON list, or one JSON object per line, each with an id and optional task data.

    Accepts the keys of the WebVoyager (`id, ques, web`) and Online-Mind2Web (`task_id, confirmed_task,
    website`) files; `success` (true or false) is an external verdict.

    Raises:
      UserError: the file is missing or an entry has no id.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}): give another --config.tasks") from error
    try:
        listed = text.lstrip().startswith("[")
        rows = (
            json.loads(text) if listed else [json.loads(line) for line in text.splitlines() if line.strip()]
        )
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}): give a JSON list or one object a line") from error
    tasks = {}
    for number, row in enumerate(rows, start=1):
        name = _first(row, _ID_KEYS) if isinstance(row, dict) else ""
        if not name:
            raise UserError(f"{path}: entry {number} has no id: give each a task_id or id")
        success = row.get("success")
        tasks[name] = TaskInfo(
            _first(row, _TASK_KEYS), _first(row, _SITE_KEYS), success if isinstance(success, bool) else None
        )
    return tasks


def store_screenshot(images: ImageStore, data: bytes) -> str | None:
    """Stores an image (as PNG) and returns its SHA-256; None if the bytes are not a complete image."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.verify()  # Also checks the last bytes of a PNG, which loading ignores.
        with Image.open(io.BytesIO(data)) as image:
            image.load()
            if image.format != "PNG":
                buffer = io.BytesIO()
                image.convert("RGB").save(buffer, "PNG")
                data = buffer.getvalue()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None
    return images.put(data)


def store_file(images: ImageStore, candidates: Iterable[Path]) -> str | None:
    """Stores the first of these files that exists and is a complete image."""
    for path in candidates:
        try:
            data = path.read_bytes()
        except (OSError, ValueError):  # A name with a null byte raises ValueError.
            continue
        # Outside of the try: a full disk must not count as a missing screenshot.
        if found := store_screenshot(images, data):
            return found
    return None


def fingerprint(url: str, page_text: str, screenshot: str | None, number: int) -> str:
    """Hashes URL and page lines without indices, as for our pages; without text, the screenshot."""
    page = _MARKS.sub(r"\1", page_text) or screenshot or f"step {number}"
    return hashlib.sha256(f"{url}\n{page}".encode()).hexdigest()[:32]


def to_action(raw: Any) -> Action:
    """Validates a foreign action that has the form that `normalize_action` accepts.

    Raises:
      UnmappedError: it has no counterpart.
    """
    try:
        return normalize_action(raw)
    except ReplyError as error:
        name = next(iter(raw), "?") if isinstance(raw, dict) else "?"
        raise UnmappedError(str(name), str(error)) from error


def clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return value


def _first(row: dict[str, Any], keys: Sequence[str]) -> str:
    return next((str(row[key]) for key in keys if row.get(key) not in (None, "")), "")
