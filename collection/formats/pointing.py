r"""Runs of agents that act on points of screenshots: MolmoWeb, OpenWebRL and WebGym.

They have neither the page's text nor the agent's input: `build_sft` makes prompts of task, history and
screenshot for policies that see no page text (its variant `screenshot`).

MolmoWeb (github.com/allenai/molmoweb) at 6a841b4c6e41e1f09621a2781d19edf87a3200ba (`traj_logging.py`,
`evaluate.py`, `episode.py`, `actions.py`, `action_executor.py`). Points are pixels. An agent answers with the
message `[ANSWER] ...` and ends with `[EXIT]`.

    RESULTS/<task id>/trajectory.json           one entry per step, by number
                      metadata.json             goal
                      images/screenshot_<NNN>.png   the page before step N
                      <judge>_verdict.json      thought, verdict
    RESULTS/<task id>/errors/trajectory.json    an episode that ended with an error

OpenWebRL (github.com/OpenWebRL/OpenWebRL) at 5ae7e95c737aa60b7ab6b2cfed26b45882b38f89
(`generate_browser.py`, `run_evaluate.py`, `reward_browser.py`, `web_env.py`); its messages from the fork
peter-sushko/OpenWebRL at 1df009731cb1b86854c859586bee701695fc1877. Points are thousandths of the window.

    EVAL/eval_samples/trajectory/<run>/<task>_<time>_<status>_<N>steps.json   the whole chat and its images
    EVAL/eval_samples/turn/<run>/<task>_<time>_<status>_<N>steps.json         the last turn with its history
    EVAL/results_task_<task>.jsonl                                            task, judge's verdict

WebGym (github.com/microsoft/webgym), as AsyncWebRL writes it at 01e3daef53048cdd76fb787b14b5cf3a05f62bc7
(`workflow_executor.py`, `webgym_workflow.py`), its actions at 574a205e1176a295decde84879d94057ca763946.
Points are thousandths of the window. The synchronous WebGym writes pickles; reading those runs what they
contain, so they are not read.

    LOGS/rollout/<version>/<task id>_ep<N>.json        one episode, with every step
                           task_<...>_step_<NNN>.png   the page before step N
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collection.formats.common import (
    NO_SUCH,
    BrokenRunError,
    Decision,
    Point,
    Run,
    Screen,
    UnmappedError,
    Verdict,
    amount,
    at,
    chord,
    clicked,
    dragged,
    file_name,
    flag,
    hovered,
    key_sequence,
    make_step,
    make_trajectory,
    number,
    optional_row,
    parse_row,
    press,
    read_json,
    row,
    rows,
    screen_of,
    scrolled,
    store_base64,
    store_file,
    text,
    to_action,
    typed,
    wait,
)
from rmsweb_jax.actions import Action
from rmsweb_jax.records.schema import Outcome, Step, Tab, Trajectory

Params = dict[str, Any]
# OpenWebRL and WebGym name points in thousandths of the window.
_PLANE = 1000

# MolmoWeb.

_ANSWER, _EXIT = "[ANSWER]", "[EXIT]"
# Upstream's `noop` waits for so long.
_NOOP_SECONDS = 5


def find_molmoweb(folder: Path) -> Iterator[tuple[str, Path]]:
    """Finds every folder with a trajectory, named by its task."""
    for file in sorted(folder.rglob("trajectory.json")):
        path = file.parent
        yield (path.parent if path.name == "errors" else path).name, path


def read_molmoweb(run: Run) -> Trajectory:
    raw = read_json(run.path / "trajectory.json")
    if not isinstance(raw, dict) or not raw:
        raise BrokenRunError("trajectory.json has no step")
    if unnumbered := [key for key in raw if not key.isdecimal()]:
        raise BrokenRunError(f"trajectory.json: {unnumbered[0][:40]!r} is no number of a step")
    logged = [row(raw, key) for key in sorted(raw, key=lambda key: int(key[:9]))]
    messages = [_molmo_message(row(one, "action", "action_output")) for one in logged]
    # What upstream judges: the last `[ANSWER]`, else the last other message but `[EXIT]`.
    answers = [said.partition(_ANSWER)[2].strip() for said in messages if _ANSWER in said]
    answers = answers or [said for said in messages if said and _EXIT not in said]
    answer = answers[-1] if answers else ""
    steps = [_molmo_step(run, place, one, answer) for place, one in enumerate(logged, start=1)]
    last, error = row(logged[-1], "action", "action_output"), _molmo_error(logged[-1])
    infeasible = last.get("action_name") == "report_infeasible"
    ended = infeasible or messages[-1].startswith(_EXIT)
    reason = str(row(last, "action").get("infeasibility_reason") or "") if infeasible else ""
    times = [time for one in logged if (time := number(one, "action_timestamp"))]
    verdicts = ((file, optional_row(file)) for file in sorted(run.path.glob("*_verdict.json")))
    return make_trajectory(
        run,
        steps,
        "crashed" if error else "done" if ended else "max_steps",
        known=bool(error) or ended,
        final_text=answer if error else answer or reason,
        declared=False if infeasible and not error else None,
        detail=error[:500],
        # From the first decision to the last one; the last action's own time is unknown.
        seconds=max(times) - min(times) if len(times) > 1 else None,
        verdict=next(
            (
                Verdict(
                    file.name.removesuffix("_verdict.json"),
                    found["verdict"] == "SUCCESS",
                    text(found, "thought"),
                )
                for file, found in verdicts
                if found.get("verdict") in ("SUCCESS", "FAILURE")
            ),
            None,
        ),
        objective=text(optional_row(run.path / "metadata.json"), "goal"),
        website=next(
            (url for one in logged if (url := text(one, "other_obs", "url")).startswith("http")), ""
        ),
    )


def _molmo_step(run: Run, place: int, one: Params, answer: str) -> Step:
    action, error = row(one, "action"), _molmo_error(one)
    output = row(action, "action_output")
    predicted = isinstance(output.get("action"), dict)
    name = file_name(text(one, "screenshot"))
    shot = store_file(run.images, run.path / "images" / name) if name else None
    screen, seen = screen_of(run.images, shot), row(one, "other_obs")
    titles, index, title = seen.get("open_pages_titles"), seen.get("page_index"), ""
    if isinstance(titles, list) and isinstance(index, int) and 0 <= index < len(titles):
        title = str(titles[index])
    kept = {key: output.get(key) for key in ("thought", "action", "action_name")}
    found = Decision(
        raw=text(one, "raw_output") or text(action, "action_str") or json.dumps(kept, ensure_ascii=False),
        actions=lambda: molmoweb_actions(output, screen, answer),
        screenshot=shot,
        url=text(seen, "url"),
        title=title,
        thought=text(output, "thought"),
        goal=text(action, "action_description"),
        results=[(error, True)] if predicted and error else None,
        error="" if predicted else f"No action was recorded. {error}".strip(),
    )
    return make_step(run, place, found)


def molmoweb_actions(output: Params, screen: Screen, answer: str) -> list[Action]:
    """Maps one logged action.

    Args:
      answer: the final answer, which `[EXIT]` gives.

    Raises:
      UnmappedError: no counterpart (an element by its id in the page, a message on the way, ...).
    """
    name, given = str(output.get("action_name")), row(output, "action")
    point = [given.get("x"), given.get("y")]
    match name:
        case "mouse_click" | "mouse_dblclick" if given.get("button", "left") == "left":
            return [clicked(screen.pixel(point, name), double=given.get("click_type") == "double")]
        case "mouse_move" | "hover_at":
            return [hovered(screen.pixel(point, name))]
        case "mouse_drag_and_drop":
            ends = ([given.get("from_x"), given.get("from_y")], [given.get("to_x"), given.get("to_y")])
            return [dragged(screen.pixel(ends[0], name), screen.pixel(ends[1], name))]
        case "scroll_at" if not given.get("delta_x"):
            return [screen.scroll(given.get("delta_y", 0), name, screen.pixel(point, name))]
        case "gemini_type_text_at":
            clear, enter = given.get("clear_before_typing", True), given.get("press_enter", True)
            entered = typed(given.get("text"), clear is True, enter is True)
            return [clicked(screen.pixel(point, name)), *entered]
        case "keyboard_type":
            return typed(given.get("text"), clear=False, enter=False)
        case "keyboard_press":
            return [press(chord(given.get("key"), name).replace("ControlOrMeta", "Control"))]
        case "scroll":
            if given.get("delta_x", 0):
                raise UnmappedError(name, "sideways")
            return [screen.scroll(given.get("delta_y", 0), name)]
        case "goto":
            return [to_action("go_to_url", url=given.get("url"))]
        case "noop":
            return [wait(_NOOP_SECONDS, name)]
        case "browser_nav":
            match given.get("nav_type"):
                case "go_back":
                    return [to_action("go_back")]
                case "new_tab":
                    return [to_action("go_to_url", url="about:blank", new_tab=True)]
                case "tab_focus":
                    return [to_action("switch_tab", page_id=given.get("index"))]
            raise UnmappedError(name, f"unknown kind {str(given.get('nav_type'))[:40]!r}")
        case "report_infeasible":
            return [to_action("done", text=given.get("infeasibility_reason"), success=False)]
        case "send_msg_to_user":
            if _molmo_message(output).startswith(_EXIT):
                return [to_action("done", text=answer)]
            raise UnmappedError(name, "a message that does not end the episode")
    raise UnmappedError(name, NO_SUCH)


def _molmo_message(output: Params) -> str:
    said = output.get("action_name") == "send_msg_to_user"
    return str(row(output, "action").get("msg") or "") if said else ""


def _molmo_error(one: Params) -> str:
    return "; ".join(f"{kind}: {words}" for kind, words in row(one, "error").items())


# OpenWebRL.

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
# What `scroll` moves without an amount, and the most that it moves, in heights of the window.
_SCROLL, _MOST = 0.5, 1.0
_MOST_PRESSES = 8


def find_openwebrl(folder: Path) -> Iterator[tuple[str, Path]]:
    """Finds every saved sample, named by its task."""
    for path in sorted(folder.rglob("*steps.json")):
        if found := _NAME.fullmatch(path.name):
            yield found.group(1), path


def read_openwebrl(run: Run) -> Trajectory:
    sample = read_json(run.path)
    response = text(sample, "llm_response")
    # The whole chat, or its last reply, for which the prompt may have opened the thought.
    chat = response if "<|im_start|>" in response else f"{text(sample, 'llm_input_texts')}{response}"
    # The page's text before a reply, the reply, and the place of its images.
    turns: list[tuple[str, str, int]] = []
    shown, users = "", 0
    for role, content in _BLOCK.findall(chat):
        if role == "user":
            shown, users = content, users + 1
        elif role == "assistant" and content.strip():
            turns.append((shown, content.strip(), users - 1))
    if not turns:
        raise BrokenRunError(f"{run.path.name} has no reply of the agent")
    images = at(sample, "images")
    images = images if isinstance(images, list) else []
    following = [*(shown for shown, _, _ in turns[1:]), ""]
    steps = []
    for place, ((shown, reply, image), after) in enumerate(zip(turns, following, strict=True), start=1):
        group = images[image] if 0 <= image < len(images) else None
        # The last image of the user's message; the others are copies of earlier ones.
        shot = store_base64(run.images, group[-1] if isinstance(group, list) and group else group)
        steps.append(_openwebrl_step(run, place, shown, reply, after, shot))
    status, reason = text(sample, "status"), text(sample, "terminate_reason")
    end = next((given for name, given in _openwebrl_calls(turns[-1][1]) or [] if name == "done"), None)
    done = status == "completed" and end is not None
    result, asked = _openwebrl_result(run), _REQUEST.findall("\n".join(shown for shown, _, _ in turns))
    return make_trajectory(
        run,
        steps,
        "done" if done else _openwebrl_outcome(status, reason),
        known=done or bool(reason),
        final_text=text(end, "response") if done else "",
        detail="" if done else reason[:500],
        verdict=_openwebrl_verdict(row(result, "metadata", "reward")),
        objective=text(result, "intent") or (asked[0] if asked else ""),
        website=text(result, "start_url") or steps[0].observation.url,
    )


def _openwebrl_step(run: Run, place: int, shown: str, reply: str, after: str, shot: str | None) -> Step:
    seen = _OBSERVATION.search(shown)
    page = seen.group(1) if seen else ""
    tabs = tuple(
        Tab(tab_id=f"{int(tab):04d}", url=url, title=title) for tab, url, title in _TAB.findall(page)
    )
    current, address, size = _CURRENT.search(page), _URL.search(page), _SIZE.search(page)
    tab_id = f"{int(current.group(1)):04d}" if current else ""
    active = next((one for one in tabs if one.tab_id == tab_id), None)
    screen = screen_of(run.images, shot)
    if shot is None and size:
        screen = Screen(int(size.group(1)), int(size.group(2)))
    thought, goal, calls = _THOUGHT.search(reply), _ACTION.search(reply), _openwebrl_calls(reply)
    results = None
    if (fed := _RESPONSE.search(after)) and fed.group(1).strip():
        lines = fed.group(1).strip().splitlines()
        lines = lines if len(lines) == len(calls or ()) else ["\n".join(lines)]
        results = [(line, line.startswith(("Failed", "Error"))) for line in lines]
    found = Decision(
        raw=reply,
        actions=lambda: [
            action for name, given in calls or [] for action in openwebrl_actions(name, given, screen, tab_id)
        ],
        screenshot=shot,
        url=active.url if active else address.group(1) if address else "",
        title=active.title if active else "",
        tabs=tabs,
        current_tab=tab_id,
        thought=thought.group(1) if thought else "",
        goal=goal.group(1) if goal else "",
        results=results,
        error="" if calls else "Unusable reply: no tool call",
    )
    return make_step(run, place, found)


def _openwebrl_calls(reply: str) -> list[tuple[str, Params]] | None:
    """Returns the tool calls of a reply; None if one cannot be read, which upstream refuses as a whole."""
    calls = []
    for call in map(parse_row, _CALL.findall(reply)):
        given = call.get("arguments", call.get("parameters", {}))
        if not isinstance(call.get("name"), str) or not isinstance(given, dict):
            return None
        calls.append((call["name"], given))
    return calls


def openwebrl_actions(name: str, given: Params, screen: Screen, tab: str) -> list[Action]:
    """Maps one tool call.

    Args:
      tab: id of the current tab; empty if it is unknown.

    Raises:
      UnmappedError: no counterpart (another button, a question to the user, ...).
    """

    def point(key: str = "point_2d") -> Point:
        return screen.pixel(given.get(key), name, _PLANE, _PLANE)

    match name:
        case "click":
            clicks = given.get("clicks", 1)
            if clicks not in (1, 2) or given.get("button", "left") != "left":
                raise UnmappedError(name, "not one click or two with the left button")
            return [clicked(point(), double=clicks == 2)]
        case "hover":
            return [hovered(point())]
        case "drag":
            return [dragged(point("start_point_2d"), point("end_point_2d"))]
        case "write":
            return typed(given.get("message"), clear=True, enter=False)
        case "scroll":
            direction = given.get("direction", "down")
            if direction not in ("up", "down"):
                raise UnmappedError(name, "sideways")
            pages = min(max(amount(given.get("amount", _SCROLL), name), 0.0), _MOST)
            at_point = point() if given.get("point_2d") else None
            return [scrolled(pages if direction == "down" else -pages, name, at_point)]
        case "press_keys":
            keys, presses = given.get("keys"), given.get("presses", 1)
            if not given.get("is_hotkey"):
                return key_sequence(keys, presses, name)
            times = presses if isinstance(presses, int) and 0 < presses <= _MOST_PRESSES else 1
            return [press(chord(keys, name))] * times
        case "wait":
            return [wait(given.get("seconds", 3), name)]
        case "goto_url":
            return [to_action("go_to_url", url=given.get("url"))]
        case "go_back":
            return [to_action("go_back")]
        case "new_tab":
            return [to_action("go_to_url", url="about:blank", new_tab=True)]
        case "switch_tab":
            return [to_action("switch_tab", page_id=given.get("tab_index"))]
        case "close_tab":
            return [to_action("close_tab", tab_id=tab)]
        case "done":
            return [to_action("done", text=given.get("response", ""))]
    raise UnmappedError(name, NO_SUCH)


def _openwebrl_outcome(status: str, reason: str) -> Outcome:
    if reason == "max_steps_exhausted":
        return "max_steps"
    if "timeout" in reason or "timed out" in reason:
        return "timeout"
    # `failed` and `truncated`: replies without a call, or too long.
    outcomes: dict[str, Outcome] = {"aborted": "crashed", "failed": "failures", "truncated": "failures"}
    return outcomes.get(status, "max_steps")


def _openwebrl_result(run: Run) -> Params:
    """Returns the last row of the task's result file in the nearest folder above, if there is one."""
    for folder in run.path.parents:
        file = folder / f"results_task_{run.name}.jsonl"
        if file.exists():
            found = map(parse_row, reversed(file.read_text(encoding="utf-8", errors="replace").splitlines()))
            return next(filter(None, found), {})
        if folder == run.root:
            break
    return {}


