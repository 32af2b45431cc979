"""Imports evaluation outputs and traces of OpenWebRL (github.com/OpenWebRL/OpenWebRL).

    EVAL/eval_samples/trajectory/<run>/<task>_<time>_<status>_<N>steps.json   the whole chat and its images
    EVAL/eval_samples/turn/<run>/<task>_<time>_<status>_<N>steps.json         the last turn with its history
    EVAL/results_task_<task>.jsonl                                            task, judge's verdict

Read from commit 5ae7e95c737aa60b7ab6b2cfed26b45882b38f89: `openwebrl/generate_browser.py` (`_save_sample`),
`openwebrl/run_evaluate.py`, `openwebrl/reward_browser.py`, `openwebrl/env/web_env.py`,
`openwebrl/visualize_eval_trajectory.py`; the text of the messages from the fork peter-sushko/OpenWebRL at
1df009731cb1b86854c859586bee701695fc1877, `openwebrl/adapters/browser_adapter.py`, the only copy at hand.
Points are thousandths of the window. Screenshots are inside the files. A turn's history may lack the thoughts
of earlier steps.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from collection.importers.common import BrokenRunError, Foreign, RunContext, clean, read_json, validated
from collection.importers.coordinates import (
    Ending,
    ForeignStep,
    Screen,
    Verdict,
    make_step,
    make_trajectory,
    screen_of,
    store_base64,
)
from collection.importers.openwebrl_actions import Call, is_end, map_calls
from rmsweb_jax.records.schema import Outcome, Step, Tab, Trajectory

SOURCE = "openwebrl"
_NAME = re.compile(r"(.+?)(?:_pid\d+_\d+)?_\d{8}_\d{6}_[a-z]+_-?\d+steps\.json")
_BLOCK = re.compile(r"<\|im_start\|>(\w+)\s*\n(.*?)(?:<\|im_end\|>|\Z)", re.DOTALL)
_REQUEST = re.compile(r"<user_request>\s*(.*?)\s*</user_request>", re.DOTALL)
_RESPONSE = re.compile(r"<tool_response>\s*(.*?)\s*(?:<observation>|</tool_response>)", re.DOTALL)
_OBSERVATION = re.compile(r"<observation>\s*(.*?)(?:</observation>|\Z)", re.DOTALL)
_SIZE = re.compile(r"^screen size: (\d{1,5}) x (\d{1,5})$", re.MULTILINE)
_URL = re.compile(r"^url: (\S+)", re.MULTILINE)
_CURRENT = re.compile(r"^Current tab: (\d{1,4})$", re.MULTILINE)
_TAB = re.compile(r"^- Tab (\d{1,4})(?: \(active\))?: (\S*)(?: - (.*))?$", re.MULTILINE)
_THOUGHT = re.compile(r"^\s*(?:<think(?:ing)?>)?\s*(.*?)\s*</think(?:ing)?>", re.DOTALL)
_ACTION = re.compile(r"<action>\s*(.*?)\s*</action>", re.DOTALL)
_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_FAILURES = ("Failed", "Error")


class Sample(Foreign):
    llm_response: str
    llm_input_texts: str = ""
    images: tuple[Any, ...] = ()
    status: str = ""
    terminate_reason: str | None = None


@dataclasses.dataclass(frozen=True)
class _Turn:
    """A reply with the page's text before it; `place` is that of its images."""

    shown: str
    reply: str
    place: int


def find_runs(folder: Path) -> Iterator[tuple[str, Path]]:
    """Finds every saved sample, named by its task."""
    for path in sorted(folder.rglob("*steps.json")):
        if found := _NAME.fullmatch(path.name):
            yield found.group(1), path


def read_run(name: str, path: Path, attempt: int, context: RunContext) -> Trajectory:
    """Reads one sample.

    Raises:
      BrokenRunError: the file is no sample, or has no reply of the agent.
    """
    sample = validated(Sample, read_json(path), path.name)
    turns = _turns(sample)
    if not turns:
        raise BrokenRunError(f"{path.name} has no reply of the agent")
    result = _result(name, path, context.root)
    steps = [
        _step(number, turn, turns[number].shown if number < len(turns) else "", sample, context)
        for number, turn in enumerate(turns, start=1)
    ]
    asked = next((found.group(1) for turn in turns if (found := _REQUEST.search(turn.shown))), "")
    return make_trajectory(
        name,
        SOURCE,
        attempt,
        context,
        steps,
        _ending(sample, turns),
        _verdict(result),
        _text(result.get("intent")) or asked,
        _text(result.get("start_url")) or steps[0].observation.url,
    )


def _turns(sample: Sample) -> list[_Turn]:
    text, response = sample.llm_input_texts, sample.llm_response
    # The whole chat, or its last reply, for which the prompt may have opened the thought.
    chat = response if "<|im_start|>" in response else f"{text}{response}"
    turns, shown, users = [], "", 0
    for role, content in _BLOCK.findall(chat):
        if role == "user":
            shown, users = content, users + 1
        elif role == "assistant" and content.strip():
            turns.append(_Turn(shown, content.strip(), users - 1))
    return turns


