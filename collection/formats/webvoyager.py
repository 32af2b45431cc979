r"""Result folders of WebVoyager and of the Online-Mind2Web judge, whose actions are free text.

Neither has our agent's input, and both have little of the pages: such a run can be viewed, judged and
compared, but not trained on.

WebVoyager (github.com/MinorJerry/WebVoyager, `run.py`). The folder contains no verdict: success can only come
from a tasks file.

    RESULTS/<time>/task<ID>/interact_messages.json   the chat, without images and with old pages clipped
                            screenshot<N>.png        the page with numbered boxes, before step N
                            agent.log                contains the token counts of every call
                            accessibility_tree<N>.txt   in text-only mode

Online-Mind2Web (github.com/OSU-NLP-Group/Online-Mind2Web). Actions name elements by their HTML, not by an
index, so actions on elements stay text. Success is the judge's label; WebJudge's label has priority.

    RESULTS/<task_id>/result.json   v1: task, task_id, action_history[text], thoughts[], final_result_response
                                    v2: schema_version "online-mind2web-v2", agent_final_answer,
                                        action_history[{screenshot, url, action, action_status, thought}]
                      trajectory/   screenshots, in v1 by number
    RESULTS/ or next to it: <mode>_<model>_score_threshold_<n>_auto_eval_results.json, one object per line
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collection.formats.browser_use import browser_use_action
from collection.formats.common import (
    BrokenRunError,
    Decision,
    Run,
    UnmappedError,
    Verdict,
    at,
    file_name,
    make_step,
    make_trajectory,
    parse_row,
    press,
    read_json,
    row,
    store_file,
    text,
    to_action,
)
from rmsweb_jax.actions import Action
from rmsweb_jax.records.schema import CallUsage, Element, Step, Trajectory

# WebVoyager.

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


def find_webvoyager(folder: Path) -> Iterator[tuple[str, Path]]:
    """Finds every folder `task<ID>`, named by its id; skips folders that contain other such folders."""
    for path in sorted(folder.rglob("task*")):
        if path.is_dir() and not any(inner.is_dir() for inner in path.glob("task*")):
            yield path.name.removeprefix("task"), path


def read_webvoyager(run: Run) -> Trajectory:
    file = run.path / "interact_messages.json"
    messages = read_json(file)
    chat = [(text(one, "role"), _content(one)) for one in messages] if isinstance(messages, list) else []
    turns = [
        (chat[place - 1][1] if place else "", said, chat[place + 1][1] if place + 1 < len(chat) else "")
        for place, (role, said) in enumerate(chat)
        if role == "assistant"
    ]
    if not turns:
        raise BrokenRunError(f"{file.name} has no reply of the agent")
    stated = next((found for _, said in chat if (found := _TASK.search(said))), None)
    objective, website = (stated.group(1).strip(), stated.group(2)) if stated else ("", "")
    website = run.info(run.name).website or website
    usages = _usages(run.path / "agent.log", len(turns))
    steps = [
        _webvoyager_step(run, place, *turn, website if place == 1 else "", usage)
        for place, (turn, usage) in enumerate(zip(turns, usages, strict=True), start=1)
    ]
    try:
        last = webvoyager_actions(_split(turns[-1][1])[1] or "")[0]
    except UnmappedError:
        last = None
    done = last is not None and last.name == "done"
    return make_trajectory(
        run,
        steps,
        "done" if done else "max_steps",
        known=done,
        final_text=last.params.model_dump()["text"] if last and done else "",
        declared=True if done else None,
        verdict=None,
        objective=objective,
        website=website,
    )


def _content(message: Any) -> str:
    content = at(message, "content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in map(row, content) if part.get("type") == "text")
    return text(message, "content")


def _webvoyager_step(
    run: Run, place: int, shown: str, reply: str, after: str, url: str, usage: CallUsage | None
) -> Step:
    thought, action = _split(reply)
    page = _page_text(run.path / f"accessibility_tree{place}.txt", shown)
    elements = tuple(
        Element(index=int(index), tag=tag, text=label, attributes={"aria-label": aria} if aria else {})
        for index, tag, label, aria in _ELEMENT.findall(page)
    )
    if any(not element.tag for element in elements):
        run.missing.add("steps.observation.elements.tag")

    def actions() -> list[Action]:
        mapped = webvoyager_actions(action or "")
        if mapped[0].name == "scroll" and "WINDOW" not in (action or ""):
            run.missing.add("steps.response.action.scroll.num_pages")
        return mapped

    found = Decision(
        raw=reply,
        actions=actions,
        screenshot=store_file(run.images, run.path / f"screenshot{place}.png"),
        url=url,  # Only the start address is in the files.
        page_text=page,
        elements=elements,
        thought=thought,
        results=[(after.strip(), True)] if _FAILED.match(after) else None,
        usage=usage,
        error="" if action is not None else "Unusable reply: not in the form Thought, Action",
    )
    return make_step(run, place, found)


def _split(reply: str) -> tuple[str, str | None]:
    """Splits a reply into thought and action like upstream: the first two parts after its keywords."""
    parts = _PARTS.split(reply)
    if "Thought:" not in reply or "Action:" not in reply or len(parts) < 3:
        return "", None
    return parts[1].strip(), parts[2].strip()


def webvoyager_actions(words: str) -> list[Action]:
    """Maps the text after `Action:` to one or two actions (upstream, typing also presses Enter).

    Raises:
      UnmappedError: upstream has no such action, or none of ours has the same effect.
    """

    def index(digits: str, action: str) -> int:
        if int(digits) == 0:
            raise UnmappedError(
                f"{action} [0]", "our element indices start at 1, and 0 means the focused one"
            )
        return int(digits)

    if found := re.match(r"Click \[?(\d+)\]?", words):
        return [to_action("click", index=index(found.group(1), "Click"))]
    if found := re.match(r"Type \[?(\d+)\]?[; ]+\[?(.[^\]]*)\]?", words):
        typed = to_action("input_text", index=index(found.group(1), "Type"), text=found.group(2).strip())
        return [typed, press("Enter")]
    if found := re.match(r"Scroll \[?(\d+|WINDOW)\]?[; ]+\[?(up|down)\]?", words):
        where, down = found.group(1), found.group(2) == "down"
        if where == "WINDOW":
            return [to_action("scroll", down=down, num_pages=_WINDOW_PAGES)]
        return [to_action("scroll", down=down, num_pages=1.0, frame_element_index=index(where, "Scroll"))]
    if found := re.match(r"ANSWER[; ]+\[?(.[^\]]*)\]?", words):
        return [to_action("done", text=found.group(1).strip(), success=True)]
    if words.startswith("Wait"):
        return [to_action("wait", seconds=5)]
    if words.startswith("GoBack"):
        return [to_action("go_back")]
    if words.startswith("Google"):
        return [to_action("go_to_url", url="https://www.google.com/")]
    raise UnmappedError((words.split() or ["?"])[0][:40], "WebVoyager has no such action")


def _page_text(tree: Path, shown: str) -> str:
    """Returns the element list as shown; if the chat's copy was clipped, from its own file."""
    if found := _SHOWN.search(shown):
        return found.group(1).strip()
    if "An accessibility tree. (Omitted in context.)" not in shown:
        return ""
    try:
        return tree.read_text(errors="replace").strip()
    except OSError:
        return ""


