"""Imports rollouts of WebGym as AsyncWebRL writes them (github.com/microsoft/webgym).

    LOGS/rollout/<version>/<task id>_ep<N>.json        one episode, with every step
    LOGS/test-rollout/<version>/<task id>_ep<N>.json
                                task_<...>_step_<NNN>.png   the page before step N

Read from commit 01e3daef53048cdd76fb787b14b5cf3a05f62bc7: `areal/infra/workflow_executor.py`
(`_dump_trajectory`), `areal/workflow/webgym_workflow.py` (`_serialize_trajectory_steps`); the actions from
574a205e1176a295decde84879d94057ca763946: `webgym/models/qwen/qwen_interface.py`,
`webgym/context/context_manager.py`. Points are thousandths of the window.

The synchronous WebGym writes pickles (`train_trajectories.pt.iteration<N>`). Reading a pickle runs what it
contains, so these are not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from collection.importers.common import (
    BrokenRunError,
    Foreign,
    RunContext,
    UnmappedError,
    read_json,
    store_file,
    to_action,
    validated,
)
from collection.importers.coordinates import (
    Ending,
    ForeignStep,
    Screen,
    Verdict,
    make_step,
    make_trajectory,
    press,
    screen_of,
    scrolled,
    typed,
    wait,
)
from rmsweb_jax.actions import Action
from rmsweb_jax.records.schema import Step, Trajectory

SOURCE = "webgym"
_NAME = re.compile(r"(.+)_ep\d+\.json")
_PLANE = 1000
# Upstream scrolls the height of the window less so many pixels.
_OVERLAP = 50
_WAIT_SECONDS = 2.0
_UNREAD = ("Evaluation failed", "In progress")


class PageObservation(Foreign):
    image_path: str | None = None
    page_metadata: dict[str, Any] | None = None
    ac_tree: Any = None


class EpisodeAction(Foreign):
    action: dict[str, Any] | None = None
    action_string: str | None = None


class ModelResponse(Foreign):
    raw_response: str | None = None
    answering_tokens: dict[str, Any] | None = None


class EpisodeStep(Foreign):
    observation: PageObservation | None = None
    action: EpisodeAction | None = None
    response: ModelResponse | None = None
    seqlen: int = 0
    prompt_len: int = 0


class TaskInformation(Foreign):
    task_name: str | None = None
    website: str | None = None


class Episode(Foreign):
    steps: tuple[EpisodeStep, ...]
    task_info: TaskInformation = TaskInformation()
    reward: float | None = None
    evaluation: Any = None
    is_blocked: bool | None = None
    episode_timed_out: bool | None = None


def find_runs(folder: Path) -> Iterator[tuple[str, Path]]:
    """Finds every episode, named by its task."""
    for path in sorted(folder.rglob("*_ep*.json")):
        if found := _NAME.fullmatch(path.name):
            yield found.group(1), path


def read_run(name: str, path: Path, attempt: int, context: RunContext) -> Trajectory:
    """Reads one episode.

    Raises:
      BrokenRunError: the file is no episode, or has no step.
    """
    episode = validated(Episode, read_json(path), path.name)
    if not episode.steps:
        raise BrokenRunError(f"{path.name} has no step")
    steps = [
        _step(number, one, path.parent, episode, context) for number, one in enumerate(episode.steps, start=1)
    ]
    answer = _answer(episode.steps[-1])
    task = episode.task_info
    return make_trajectory(
        name,
        SOURCE,
        attempt,
        context,
        steps,
        _ending(episode, answer),
        _verdict(episode, answer),
        task.task_name or "",
        task.website or "",
    )


def map_action(action: dict[str, Any], screen: Screen, website: str) -> list[Action]:
    """Maps an action of the form `{"key": ..., "arguments": {...}}`.

    Args:
      website: the task's start page, to which `goback` can lead.

    Raises:
      UnmappedError: no counterpart (moving the mouse, ...).
    """
    name, given = str(action.get("key")), action.get("arguments")
    params = given if isinstance(given, dict) else {}
    if name == "click":
        return [_click(params, name, screen)]
    if name == "type":
        text = params.get("text", params.get("content"))
        # Upstream replaces what the field holds, and presses Enter.
        if "element_id" in params:
            index = params["element_id"]
            return [to_action({"input_text": {"index": index, "text": text}}), press("Enter")]
        return [_click(params, name, screen), *typed(text, clear=True, enter=True)]
    if name == "scroll" and "coordinates" not in params:
        return [_scroll(params, name, screen)]
    if name == "wait":
        return [wait(params.get("time", _WAIT_SECONDS), name)]
    if name == "goback":
        back_home = params.get("goback_to") == "homepage" and website
        return [to_action({"go_to_url": {"url": website}} if back_home else {"go_back": {}})]
    if name == "navigate" and params.get("url"):
        return [to_action({"go_to_url": {"url": params["url"]}})]
    if name == "tabandenter":
        return [press("Tab"), press("Enter")]
    if name == "answer":
        return [to_action({"done": {"text": params.get("content")}})]
    raise UnmappedError(name, "our action space has no such action")


def _step(number: int, one: EpisodeStep, folder: Path, episode: Episode, context: RunContext) -> Step:
    seen = one.observation or PageObservation()
    metadata, response = seen.page_metadata or {}, one.response or ModelResponse()
    tokens = response.answering_tokens or {}
    # The recorded path is of the machine that ran the agent; the file lies next to the episode.
    shot_name = PurePosixPath((seen.image_path or "").replace("\\", "/")).name
    shot = store_file(context.images, [folder / shot_name] if shot_name else [])
    # The window's size is recorded, too.
    sides = (metadata.get("width"), metadata.get("height"))
    screen = screen_of(context.images, shot)
    if shot is None and all(isinstance(side, int) and 0 < side < 100_000 for side in sides):
        screen = Screen(*sides)
    action = one.action.action if one.action and one.action.action else None
    website = episode.task_info.website or ""
    found = ForeignStep(
        raw=response.raw_response or json.dumps(action or {}, ensure_ascii=False),
        screenshot=shot,
        url=_text(metadata.get("url")),
        title=_text(metadata.get("title")),
        page_text=_text(seen.ac_tree),
        thought=_text(tokens.get("thinking")) or _text(tokens.get("thought")),
        memory=_text(tokens.get("memory")),
        goal=_text(tokens.get("action")),
        results=((observed, False),) if (observed := _text(tokens.get("observation"))) else None,
        error="" if action else "No action was recorded.",
    )
    return make_step(number, found, lambda: map_action(action or {}, screen, website), context.notes)


def _click(params: dict[str, Any], name: str, screen: Screen) -> Action:
    if "element_id" in params:
        return to_action({"click_element_by_index": {"index": params["element_id"]}})
    point = params.get("coordinates")
    if isinstance(point, list) and len(point) == 4 and all(isinstance(side, int | float) for side in point):
        # A box: upstream clicks its centre.
        point = [(point[0] + point[2]) // 2, (point[1] + point[3]) // 2]
    return screen.point(point, name, _PLANE, _PLANE)


def _scroll(params: dict[str, Any], name: str, screen: Screen) -> Action:
    if not screen.height or screen.height <= _OVERLAP:
        raise UnmappedError(name, "nothing gives the size of the page")
    pages = (screen.height - _OVERLAP) / screen.height
    return scrolled(-pages if str(params.get("direction")).lower() == "up" else pages, name)


def _answer(last: EpisodeStep) -> str | None:
    """Returns the final answer; None if the last step is none."""
    action = last.action.action if last.action else None
    if not action or action.get("key") != "answer":
        return None
    arguments = action.get("arguments")
    return _text(arguments.get("content")) if isinstance(arguments, dict) else ""


def _ending(episode: Episode, answer: str | None) -> Ending:
    if episode.is_blocked:
        return Ending("blocked", text=answer or "")
    if episode.episode_timed_out:
        return Ending("timeout", text=answer or "")
    if answer is None:
        return Ending("max_steps", known=False)
    return Ending("done", text=answer)


def _verdict(episode: Episode, answer: str | None) -> Verdict | None:
    """Returns the evaluator's verdict; it is asked about answers alone, and its failure is no verdict."""
    text = _evaluation(episode.evaluation)
    if answer is None or episode.reward is None or not text or any(word in text for word in _UNREAD):
        return None
    # Upstream's own rule; a discount for length may have lowered the reward.
    return Verdict("webgym evaluator", episode.reward > 0.5, text)


def _evaluation(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False) if isinstance(value, Sequence | dict) and value else ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
