"""Imports result folders of WebVoyager (github.com/MinorJerry/WebVoyager, `run.py`).

    RESULTS/<time>/task<ID>/interact_messages.json   the chat, without images and with old pages clipped
                            screenshot<N>.png        the page with numbered boxes, before step N
                            agent.log                contains the token counts of every call
                            accessibility_tree<N>.txt   in text-only mode

Its agent has other messages and another reply format (`Thought: ... Action: Click [3]`), and the file keeps
only the last pages. So a step has no messages: a run can be viewed, judged and compared, but not trained on.
The folder contains no verdict; success can only come from a tasks file.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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
from rmsweb_jax.records.schema import (
    ActionResult,
    CallUsage,
    Element,
    Observation,
    Step,
    Task,
    Trajectory,
)

SOURCE = "webvoyager"
_TASK = re.compile(r"Now given a task:(.+?)Please interact with\s+(\S+) and get the answer", re.DOTALL)
_SHOWN = re.compile(
    r"(?:refer to the textual information|give the Thought and Action)\.\s*\n(.*)\Z", re.DOTALL
)
_ELEMENT = re.compile(r'\[(\d+)\]: (?:<(\w+)> )?"(.*?)"(?:, "(.*?)")?;(?=\t|\Z)', re.DOTALL)
_FAILED = re.compile(r"(?:Format ERROR|The action you have chosen cannot be ex)")
_TOKENS = re.compile(r"- Prompt Tokens: (\d+); Completion Tokens: (\d+)")
_PARTS = re.compile(r"Thought:|Action:|Observation:")
# Upstream scrolls two thirds of the window; inside an element it presses keys, for an unknown distance.
_WINDOW_PAGES = 0.67
_NOT_RECORDED = (
    "steps.messages",
    "steps.observation.title",
    "steps.observation.tabs",
    "steps.observation.current_tab",
    "steps.observation.pages_above",
    "steps.observation.pages_below",
    "steps.response.evaluation_previous_goal",
    "steps.response.memory",
    "steps.response.next_goal",
)


class WebVoyagerMessage(Foreign):
    role: str
    content: str | list[dict[str, Any]]

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(str(part.get("text", "")) for part in self.content if part.get("type") == "text")


class Chat(Foreign):
    messages: tuple[WebVoyagerMessage, ...]


@dataclasses.dataclass(frozen=True)
class _Turn:
    """A reply, with the chat's text before and after it."""

    shown: str
    reply: str
    after: str


def find_runs(folder: Path) -> Iterator[tuple[str, Path]]:
    """Finds every folder `task<ID>`, named by its id; skips folders that contain other such folders."""
    for path in sorted(folder.rglob("task*")):
        if path.is_dir() and not any(inner.is_dir() for inner in path.glob("task*")):
            yield path.name.removeprefix("task"), path


def read_run(name: str, path: Path, attempt: int, context: RunContext) -> Trajectory:
    """Reads one task folder.

    Raises:
      BrokenRunError: there is no chat, or it has no reply of the agent.
    """
    file = path / "interact_messages.json"
    messages = validated(Chat, {"messages": read_json(file)}, file.name).messages
    turns = _turns(messages)
    if not turns:
        raise BrokenRunError(f"{file.name} has no reply of the agent")
    stated = next((found for message in messages if (found := _TASK.search(message.text))), None)
    info = context.info(name)
    website = info.website or (stated.group(2) if stated else "")
    objective = info.objective or (stated.group(1).strip() if stated else "")
    notes = context.notes
    notes.lacks(*([] if objective else ["task.objective"]), *([] if website else ["task.website"]))
    usages = _usages(path / "agent.log", len(turns))
    steps = tuple(
        _step(number, turn, path, website, usages, context) for number, turn in enumerate(turns, start=1)
    )
    done = _answer(turns[-1])
    verdict = info.success
    notes.lacks("model", "seconds", *([] if done is not None else ["outcome"]))
    notes.lacks(*([] if verdict is not None else ["success"]), *([] if usages else ["steps.usage"]))
    task = Task(task_id=f"{SOURCE}/{name}", website=website, objective=objective, site=site_of(website))
    return Trajectory(
        trajectory_id=f"{task.task_id}#{context.actor}-{attempt}",
        task=task,
        actor=context.actor,
        model=UNKNOWN_MODEL,
        attempt=attempt,
        steps=steps,
        outcome="done" if done is not None else "max_steps",
        declared_success=True if done is not None else None,
        final_text=done or "",
        success=done is not None and verdict is True,
        judge="" if verdict is None else "given",
        source=SOURCE,
        missing=tuple(sorted(notes.missing)),
    )


