"""Histories of browser-use (`agent.save_history`, `AgentHistoryList.save_to_file`).

Read are versions 0.1 (`model_output.current_state`), 0.6-0.7.10 (the family whose actions ours follow), 0.9
and 0.13 (`state_message`, `judgement`); upstream code: `browser_use/agent/views.py` and `prompts.py`.
A history does not contain the model's input. From 0.9 on it has the text of each state, in the blocks of our
own state message, partly with other wording; from it we rebuild the messages that our agent would have sent.
Steps without it have no messages and cannot be trained on.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from collection.agent.config import PromptConfig
from collection.agent.prompt import AgentState, PastStep, build_messages
from collection.browser.page import parse_page
from collection.formats.common import (
    BrokenRunError,
    Run,
    UnmappedError,
    Verdict,
    at,
    file_name,
    fingerprint,
    flag,
    make_trajectory,
    number,
    read_json,
    row,
    rows,
    store_base64,
    store_file,
    text,
    to_action,
)
from rmsweb_jax.actions import Action, Reply, action_catalogue, render_reply
from rmsweb_jax.records.schema import (
    ActionResult,
    CallUsage,
    Element,
    Message,
    Observation,
    Step,
    Tab,
    Task,
    Trajectory,
)

Params = dict[str, Any]
_TEXTS = ("evaluation_previous_goal", "memory", "next_goal")


def find_browser_use(folder: Path) -> Iterator[tuple[str, Path]]:
    """Finds histories: every JSON file counts as one, and its path is its name."""
    for path in sorted(folder.rglob("*.json")):
        yield path.relative_to(folder).with_suffix("").as_posix(), path


def read_browser_use(run: Run) -> Trajectory:
    raw = read_json(run.path)
    if not isinstance(at(raw, "history"), list):
        raise BrokenRunError(f"{run.path.name} is not a browser-use history (no list 'history')")
    # Step 0 holds the actions that the user configured to run first; the model did not choose them.
    items = [item for item in rows(raw, "history") if number(item, "metadata", "step_number") != 0]
    if not items:
        raise BrokenRunError(f"{run.path.name} has no step")
    states = [parse_state_message(text(item, "state_message")) for item in items]
    # A tasks file may name a run by its path, its folder or its file.
    info = run.info(run.name, run.path.parent.name, run.path.stem)
    stated = next((state.objective for state in states if state and state.objective), "")
    urls = (text(item, "state", "url") for item in items)
    task = Task(
        task_id=f"{run.source}/{run.name}",
        website=info.website or next((url for url in urls if url.startswith("http")), ""),
        objective=info.objective or stated,
    )
    pages = [
        _observe(run, place, item, state)
        for place, (item, state) in enumerate(zip(items, states, strict=True), 1)
    ]
    steps, past = [], []
    for place, (item, state, page) in enumerate(zip(items, states, pages, strict=True), start=1):
        following = (states[place], pages[place]) if place < len(items) else None
        response, actions, error = _reply(run, item)
        results = () if error else _results(run, item, actions, _changed(run, state, page, following))
        step = Step(
            number=place,
            observation=page,
            messages=_messages(run, task, past, steps, state, page, len(items)),
            response=response,
            results=results,
            error=error,
            usage=CallUsage(prompt_tokens=int(number(item, "metadata", "input_tokens") or 0)),
        )
        run.lacks("steps.", usage=number(item, "metadata", "input_tokens") is not None)
        steps.append(step)
        texts = {name: str(_brain(item).get(name) or "") for name in _TEXTS}
        lines = tuple(f"Error: {result.text}" if result.error else result.text for result in results)
        past.append(PastStep(place, **texts, error=error, results=lines))
    last = (rows(items[-1], "result") or [{}])[-1]
    done, verdict = flag(last, "is_done") is True, flag(last, "judgement", "verdict")
    if verdict is None and info.success is not None:
        judged = Verdict("given", info.success and flag(last, "success") is True)
    else:
        judged = (
            None
            if verdict is None
            else Verdict(f"{run.source} judge", verdict and flag(last, "success") is True)
        )
    spans = [
        (number(item, "metadata", "step_end_time") or 0.0)
        - (number(item, "metadata", "step_start_time") or 0.0)
        for item in items
    ]
    return make_trajectory(
        run,
        steps,
        "done" if done else "failures" if text(last, "error") else "max_steps",
        known=done,
        final_text=text(last, "extracted_content") if done else "",
        declared=flag(last, "success") if done else None,
        detail=f"messages rebuilt for {sum(bool(step.messages) for step in steps)} of {len(steps)} steps",
        seconds=max(0.0, sum(spans)),
        verdict=judged,
        objective=task.objective,
        website=task.website,
        info=dataclasses.replace(info, success=None),
    )


def _observe(run: Run, place: int, item: Params, state: StateMessage | None) -> Observation:
    tabs = tuple(_tab(tab) for tab in rows(item, "state", "tabs"))
    url, title = text(item, "state", "url"), text(item, "state", "title")
    same = [tab.tab_id for tab in tabs if (tab.url, tab.title) == (url, title)]
    current = (state.current_tab if state else "") or (same[0] if len(same) == 1 else "")
    page = state.page_text if state else ""
    screenshot = _screenshot(run, item)
    run.lacks("steps.observation.", url=url, current_tab=current, screenshot=screenshot)
    if state is None:
        run.lacks("steps.observation.", page_text="", elements="", pages_above="", pages_below="")
    return Observation(
        url=url,
        title=title,
        tabs=tabs,
        current_tab=current,
        page_text=page,
        elements=page_elements(page),
        fingerprint=fingerprint(url, page, screenshot, place),
        screenshot=screenshot,
        pages_above=state.pages_above if state else 0.0,
        pages_below=state.pages_below if state else 0.0,
    )


def _tab(raw: Params) -> Tab:
    """Reads a tab of any version; its id is a text or a number."""
    known, page = raw.get("tab_id") or raw.get("target_id"), raw.get("page_id")
    tab_id = str(known)[-4:] if known else f"{page:04d}" if isinstance(page, int) else ""
    return Tab(tab_id=tab_id, url=str(raw.get("url") or ""), title=str(raw.get("title") or ""))


def _screenshot(run: Run, item: Params) -> str | None:
    if text(item, "state", "screenshot"):
        return store_base64(run.images, text(item, "state", "screenshot"))
    recorded, folder = text(item, "state", "screenshot_path"), run.path.parent
    if not recorded:
        return None
    # The recorded path is from the machine that ran the agent; the file may have moved with its history.
    name = file_name(recorded)
    return store_file(run.images, folder / "screenshots" / name, folder / name, folder / recorded)


def _brain(item: Params) -> Params:
    """Returns the texts of a reply; the first versions nested them in `current_state`."""
    output = row(item, "model_output")
    return row(output, "current_state") or output


def _reply(run: Run, item: Params) -> tuple[str, list[Action], str]:
    """Returns the response, its actions, and the reason if it has none."""
    output = at(item, "model_output")
    if not isinstance(output, dict):
        error = next((said for result in rows(item, "result") if (said := text(result, "error"))), "")
        run.missing.add("steps.response")
        return "", [], f"No model output was recorded. {error}".strip()
    raw, listed = json.dumps(output, ensure_ascii=False), output.get("action")
    if not isinstance(listed, list) or not listed:
        return raw, [], "Unusable reply: no action"
    try:
        actions = [browser_use_action(action) for action in listed]
    except UnmappedError as error:
        return raw, [], str(error)
    brain = _brain(item)
    run.lacks("steps.response.", **{name: isinstance(brain.get(name), str) for name in _TEXTS})
    texts = {name: text(brain, name) for name in _TEXTS}
    reply = Reply(thinking=text(brain, "thinking") or None, actions=tuple(actions), **texts)
    return render_reply(reply), actions, ""


def _results(run: Run, item: Params, actions: Sequence[Action], changed: bool) -> tuple[ActionResult, ...]:
    found = rows(item, "result")[: len(actions)]
    run.lacks("steps.", results=found)
    if any(action.name == "extract_structured_data" for action in actions[: len(found)]):
        run.missing.add("steps.extractions")
    results = []
    for action, result in zip(actions, found, strict=False):
        content, error = text(result, "extracted_content"), text(result, "error")
        once = flag(result, "include_extracted_content_only_once") is True
        # Content with `once` is shown in the next step only (`read_state`), so it is output, not history.
        words = error or text(result, "long_term_memory") or ("" if once else content)
        differs = changed and not error and not action.params.passive
        output = content if once else ""
        results.append(
            ActionResult(action=action.name, text=words, error=bool(error), changed=differs, output=output)
        )
    return tuple(results)


def _changed(
    run: Run,
    state: StateMessage | None,
    page: Observation,
    following: tuple[StateMessage | None, Observation] | None,
) -> bool:
    """Returns True if the page differs at the next step; histories do not record this per action."""
    if following is None:
        return False
    if state is None or following[0] is None:
        run.missing.add("steps.results.changed")
        return False
    then = following[1]
    return page.fingerprint != then.fingerprint or len(page.tabs) != len(then.tabs)


def _messages(
    run: Run,
    task: Task,
    past: Sequence[PastStep],
    steps: Sequence[Step],
    state: StateMessage | None,
    page: Observation,
    length: int,
) -> tuple[Message, ...]:
    """Rebuilds our messages for this state; returns none if the history does not contain enough of it."""
    if state is None or not state.faithful or not task.objective:
        run.missing.add("steps.messages")
        return ()
    read = "\n".join(result.output for result in steps[-1].results if result.output) if steps else ""
    shown = AgentState(
        task=task,
        history=tuple(past),
        step_number=len(steps) + 1,
        max_steps=state.max_steps or length,
        read_state=state.read_state or read,
        file_system=state.file_system,
        todo_contents=state.todo_contents,
    )
    prompt = PromptConfig(style="full", date=state.date)
    return build_messages(shown, page, state.page_stats, prompt, actions=action_catalogue())


# Actions of all versions, as `normalize_action` takes them.


def browser_use_action(raw: Any) -> Action:
    """Maps one entry of `model_output.action`.

    Raises:
      UnmappedError: no counterpart (a custom action, a click at coordinates, ...).
    """
    named = [key for key in raw if key != "interacted_element"] if isinstance(raw, dict) else []
    if len(named) != 1:
        raise UnmappedError("?", "not an object with one action")
    name, params = named[0], raw[named[0]]
    if params is not None and not isinstance(params, dict):
        raise UnmappedError(name, f"the parameters of {name!r} are no object")
    # Some versions record these next to the parameters; the model did not write them.
    extra = ("xpath", "description", "interacted_element")
    given = {key: value for key, value in (params or {}).items() if value is not None and key not in extra}
    match name:
        case "search" | "search_engine" if "search_engine" in given:
            given["engine"] = given.pop("search_engine")
        case "search_google":
            given["engine"] = "google"
        case "scroll":
            frame = given.pop("index", given.get("frame_element_index"))
            given |= {} if frame is None else {"frame_element_index": frame}
            if frame == 0:  # The page itself.
                given.pop("frame_element_index")
            if not {"pages", "num_pages"} & given.keys():
                given["num_pages"] = 1.0
        case "done" if "data" in given:  # A structured answer is the text that was shown for it.
            given["text"] = json.dumps(given.pop("data"), ensure_ascii=False)
        case "click" | "click_element" | "click_element_by_index":
            points = {"coordinate_x", "coordinate_y"} & given.keys()
            if points and "index" not in given:
                raise UnmappedError("click at coordinates", "a click at coordinates names no element")
            given = {key: value for key, value in given.items() if not key.startswith("coordinate_")}
        case "extract_content" if "should_strip_link_urls" in given:
            given["extract_links"] = not given.pop("should_strip_link_urls")
        case "go_back":
            given = {}
    return to_action(name, **given)


# The text of a state (`AgentMessagePrompt`).

_PAGE = re.compile(r"\n(?:Interactive elements|Elements you can interact with)[^\n]*:\n(.*)\Z", re.DOTALL)
_PAGE_INFO = re.compile(r"<page_info>([\d.]+) pages above, ([\d.]+) pages below")
_CURRENT_TAB = re.compile(r"^Current tab: (\w{4})$", re.MULTILINE)
_MAXIMUM = re.compile(r"[Mm]aximum(?: steps)?: ?(\d+)")
_DATE = re.compile(r"(?:Today|Current date): ?(\d{4}-\d\d-\d\d)")
_EDGE = re.compile(r"\[(?:Start|End) of page\]|\.\.\. [\d.]+ pages (?:above|below).*\.\.\.")
_NOTHING = ("No file system available", "[empty todo.md, fill it when applicable]")
_EMPTY_TODO = re.compile(r"\[Current todo\.md is empty[^\]]*\]")
_PIECE = re.compile(r"^</?read_state_\d+>\n?", re.MULTILINE)
# Our state message has no counterpart of these blocks.
_FOREIGN_BLOCKS = ("<sensitive_data>", "<page_specific_actions>", "<plan>")


@dataclasses.dataclass(frozen=True)
class StateMessage:
    """The parts of a state message.

    Attributes:
      page_text: the element lines, without the marks of the page's start and end.
      faithful: True if our state message can express all of this one.
    """

    objective: str
    page_stats: str
    page_text: str
    current_tab: str
    pages_above: float
    pages_below: float
    max_steps: int
    date: str
    file_system: str
    todo_contents: str
    read_state: str
    faithful: bool


def parse_state_message(message: str) -> StateMessage | None:
    """Parses a message; returns None if it contains no page."""
    browser = _block(message, "browser_state")
    page = _PAGE.search(browser)
    if page is None:
        return None
    info = _PAGE_INFO.search(browser)
    # Only text around the page can be trusted: the page may contain anything.
    head = browser[: page.start()]
    before = message[: message.find("<browser_state>")]
    after = message[message.rfind("</browser_state>") :]
    agent = _block(before, "agent_state")
    # 0.13 has the step's number and the date after the page, and the request before the agent's state.
    step = agent if "<step_info>" in agent else _block(after, "step_info")
    tab, maximum, date = _CURRENT_TAB.search(head), _MAXIMUM.search(step), _DATE.search(step)
    return StateMessage(
        objective=_block(before, "user_request"),
        page_stats=_block(head, "page_stats"),
        page_text=_page_text(page.group(1)),
        current_tab=tab.group(1) if tab else "",
        pages_above=float(info.group(1)) if info else 0.0,
        pages_below=float(info.group(2)) if info else 0.0,
        max_steps=int(maximum.group(1)) if maximum else 0,
        date=date.group(1) if date else "",
        file_system=_unless_empty(_block(agent, "file_system")),
        todo_contents=_unless_empty(_block(agent, "todo_contents")),
        read_state=_PIECE.sub("", _block(after, "read_state")).strip("\n"),
        faithful=not any(block in message for block in _FOREIGN_BLOCKS) and info is not None,
    )


def page_elements(page_text: str) -> tuple[Element, ...]:
    """Returns the page's elements and texts as our snapshot lists them."""
    nodes, elements = parse_page(page_text), []
    parents: list[tuple[int, str]] = []
    for place, node in enumerate(nodes):
        while parents and parents[-1][0] >= node.depth:
            parents.pop()
        if node.tag:
            parents.append((node.depth, node.tag))
            own = []
            for inner in nodes[place + 1 :]:
                if inner.depth <= node.depth:
                    break
                if inner.depth == node.depth + 1 and not inner.tag:
                    own.append(inner.text)
            words = " ".join(own)
            elements.append(Element(index=node.index, tag=node.tag, text=words, attributes=node.attributes))
        elif node.text and not node.text.startswith("|"):
            elements.append(Element(index=None, tag=parents[-1][1] if parents else "", text=node.text))
    return tuple(elements)


def _page_text(page: str) -> str:
    lines = page.strip("\n").split("\n")
    if _EDGE.fullmatch(lines[0].strip()):
        lines = lines[1:]
    if lines and _EDGE.fullmatch(lines[-1].strip()):
        lines = lines[:-1]
    # Newer versions write scrollable elements without the older `+`, and add a comment to SVG elements.
    page = "\n".join(lines).replace("|SCROLL[", "|SCROLL+").replace(" <!-- SVG content collapsed -->", "")
    return "" if page == "empty page" else page


def _block(message: str, tag: str) -> str:
    start, end = message.find(f"<{tag}>"), message.rfind(f"</{tag}>")
    return message[start + len(tag) + 2 : end].strip("\n") if 0 <= start < end else ""


def _unless_empty(words: str) -> str:
    return "" if words.strip() in _NOTHING or _EMPTY_TODO.fullmatch(words.strip()) else words
