"""What all readers share: foreign JSON, the tasks file, images, actions, and the records of a step and a run.

A field that the files lack, or that holds another type than its system writes there, is empty in the record,
and the record's `missing` names it; nothing is invented.

Most of these agents see screenshots and act on points of them. A click at a point becomes
`click_coordinates`, typing at a point a click and `input_text` into the focused element (index 0).
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from collection.tasks.websites import site_of
from rmsweb_jax.actions import Action, Reply, ReplyError, normalize_action, render_reply
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import (
    ActionResult,
    CallUsage,
    Element,
    Observation,
    Outcome,
    Step,
    Tab,
    Task,
    Trajectory,
)

UNKNOWN_MODEL = "unknown"
NO_SUCH = "our action space has no such action"
_MARKS = re.compile(r"^(\t*)\*?(\|[A-Z]+\+)?\[?\d+\]", re.MULTILINE)
# Longer lists of keys are refused: their order matters, and a reply has at most ten actions.
_MOST_KEYS = 8


class BrokenRunError(Exception):
    """A run that cannot be imported; the message is one line."""


class UnmappedError(Exception):
    """An action without a counterpart in this project's action space."""

    def __init__(self, name: str, reason: str):
        super().__init__(f"No counterpart for action {name!r}: {reason}")
        self.name = name


@dataclasses.dataclass(frozen=True)
class TaskInfo:
    """Task data from a tasks file, for runs whose own files lack it; empty or None if unknown."""

    objective: str = ""
    website: str = ""
    success: bool | None = None


@dataclasses.dataclass
class Run:
    """A foreign run that is being read.

    Attributes:
      source: name of its system in records.
      name: its task's id in that system.
      path: its file or folder.
      root: the imported folder.
      tasks: content of the tasks file, by task id.
      missing: fields that its files lack, by their names in records.
    """

    source: str
    name: str
    path: Path
    root: Path
    images: ImageStore
    tasks: dict[str, TaskInfo]
    actor: str
    attempt: int
    missing: set[str] = dataclasses.field(default_factory=set)

    def info(self, *names: str) -> TaskInfo:
        """Returns the tasks file's entry for the first of these names that it contains, or an empty entry."""
        return next((self.tasks[name] for name in names if name in self.tasks), TaskInfo())

    def lacks(self, prefix: str, **values: Any) -> None:
        """Notes the fields whose value is empty."""
        self.missing.update(f"{prefix}{name}" for name, value in values.items() if not value)


# Foreign JSON.