def _openwebrl_verdict(reward: Params) -> Verdict | None:
    """Returns the judge's verdict; upstream writes 0 where it was not asked or did not answer in time."""
    words, passed = text(reward, "judge_text"), number(reward, "judge")
    if passed is None or reward.get("judge_timeout") or "SUCCESS" not in words:
        return None
    variant = text(reward, "judge_prompt_variant") or "default"
    return Verdict(f"openwebrl judge ({variant})", passed >= 0.5, words)


# WebGym.

_EPISODE = re.compile(r"(.+)_ep\d+\.json")
# Upstream scrolls the height of the window less so many pixels.
_OVERLAP = 50
_WAIT_SECONDS = 2.0


def find_webgym(folder: Path) -> Iterator[tuple[str, Path]]:
    """Finds every episode, named by its task."""
    for path in sorted(folder.rglob("*_ep*.json")):
        if found := _EPISODE.fullmatch(path.name):
            yield found.group(1), path


def read_webgym(run: Run) -> Trajectory:
    episode = read_json(run.path)
    recorded, website = rows(episode, "steps"), text(episode, "task_info", "website")
    if not recorded:
        raise BrokenRunError(f"{run.path.name} has no step")
    steps = [_webgym_step(run, place, one, website) for place, one in enumerate(recorded, start=1)]
    last = row(recorded[-1], "action", "action")
    ended = last.get("key") == "answer"
    blocked, late = flag(episode, "is_blocked"), flag(episode, "episode_timed_out")
    words, reward = at(episode, "evaluation") or "", number(episode, "reward")
    words = words if isinstance(words, str) else json.dumps(words, ensure_ascii=False)
    # The evaluator is asked about answers alone, and its failure is no verdict.
    judged = ended and reward is not None and words
    judged = judged and not any(unread in words for unread in ("Evaluation failed", "In progress"))
    return make_trajectory(
        run,
        steps,
        "blocked" if blocked else "timeout" if late else "done" if ended else "max_steps",
        known=bool(blocked or late or ended),
        final_text=text(last, "arguments", "content") if ended else "",
        # Upstream's own rule; a discount for length may have lowered the reward.
        verdict=Verdict("webgym evaluator", (reward or 0) > 0.5, words) if judged else None,
        objective=text(episode, "task_info", "task_name"),
        website=website,
    )


