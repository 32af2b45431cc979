"""Imports result folders of the Online-Mind2Web judge (github.com/OSU-NLP-Group/Online-Mind2Web).

    RESULTS/<task_id>/result.json   v1: task, task_id, action_history[text], thoughts[], final_result_response
                                    v2: schema_version "online-mind2web-v2", agent_final_answer,
                                        action_history[{screenshot, url, action, action_status, thought}]
                      trajectory/   screenshots, in v1 by number
    RESULTS/ or next to it: <mode>_<model>_score_threshold_<n>_auto_eval_results.json, one object per line

Actions are free text that names elements by their HTML, not by an index, so actions on elements stay text.
The folders contain neither page text nor the agent's input: such a run can be viewed, judged and compared,
but not trained on. Success is the judge's label (`predicted_label`); WebJudge's label has priority.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from collection.importers.browser_use_actions import map_action as map_browser_use
from collection.importers.common import (
    UNKNOWN_MODEL,
    BrokenRunError,
    Foreign,
    RunContext,
    UnmappedError,
    fingerprint,
    read_json,
    store_file,
    to_action,
    validated,
)
from collection.tasks.websites import site_of
from rmsweb_jax.actions import Action
from rmsweb_jax.records.schema import ActionResult, Observation, Step, Task, Trajectory

SOURCE = "online-mind2web"
_RESULTS = "*_auto_eval_results.json"
_IMAGES = (".png", ".jpg", ".jpeg", ".webp")
_NUMBER = re.compile(r"\d+")
_STATUS = re.compile(r"\s*\|\s*(SUCCESS|FAILED)\s*$")
_ANSWER = re.compile(r"^TASK_COMPLETE\b(?:\s*->\s*(?:ANSWER:)?)?\s*(.*)$", re.DOTALL)
_ADDRESS = re.compile(r"https?://\S+")
# The verb is first (`CLICK coords(1, 2) -> ...`) or after the element (`<a href="..."> -> CLICK`).
_VERB = re.compile(r"^([A-Z][A-Z_]+)\b|->\s*([A-Z][A-Z_]+)\b")
_NOT_RECORDED = (
    "steps.messages",
    "steps.observation.title",
    "steps.observation.tabs",
    "steps.observation.current_tab",
    "steps.observation.page_text",
    "steps.observation.elements",
    "steps.observation.pages_above",
    "steps.observation.pages_below",
    "steps.usage",
)


class ActionStep(Foreign):
    """One step of version 2."""

    action: str
    screenshot: str | None = None
    url: str | None = None
    action_status: str | None = None
    thought: str | None = None


class ResultV2(Foreign):
    schema_version: Literal["online-mind2web-v2"]
    task: str
    task_id: str | int = ""
    agent_final_answer: str | None = None
    action_history: tuple[ActionStep, ...]


class ResultV1(Foreign):
    task: str
    task_id: str | int = ""
    action_history: tuple[Any, ...]
    thoughts: tuple[str | None, ...] = ()
    final_result_response: str | None = None


def find_runs(folder: Path) -> Iterator[tuple[str, Path]]:
    """Finds every folder with a `result.json` or a `trajectory` folder; its name is the task id."""
    parts = [*folder.rglob("result.json"), *folder.rglob("trajectory")]
    for path in sorted({part.parent for part in parts}):
        yield path.name, path


def read_run(name: str, path: Path, attempt: int, context: RunContext) -> Trajectory:
    """Reads one task folder.

    Raises:
      BrokenRunError: there is no result, or it has no action.
    """
    raw = read_json(path / "result.json")
    is_v2 = isinstance(raw, dict) and "schema_version" in raw
    task, answer, listed = _read_v2(raw) if is_v2 else _read_v1(raw, path / "trajectory")
    if not listed:
        raise BrokenRunError("result.json holds no action")
    notes, info = context.notes, context.info(name)
    seen = (step.url or "" for step in listed)
    website = info.website or next((url for url in seen if url.startswith("http")), "")
    steps = tuple(_step(number, step, path, context) for number, step in enumerate(listed, start=1))
    declared = bool(answer) or _ANSWER.match(_bare(listed[-1].action)) is not None
    judge, verdict = _verdict(name, path, context)
    notes.lacks("model", "seconds", "declared_success")
    notes.lacks(*([] if website else ["task.website"]), *([] if judge else ["success"]))
    notes.lacks(*([] if declared else ["outcome"]))
    return Trajectory(
        trajectory_id=f"{SOURCE}/{name}#{context.actor}-{attempt}",
        task=Task(task_id=f"{SOURCE}/{name}", website=website, objective=task, site=site_of(website)),
        actor=context.actor,
        model=UNKNOWN_MODEL,
        attempt=attempt,
        steps=steps,
        outcome="done" if declared else "max_steps",
        final_text=answer,
        success=declared and verdict,
        judge=judge,
        source=SOURCE,
        missing=tuple(sorted(notes.missing)),
    )


def map_action(text: str) -> Action:
    """Maps one entry of the action history.

    Raises:
      UnmappedError: free text, or an action on an element that is named only by its HTML or coordinates.
    """
    try:
        raw = json.loads(text)
    except ValueError:
        raw = None
    if isinstance(raw, dict):
        return map_browser_use(raw)
    bare = _bare(text)
    if answer := _ANSWER.match(bare):
        # The file says that the agent finished, not whether it declared success.
        return to_action({"done": {"text": answer.group(1).strip()}})
    found = _VERB.search(bare)
    verb = (found.group(1) or found.group(2)) if found else "?"
    address = _ADDRESS.search(bare)
    if verb in ("NAVIGATE", "GOTO") and address:
        return to_action({"go_to_url": {"url": address.group(0)}})
    if verb in ("GO_BACK", "BACK"):
        return to_action({"go_back": {}})
    if verb == "WAIT":
        return to_action({"wait": {}})
    raise UnmappedError(verb, "its text names no element by index" if found else "free text")


def _read_v2(raw: Any) -> tuple[str, str, list[ActionStep]]:
    result = validated(ResultV2, raw, "result.json")
    return result.task, result.agent_final_answer or "", list(result.action_history)


def _read_v1(raw: Any, images: Path) -> tuple[str, str, list[ActionStep]]:
    result = validated(ResultV1, raw, "result.json")
    shots = _numbered_images(images)
    thoughts = result.thoughts if len(result.thoughts) == len(result.action_history) else ()
    steps = []
    for position, action in enumerate(result.action_history):
        text = action if isinstance(action, str) else json.dumps(action, ensure_ascii=False)
        steps.append(
            ActionStep(
                action=text,
                screenshot=shots[position] if position < len(shots) else None,
                thought=thoughts[position] if thoughts else None,
            )
        )
    return result.task, result.final_result_response or "", steps


def _step(number: int, entry: ActionStep, folder: Path, context: RunContext) -> Step:
    notes = context.notes
    notes.lacks(*_NOT_RECORDED)
    screenshot = None
    if entry.screenshot:
        # Only the file name: a result file must not lead to other folders.
        screenshot = store_file(context.images, [folder / "trajectory" / Path(entry.screenshot).name])
    url = entry.url or ""
    lacks = {"observation.url": url, "observation.screenshot": screenshot, "response.thinking": entry.thought}
    notes.lacks(*[f"steps.{key}" for key, value in lacks.items() if not value])
    observation = Observation(
        url=url,
        title="",
        tabs=(),
        current_tab="",
        page_text="",
        elements=(),
        fingerprint=fingerprint(url, "", screenshot, number),
        screenshot=screenshot,
    )
    raw = f"Thought: {entry.thought}\nAction: {entry.action}" if entry.thought else entry.action
    try:
        action = map_action(entry.action)
    except UnmappedError as error:
        notes.not_mapped[error.name] += 1
        reason = f"No counterpart for action {error.name!r}: {error.reason}"
        return Step(number=number, observation=observation, messages=(), response=raw, error=reason)
    notes.lacks(*[f"steps.response.{key}" for key in ("evaluation_previous_goal", "memory", "next_goal")])
    response = notes.reply("", "", "", actions=[action], thinking=entry.thought)
    results = _results(entry, action)
    if not results and action.name != "done":
        notes.lacks("steps.results")
    return Step(number=number, observation=observation, messages=(), response=response, results=results)


def _results(entry: ActionStep, action: Action) -> tuple[ActionResult, ...]:
    marked = _STATUS.search(entry.action)
    status = entry.action_status or (marked.group(1) if marked else "")
    if not status:
        return ()
    return (ActionResult(action=action.name, text=status, error=status.upper().startswith("FAIL")),)


def _bare(text: str) -> str:
    return _STATUS.sub("", text.strip())


def _numbered_images(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    found = [(_NUMBER.search(path.name), path) for path in folder.iterdir() if path.suffix.lower() in _IMAGES]
    numbered = [(int(number.group(0)), path.name) for number, path in found if number]
    return [name for _, name in sorted(numbered)]


def _verdict(name: str, path: Path, context: RunContext) -> tuple[str, bool]:
    """Returns the judge's name and its verdict; an empty name and False without a label."""
    given = context.info(name).success
    if given is not None:
        return "given", given
    places = dict.fromkeys([path.parent, path.parent.parent, context.root])
    files = [file for place in places for file in sorted(place.glob(_RESULTS))]
    # WebJudge is the benchmark's own judge, so its label has priority.
    for file in sorted(files, key=lambda file: not file.name.startswith("WebJudge_Online_Mind2Web")):
        label = _labels(file, file.stat().st_mtime_ns).get(name)
        if label is not None:
            return file.name.split("_score_threshold_")[0], label == 1
    return "", False


@functools.lru_cache(maxsize=16)
def _labels(file: Path, modified: int) -> dict[str, Any]:
    """Reads `predicted_label` by task id; cached, because these files are large and needed for every run."""
    del modified  # Part of the cache key only: a changed file is read again.
    labels = {}
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:  # The truncated last line of a stopped evaluation.
            continue
        if isinstance(row, dict) and "task_id" in row:
            labels[str(row["task_id"])] = row.get("predicted_label")
    return labels