def read_json(path: Path) -> Any:
    """Reads a foreign JSON file; unpaired surrogates become question marks, since UTF-8 cannot encode them.

    Raises:
      BrokenRunError: missing, unreadable or not JSON.
    """
    try:
        return _clean(json.loads(path.read_text(encoding="utf-8", errors="replace")))
    except FileNotFoundError as error:
        raise BrokenRunError(f"no {path.name}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise BrokenRunError(f"{path.name} is not JSON ({' '.join(str(error).split())})") from error


def parse_row(line: str) -> dict[str, Any]:
    """Parses a JSON object; empty if it is none, for example the last line of a stopped program."""
    try:
        value = _clean(json.loads(line))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def optional_row(path: Path) -> dict[str, Any]:
    """Reads a JSON object without which a run can be read; empty if there is none."""
    try:
        return row(read_json(path))
    except BrokenRunError:
        return {}


def at(value: Any, *keys: str) -> Any:
    """Returns the value at a path of keys; None if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def row(value: Any, *keys: str) -> dict[str, Any]:
    found = at(value, *keys)
    return found if isinstance(found, dict) else {}


def rows(value: Any, *keys: str) -> list[dict[str, Any]]:
    found = at(value, *keys)
    return [item if isinstance(item, dict) else {} for item in found] if isinstance(found, list) else []


def text(value: Any, *keys: str) -> str:
    found = at(value, *keys)
    return found if isinstance(found, str) else ""


def number(value: Any, *keys: str) -> float | None:
    found = at(value, *keys)
    good = isinstance(found, int | float) and not isinstance(found, bool) and abs(found) < 1e12
    return found if good else None


def flag(value: Any, *keys: str) -> bool | None:
    found = at(value, *keys)
    return found if isinstance(found, bool) else None


def load_tasks(path: Path) -> dict[str, TaskInfo]:
    """Reads a tasks file: a JSON list, or one JSON object per line, each with an id and optional task data.

    Accepts the keys of the WebVoyager (`id, ques, web`) and Online-Mind2Web (`task_id, confirmed_task,
    website`) files; `success` (true or false) is an external verdict.

    Raises:
      UserError: the file is missing or an entry has no id.
    """
    try:
        content = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}): give another --config.tasks") from error
    try:
        listed = content.lstrip().startswith("[")
        entries = (
            json.loads(content)
            if listed
            else [json.loads(line) for line in content.splitlines() if line.strip()]
        )
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}): give a JSON list or one object a line") from error

    def first(entry: Any, *keys: str) -> str:
        return next((str(at(entry, key)) for key in keys if at(entry, key) not in (None, "")), "")

    tasks = {}
    for place, entry in enumerate(entries, start=1):
        name = first(entry, "task_id", "id")
        if not name:
            raise UserError(f"{path}: entry {place} has no id: give each a task_id or id")
        objective = first(entry, "task", "confirmed_task", "ques", "objective")
        tasks[name] = TaskInfo(objective, first(entry, "website", "web", "url"), flag(entry, "success"))
    return tasks


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value


# Images.


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


def store_file(images: ImageStore, *candidates: Path) -> str | None:
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


def store_base64(images: ImageStore, encoded: Any) -> str | None:
    """Stores a data URL or bare base64 as a PNG; None if it is no complete image."""
    if not isinstance(encoded, str):
        return None
    try:
        data = base64.b64decode(encoded.rpartition("base64,")[2], validate=True)
    except (binascii.Error, ValueError):
        return None
    return store_screenshot(images, data)


def file_name(path: str) -> str:
    """Returns the last part of a path of another machine; it must not lead to other folders."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2]


def fingerprint(url: str, page_text: str, screenshot: str | None, place: int) -> str:
    """Hashes URL and page lines without indices, as for our pages; without text, the screenshot."""
    page = _MARKS.sub(r"\1", page_text) or screenshot or f"step {place}"
    return hashlib.sha256(f"{url}\n{page}".encode()).hexdigest()[:32]


# Actions.


def to_action(name: str, /, **params: Any) -> Action:
    """Makes one of our actions, under any name that `normalize_action` accepts.

    Raises:
      UnmappedError: it has no counterpart.
    """
    try:
        return normalize_action({name: params})
    except ReplyError as error:
        raise UnmappedError(name, str(error)) from error


# In pixels of a screenshot.
Point = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Screen:
    """Size of a screenshot in pixels; None if the files do not say it."""

    width: int | None = None
    height: int | None = None

    def pixel(self, value: Any, name: str, width: float | None = None, height: float | None = None) -> Point:
        """Returns a point in pixels of the screenshot.

        Args:
          value: `[x, y]`.
          name: of the foreign action, for the error.
          width, height: size of the plane in which the point is given; None: in pixels of the screenshot.

        Raises:
          UnmappedError: it is no point of the plane, or the size of the screenshot is needed and not known.
        """
        x, y = _numbers(value, name)
        if width is not None and height is not None:
            if self.width is None or self.height is None:
                raise UnmappedError(name, "no screenshot gives the size of the page")
            x, y = x * self.width / width, y * self.height / height
        # The agents' browsers keep points inside the window.
        x = min(x, self.width - 1) if self.width else x
        y = min(y, self.height - 1) if self.height else y
        return max(0, round(x)), max(0, round(y))

    def scroll(self, pixels: Any, name: str, at: Point | None = None) -> Action:
        """Returns a scroll by so many pixels, down if positive, of the page or at a point."""
        if self.height is None:
            raise UnmappedError(name, "no screenshot gives the size of the page")
        return scrolled(amount(pixels, name) / self.height, name, at)


def screen_of(images: ImageStore, screenshot: str | None) -> Screen:
    """Returns the size of a stored screenshot."""
    if screenshot is None:
        return Screen()
    with images.open(screenshot) as file, Image.open(file) as image:
        return Screen(*image.size)


def typed(words: Any, clear: bool, enter: bool) -> list[Action]:
    """Returns the actions that type into the focused element."""
    # Index 0 is the focused element.
    actions = [to_action("input_text", index=0, text=words, clear_existing=clear)]
    return [*actions, press("Enter")] if enter else actions


def press(keys: Any) -> Action:
    return to_action("send_keys", keys=keys)


def chord(keys: Any, name: str) -> str:
    """Returns keys that are held at once as one combination, for example `Control+a`.

    Raises:
      UnmappedError: these are no keys.
    """
    listed = [keys] if isinstance(keys, str) else keys
    if not isinstance(listed, list) or not listed or not all(isinstance(key, str) and key for key in listed):
        raise UnmappedError(name, "it names no keys")
    return "+".join(listed)


def key_sequence(keys: Any, presses: Any, name: str) -> list[Action]:
    """Returns keys that are pressed one after the other, each `presses` times.

    Raises:
      UnmappedError: these are no keys, or too many.
    """
    listed = [keys] if isinstance(keys, str) else keys
    times = presses if isinstance(presses, int) and presses > 0 else 1
    chord(listed, name)
    if len(listed) * times > _MOST_KEYS:
        raise UnmappedError(name, f"more than {_MOST_KEYS} keys")
    return [press(key) for key in listed for _ in range(times)]


def wait(seconds: Any, name: str) -> Action:
    """Returns a wait in whole seconds, rounded up.

    Raises:
      UnmappedError: it is no time.
    """
    (value,) = _numbers([seconds], name, 1)
    return to_action("wait", seconds=math.ceil(max(0.0, value)))


def amount(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnmappedError(name, f"not a number: {str(value)[:40]!r}")
    return value


def clicked(point: Point, double: bool = False) -> Action:
    return to_action("click_coordinates", x=point[0], y=point[1], double=double)


def hovered(point: Point) -> Action:
    return to_action("hover_coordinates", x=point[0], y=point[1])


def dragged(start: Point, end: Point) -> Action:
    return to_action("drag_coordinates", x=start[0], y=start[1], to_x=end[0], to_y=end[1])


def scrolled(pages: Any, name: str, at: Point | None = None) -> Action:
    """Returns a scroll by so many heights of the window, down if positive, of the page or at a point.

    Raises:
      UnmappedError: it does not move the page.
    """
    (value,) = _numbers([pages], name, 1)
    if value == 0:
        raise UnmappedError(name, "it moves by nothing")
    far = {"down": value > 0, "num_pages": round(abs(value), 3) or 0.001}
    if at is None:
        return to_action("scroll", **far)
    return to_action("scroll_coordinates", x=at[0], y=at[1], **far)


def _numbers(value: Any, name: str, count: int = 2) -> list[float]:
    if isinstance(value, list | tuple) and len(value) == count:
        try:
            numbers = [float(item) for item in value if not isinstance(item, bool)]
        except (TypeError, ValueError, OverflowError):
            numbers = []
        if len(numbers) == count and all(abs(item) < 1e6 for item in numbers):
            return numbers
    raise UnmappedError(
        name,
        f"not {'a point' if count == 2 else 'a number'}: {str(value)[:40]!r}",
    )


# Records.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """What a file says of one decision; empty or None where it says nothing.

    Attributes:
      raw: the reply in the source's own form, which is kept if it cannot be mapped.
      actions: maps the reply's actions; raises UnmappedError if one has no counterpart.
      screenshot: SHA-256 of the stored screenshot before the decision.
      results: text of each result, and True if it is an error; None if there is none in the file.
      changed: of each result, whether the page changed.
      error: the reason why the reply cannot be used.
    """

    raw: str
    actions: Callable[[], list[Action]]
    screenshot: str | None = None
    url: str = ""
    title: str = ""
    tabs: tuple[Tab, ...] = ()
    current_tab: str = ""
    page_text: str = ""
    elements: tuple[Element, ...] = ()
    thought: str = ""
    evaluation: str = ""
    memory: str = ""
    goal: str = ""
    results: Sequence[tuple[str, bool]] | None = None
    changed: Sequence[bool] = ()
    aligned: bool = False
    usage: CallUsage | None = None
    error: str = ""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A judge's verdict that the files contain."""

    judge: str
    passed: bool
    text: str = ""


def make_step(run: Run, place: int, found: Decision) -> Step:
    """Makes the record of one decision, and notes what the files lack; none has the agent's input."""
    shown = ("url", "title", "tabs", "current_tab", "page_text", "elements", "screenshot")
    seen = {name: getattr(found, name) for name in shown}
    run.lacks("steps.observation.", **seen, pages_above=None, pages_below=None)
    run.lacks("steps.", messages=None, usage=found.usage)
    place_of = fingerprint(found.url, found.page_text, found.screenshot, place)
    step = Step(
        number=place,
        observation=Observation(**seen, fingerprint=place_of),
        messages=(),
        response=found.raw,
        error=found.error,
        usage=found.usage or CallUsage(),
    )
    if found.error:
        return step
    try:
        actions = found.actions()
    except UnmappedError as unmapped:
        return step.model_copy(update={"error": str(unmapped)})
    texts = {"evaluation_previous_goal": found.evaluation, "memory": found.memory, "next_goal": found.goal}
    run.lacks("steps.response.", thinking=found.thought, **texts)
    results, changed = found.results or (), found.changed
    if not results and actions[0].name != "done":
        run.lacks("steps.", results=None)
    if results and not changed:
        run.lacks("steps.results.", changed=None)
    if results and len(results) != len(actions) and not found.aligned:
        # One foreign action may be several of ours; the result is of all of them.
        results = [("\n".join(words for words, _ in results), any(failed for _, failed in results))]
        changed = [any(changed)]
    response = Reply(thinking=found.thought or None, actions=tuple(actions), **texts)
    update = {
        "response": render_reply(response),
        "results": tuple(
            ActionResult(action=action.name, text=words, error=failed, changed=differs)
            for action, (words, failed), differs in zip(
                actions, results, changed or [False] * len(results), strict=False
            )
        ),
    }
    return step.model_copy(update=update)


def make_trajectory(
    run: Run,
    steps: Iterable[Step],
    outcome: Outcome,
    *,
    verdict: Verdict | None,
    known: bool = True,
    objective: str = "",
    website: str = "",
    final_text: str = "",
    declared: bool | None = None,
    detail: str = "",
    seconds: float | None = None,
    info: TaskInfo | None = None,
) -> Trajectory:
    """Makes the record of a run, and notes what the files lack.

    Args:
      known: False if the files do not say why it ended.
      objective, website: of the run's own files; the tasks file has priority.
      declared: the agent's own word on its success, if it gave one.
      info: the tasks file's entry; by default that of the run's name.
    """
    info = info or run.info(run.name)
    objective, website = info.objective or objective, info.website or website
    if info.success is not None:
        verdict = Verdict("given", info.success)
    run.lacks("", model=None, outcome=known, seconds=seconds, success=verdict)
    run.lacks("task.", objective=objective, website=website)
    run.lacks("", declared_success=declared is not None or outcome != "done")
    task_id = f"{run.source}/{run.name}"
    return Trajectory(
        trajectory_id=f"{task_id}#{run.actor}-{run.attempt}",
        task=Task(task_id=task_id, website=website, objective=objective, site=site_of(website)),
        actor=run.actor,
        model=UNKNOWN_MODEL,
        attempt=run.attempt,
        steps=tuple(steps),
        outcome=outcome,
        detail=detail,
        declared_success=declared,
        final_text=final_text,
        # As for our own runs: declared by the agent and passed by a judge.
        success=outcome == "done" and declared is not False and verdict is not None and verdict.passed,
        judge=verdict.judge if verdict else "",
        judge_text=verdict.text if verdict else "",
        seconds=seconds or 0.0,
        source=run.source,
        missing=tuple(sorted(run.missing)),
    )