def _webgym_step(run: Run, place: int, one: Params, website: str) -> Step:
    seen, action, tokens = (
        row(one, "observation"),
        row(one, "action", "action"),
        row(one, "response", "answering_tokens"),
    )
    # The file lies next to the episode.
    name = file_name(text(seen, "image_path"))
    shot = store_file(run.images, run.path.parent / name) if name else None
    screen, sides = (
        screen_of(run.images, shot),
        [at(seen, "page_metadata", side) for side in ("width", "height")],
    )
    # The window's size is recorded, too.
    if shot is None and all(isinstance(side, int) and 0 < side < 100_000 for side in sides):
        screen = Screen(*sides)
    observed = text(tokens, "observation")
    found = Decision(
        raw=text(one, "response", "raw_response") or json.dumps(action, ensure_ascii=False),
        actions=lambda: webgym_actions(action, screen, website),
        screenshot=shot,
        url=text(seen, "page_metadata", "url"),
        title=text(seen, "page_metadata", "title"),
        page_text=text(seen, "ac_tree"),
        thought=text(tokens, "thinking") or text(tokens, "thought"),
        memory=text(tokens, "memory"),
        goal=text(tokens, "action"),
        results=[(observed, False)] if observed else None,
        error="" if action else "No action was recorded.",
    )
    return make_step(run, place, found)