def _step(number: int, turn: _Turn, following: str, sample: Sample, context: RunContext) -> Step:
    seen = _OBSERVATION.search(turn.shown)
    page = seen.group(1) if seen else ""
    tabs = tuple(
        Tab(tab_id=f"{int(index):04d}", url=url, title=title or "")
        for index, url, title in _TAB.findall(page)
    )
    current = _CURRENT.search(page)
    tab = f"{int(current.group(1)):04d}" if current else ""
    active = next((one for one in tabs if one.tab_id == tab), None)
    address = _URL.search(page)
    shot = _screenshot(turn, sample, context)
    size = _SIZE.search(page)
    screen = screen_of(context.images, shot)
    if shot is None and size:
        screen = Screen(int(size.group(1)), int(size.group(2)))
    thought, goal = _THOUGHT.search(turn.reply), _ACTION.search(turn.reply)
    calls = _calls(turn.reply)
    found = ForeignStep(
        raw=turn.reply,
        screenshot=shot,
        url=active.url if active else address.group(1) if address else "",
        title=active.title if active else "",
        tabs=tabs,
        current_tab=tab,
        thought=thought.group(1) if thought else "",
        goal=goal.group(1) if goal else "",
        results=_results(following, len(calls or ())),
        error="" if calls else "Unusable reply: no tool call",
    )
    return make_step(number, found, lambda: map_calls(calls or [], screen, tab), context.notes)


def _screenshot(turn: _Turn, sample: Sample, context: RunContext) -> str | None:
    """Stores the last image of the user's message; several are copies of earlier ones."""
    group = sample.images[turn.place] if 0 <= turn.place < len(sample.images) else None
    last = group[-1] if isinstance(group, list) and group else group
    return store_base64(context.images, last)


def _calls(reply: str) -> list[Call] | None:
    """Returns the tool calls of a reply; None if one cannot be read, which upstream refuses as a whole."""
    calls = []
    for text in _CALL.findall(reply):
        try:
            call = clean(json.loads(text))
        except (ValueError, RecursionError):
            return None
        arguments = call.get("arguments", call.get("parameters", {}))
        if not isinstance(call.get("name"), str) or not isinstance(arguments, dict):
            return None
        calls.append(Call(call["name"], arguments))
    return calls


def _results(following: str, calls: int) -> tuple[tuple[str, bool], ...] | None:
    found = _RESPONSE.search(following)
    if found is None or not found.group(1).strip():
        return None
    lines = found.group(1).strip().splitlines()
    texts = lines if len(lines) == calls else ["\n".join(lines)]
    return tuple((text, text.startswith(_FAILURES)) for text in texts)


def _ending(sample: Sample, turns: Sequence[_Turn]) -> Ending:
    last = _calls(turns[-1].reply) or []
    end = next((call for call in last if is_end(call)), None)
    reason = sample.terminate_reason or ""
    if sample.status == "completed" and end is not None:
        return Ending("done", text=_text(end.arguments.get("response")))
    return Ending(_outcome(sample.status, reason), known=bool(reason), detail=reason[:500])


def _outcome(status: str, reason: str) -> Outcome:
    if reason == "max_steps_exhausted":
        return "max_steps"
    if "timeout" in reason or "timed out" in reason:
        return "timeout"
    # Replies without a call, or too long.
    return (
        "crashed" if status == "aborted" else "failures" if status in ("failed", "truncated") else "max_steps"
    )


def _result(name: str, path: Path, root: Path) -> dict[str, Any]:
    """Returns the last row of the task's result file in the nearest folder above, if there is one."""
    for folder in path.parents:
        file = folder / f"results_task_{name}.jsonl"
        if file.exists():
            rows = [_row(line) for line in file.read_text(encoding="utf-8", errors="replace").splitlines()]
            return next((row for row in reversed(rows) if row), {})
        if folder == root:
            break
    return {}


def _row(line: str) -> dict[str, Any]:
    try:
        value = clean(json.loads(line))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _verdict(result: dict[str, Any]) -> Verdict | None:
    """Returns the judge's verdict; upstream writes 0 where it was not asked or did not answer in time."""
    metadata = result.get("metadata")
    reward = metadata.get("reward") if isinstance(metadata, dict) else None
    if not isinstance(reward, dict) or not isinstance(reward.get("judge"), int | float):
        return None
    text = _text(reward.get("judge_text"))
    if reward.get("judge_timeout") or "SUCCESS" not in text:
        return None
    variant = _text(reward.get("judge_prompt_variant")) or "default"
    return Verdict(f"openwebrl judge ({variant})", reward["judge"] >= 0.5, text)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