def _usages(log: Path, calls: int) -> list[CallUsage] | list[None]:
    """Reads the tokens of every call; with another number of calls, they cannot be assigned to steps."""
    try:
        found = _TOKENS.findall(log.read_text(errors="replace"))
    except OSError:
        found = []
    usages = [CallUsage(prompt_tokens=int(sent), response_tokens=int(got)) for sent, got in found]
    return usages if len(usages) == calls else [None] * calls


# Online-Mind2Web.

_LABELS = "*_auto_eval_results.json"
_IMAGES = (".png", ".jpg", ".jpeg", ".webp")
_NUMBER = re.compile(r"\d+")
_STATUS = re.compile(r"\s*\|\s*(SUCCESS|FAILED)\s*$")
_ANSWER = re.compile(r"^TASK_COMPLETE\b(?:\s*->\s*(?:ANSWER:)?)?\s*(.*)$", re.DOTALL)
_ADDRESS = re.compile(r"https?://\S+")
# The verb is first (`CLICK coords(1, 2) -> ...`) or after the element (`<a href="..."> -> CLICK`).
_VERB = re.compile(r"^([A-Z][A-Z_]+)\b|->\s*([A-Z][A-Z_]+)\b")


def find_online_mind2web(folder: Path) -> Iterator[tuple[str, Path]]:
    """Finds every folder with a `result.json` or a `trajectory` folder; its name is the task id."""
    parts = [*folder.rglob("result.json"), *folder.rglob("trajectory")]
    for path in sorted({part.parent for part in parts}):
        yield path.name, path