def map_action(text: str) -> list[Action]:
    """Maps the text after `Action:` to one or two actions (upstream, typing also presses Enter).

    Raises:
      UnmappedError: upstream has no such action, or none of ours has the same effect.
    """
    if found := re.match(r"Click \[?(\d+)\]?", text):
        return [to_action({"click": {"index": _index(found.group(1), "Click")}})]
    if found := re.match(r"Type \[?(\d+)\]?[; ]+\[?(.[^\]]*)\]?", text):
        index = _index(found.group(1), "Type")
        typed = {"input_text": {"index": index, "text": found.group(2).strip()}}
        return [to_action(typed), to_action({"send_keys": {"keys": "Enter"}})]
    if found := re.match(r"Scroll \[?(\d+|WINDOW)\]?[; ]+\[?(up|down)\]?", text):
        where, down = found.group(1), found.group(2) == "down"
        if where == "WINDOW":
            return [to_action({"scroll": {"down": down, "num_pages": _WINDOW_PAGES}})]
        index = _index(where, "Scroll")
        return [to_action({"scroll": {"down": down, "num_pages": 1.0, "frame_element_index": index}})]
    if found := re.match(r"ANSWER[; ]+\[?(.[^\]]*)\]?", text):
        return [to_action({"done": {"text": found.group(1).strip(), "success": True}})]
    simple = {
        "Wait": {"wait": {"seconds": 5}},
        "GoBack": {"go_back": {}},
        "Google": {"go_to_url": {"url": "https://www.google.com/"}},
    }
    for start, raw in simple.items():
        if text.startswith(start):
            return [to_action(raw)]
    raise UnmappedError((text.split() or ["?"])[0][:40], "WebVoyager has no such action")


def _index(digits: str, action: str) -> int:
    if int(digits) == 0:
        raise UnmappedError(f"{action} [0]", "our element indices start at 1, and 0 means the focused one")
    return int(digits)


def _turns(messages: Sequence[WebVoyagerMessage]) -> list[_Turn]:
    turns = []
    for position, message in enumerate(messages):
        if message.role == "assistant":
            shown = messages[position - 1].text if position else ""
            after = messages[position + 1].text if position + 1 < len(messages) else ""
            turns.append(_Turn(shown, message.text, after))
    return turns


def _step(
    number: int, turn: _Turn, folder: Path, website: str, usages: Sequence[CallUsage], context: RunContext
) -> Step:
    notes = context.notes
    notes.lacks(*_NOT_RECORDED)
    response, actions, error = _reply(turn, context)
    results = ()
    if not error and _FAILED.match(turn.after):
        results = (ActionResult(action=actions[0].name, text=turn.after.strip(), error=True),)
    elif not error and actions[0].name != "done":
        notes.lacks("steps.results")
    return Step(
        number=number,
        observation=_observe(number, turn, folder, website, context),
        messages=(),
        response=response,
        results=results,
        error=error,
        usage=usages[number - 1] if usages else CallUsage(),
    )


def _reply(turn: _Turn, context: RunContext) -> tuple[str, list[Action], str]:
    """Returns the response in our form, its actions, and the reason if it has none."""
    thought, action = _split(turn.reply)
    if action is None:
        return turn.reply, [], "Unusable reply: not in the form Thought, Action"
    try:
        actions = map_action(action)
    except UnmappedError as error:
        context.notes.not_mapped[error.name] += 1
        return turn.reply, [], f"No counterpart for action {error.name!r}: {error.reason}"
    if actions[0].name == "scroll" and "WINDOW" not in action:
        context.notes.lacks("steps.response.action.scroll.num_pages")
    return context.notes.reply("", "", "", actions=actions, thinking=thought), actions, ""


def _split(reply: str) -> tuple[str, str | None]:
    """Splits a reply into thought and action like upstream: the first two parts after its keywords."""
    parts = _PARTS.split(reply)
    if "Thought:" not in reply or "Action:" not in reply or len(parts) < 3:
        return "", None
    return parts[1].strip(), parts[2].strip()


def _answer(turn: _Turn) -> str | None:
    """Returns the final answer; None if this reply is not one."""
    _, action = _split(turn.reply)
    try:
        actions = map_action(action or "")
    except UnmappedError:
        return None
    return actions[0].params.model_dump()["text"] if actions[0].name == "done" else None


def _observe(number: int, turn: _Turn, folder: Path, website: str, context: RunContext) -> Observation:
    screenshot = store_file(context.images, [folder / f"screenshot{number}.png"])
    # Only the start address is in the files.
    url = website if number == 1 else ""
    text = _page_text(number, turn, folder)
    lacks = {"url": url, "screenshot": screenshot, "page_text": text, "elements": text}
    context.notes.lacks(*[f"steps.observation.{key}" for key, value in lacks.items() if not value])
    elements = tuple(
        Element(index=int(index), tag=tag, text=label, attributes={"aria-label": aria} if aria else {})
        for index, tag, label, aria in _ELEMENT.findall(text)
    )
    if any(not element.tag for element in elements):
        context.notes.lacks("steps.observation.elements.tag")
    return Observation(
        url=url,
        title="",
        tabs=(),
        current_tab="",
        page_text=text,
        elements=elements,
        fingerprint=fingerprint(url, text, screenshot, number),
        screenshot=screenshot,
    )


def _page_text(number: int, turn: _Turn, folder: Path) -> str:
    """Returns the element list as shown; if the chat's copy was clipped, from its own file."""
    shown = _SHOWN.search(turn.shown)
    if shown:
        return shown.group(1).strip()
    if "An accessibility tree. (Omitted in context.)" not in turn.shown:
        return ""
    try:
        return (folder / f"accessibility_tree{number}.txt").read_text(errors="replace").strip()
    except OSError:
        return ""


def _usages(log: Path, calls: int) -> list[CallUsage]:
    """Reads the tokens of every call; returns nothing if the log does not have exactly these calls."""
    try:
        found = _TOKENS.findall(log.read_text(errors="replace"))
    except OSError:
        return []
    usages = [CallUsage(prompt_tokens=int(sent), response_tokens=int(got)) for sent, got in found]
    # With another number of calls, tokens cannot be assigned to steps.
    return usages if len(usages) == calls else []