def webgym_actions(action: Params, screen: Screen, website: str) -> list[Action]:
    """Maps an action of the form `{"key": ..., "arguments": {...}}`.

    Args:
      website: the task's start page, to which `goback` can lead.

    Raises:
      UnmappedError: no counterpart.
    """
    name, given = str(action.get("key")), row(action, "arguments")

    def click() -> Action:
        if "element_id" in given:
            return to_action("click_element_by_index", index=given["element_id"])
        return clicked(point())

    def point() -> Point:
        point = given.get("coordinates")
        if (
            isinstance(point, list)
            and len(point) == 4
            and all(isinstance(side, int | float) for side in point)
        ):
            # A box: upstream clicks its centre.
            point = [(point[0] + point[2]) // 2, (point[1] + point[3]) // 2]
        return screen.pixel(point, name, _PLANE, _PLANE)

    match name:
        case "click":
            return [click()]
        case "hover" if "coordinates" in given:
            return [hovered(point())]
        case "type":
            words = given.get("text", given.get("content"))
            # Upstream replaces what the field holds, and presses Enter.
            if "element_id" in given:
                return [to_action("input_text", index=given["element_id"], text=words), press("Enter")]
            return [click(), *typed(words, clear=True, enter=True)]
        case "scroll":
            if not screen.height or screen.height <= _OVERLAP:
                raise UnmappedError(name, "nothing gives the size of the page")
            up = str(given.get("direction")).lower() == "up"
            pixels = (_OVERLAP - screen.height) if up else screen.height - _OVERLAP
            return [screen.scroll(pixels, name, point() if "coordinates" in given else None)]
        case "wait":
            return [wait(given.get("time", _WAIT_SECONDS), name)]
        case "goback" if given.get("goback_to") == "homepage" and website:
            return [to_action("go_to_url", url=website)]
        case "goback":
            return [to_action("go_back")]
        case "navigate" if given.get("url"):
            return [to_action("go_to_url", url=given["url"])]
        case "tabandenter":
            return [press("Tab"), press("Enter")]
        case "answer":
            return [to_action("done", text=given.get("content"))]
    raise UnmappedError(name, NO_SUCH)