def read_online_mind2web(run: Run) -> Trajectory:
    raw = row(read_json(run.path / "result.json"))
    listed = raw.get("action_history")
    listed = listed if isinstance(listed, list) else []
    if version := raw.get("schema_version"):
        if version != "online-mind2web-v2":
            raise BrokenRunError(f"result.json: schema_version {str(version)[:40]!r} is none that is read")
        entries, answer = [row(one) for one in listed], text(raw, "agent_final_answer")
    else:
        thoughts, shots = raw.get("thoughts"), _numbered_images(run.path / "trajectory")
        thoughts = thoughts if isinstance(thoughts, list) and len(thoughts) == len(listed) else []
        entries, answer = [], text(raw, "final_result_response")
        for place, one in enumerate(listed):
            words = one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)
            shot, thought = shots[place : place + 1], thoughts[place : place + 1]
            entries.append(
                {"action": words, "screenshot": "".join(shot), "thought": "".join(map(text, thought))}
            )
    if not entries:
        raise BrokenRunError("result.json holds no action")
    steps = [_mind2web_step(run, place, entry) for place, entry in enumerate(entries, start=1)]
    declared = bool(answer) or _ANSWER.match(_bare(text(entries[-1], "action"))) is not None
    return make_trajectory(
        run,
        steps,
        "done" if declared else "max_steps",
        known=declared,
        final_text=answer,
        verdict=_label(run),
        objective=text(raw, "task"),
        website=next((url for entry in entries if (url := text(entry, "url")).startswith("http")), ""),
        # The result names its task.
        info=dataclasses.replace(run.info(run.name), objective=""),
    )


def _mind2web_step(run: Run, place: int, entry: dict[str, Any]) -> Step:
    words, thought, name = text(entry, "action"), text(entry, "thought"), file_name(text(entry, "screenshot"))
    marked = _STATUS.search(words)
    status = text(entry, "action_status") or (marked.group(1) if marked else "")
    found = Decision(
        raw=f"Thought: {thought}\nAction: {words}" if thought else words,
        actions=lambda: [mind2web_action(words)],
        screenshot=store_file(run.images, run.path / "trajectory" / name) if name else None,
        url=text(entry, "url"),
        thought=thought,
        results=[(status, status.upper().startswith("FAIL"))] if status else None,
    )
    return make_step(run, place, found)


def mind2web_action(words: str) -> Action:
    """Maps one entry of the action history.

    Raises:
      UnmappedError: free text, or an action on an element that is named only by its HTML or coordinates.
    """
    if raw := parse_row(words):
        return browser_use_action(raw)
    bare = _bare(words)
    if answer := _ANSWER.match(bare):
        # The file says that the agent finished, not whether it declared success.
        return to_action("done", text=answer.group(1).strip())
    found, address = _VERB.search(bare), _ADDRESS.search(bare)
    verb = (found.group(1) or found.group(2)) if found else "?"
    if verb in ("NAVIGATE", "GOTO") and address:
        return to_action("go_to_url", url=address.group(0))
    if verb in ("GO_BACK", "BACK"):
        return to_action("go_back")
    if verb == "WAIT":
        return to_action("wait")
    raise UnmappedError(verb, "its text names no element by index" if found else "free text")


def _bare(words: str) -> str:
    return _STATUS.sub("", words.strip())


def _numbered_images(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    found = [(_NUMBER.search(path.name), path) for path in folder.iterdir() if path.suffix.lower() in _IMAGES]
    return [name for _, name in sorted((int(digits.group(0)), path.name) for digits, path in found if digits)]


def _label(run: Run) -> Verdict | None:
    """Returns the label of WebJudge, the benchmark's own judge, else of the first other one."""
    places = dict.fromkeys([run.path.parent, run.path.parent.parent, run.root])
    files = [file for place in places for file in sorted(place.glob(_LABELS))]
    for file in sorted(files, key=lambda file: not file.name.startswith("WebJudge_Online_Mind2Web")):
        label = _labels(file, file.stat().st_mtime_ns).get(run.name)
        if label is not None:
            return Verdict(file.name.split("_score_threshold_")[0], label == 1)
    return None


@functools.lru_cache(maxsize=16)
def _labels(file: Path, modified: int) -> dict[str, Any]:
    """Reads `predicted_label` by task id; cached, because these files are large and needed for every run."""
    del modified  # Part of the cache key only: a changed file is read again.
    found = map(parse_row, file.read_text(encoding="utf-8", errors="replace").splitlines())
    return {str(one["task_id"]): one.get("predicted_label") for one in found if "task_id" in one}
