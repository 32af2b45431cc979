"""Imports result folders of MolmoWeb (github.com/allenai/molmoweb, `benchmarks`).

    RESULTS/<task id>/trajectory.json           one entry per step, by number
                      metadata.json             goal
                      images/screenshot_<NNN>.png   the page before step N
                      <judge>_verdict.json      thought, verdict
    RESULTS/<task id>/errors/trajectory.json    an episode that ended with an error

Read from commit 6a841b4c6e41e1f09621a2781d19edf87a3200ba: `benchmarks/traj_logging.py`,
`benchmarks/evaluate.py`, `utils/eval_utils/episode.py`, `agent/actions.py`, `utils/envs/action_executor.py`.
Points are pixels. The goal is as it was given to the agent, with the address in front for some benchmarks.
An agent answers with the message `[ANSWER] ...` and ends with `[EXIT]`. Page text and elements are not in the
files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
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
    chord,
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

SOURCE = "molmoweb"
_FILE = "trajectory.json"
_ERRORS = "errors"
_ANSWER, _EXIT = "[ANSWER]", "[EXIT]"
# Upstream's `noop` waits for so long.
_NOOP_SECONDS = 5


class ActionOutput(Foreign):
    thought: str | None = None
    action: dict[str, Any] | None = None
    action_name: str | None = None


class LoggedAction(Foreign):
    action_str: str | None = None
    action_description: str | None = None
    action_output: ActionOutput = ActionOutput()


class LoggedStep(Foreign):
    screenshot: str | None = None
    other_obs: dict[str, Any] | None = None
    action: LoggedAction = LoggedAction()
    error: dict[str, Any] | None = None
    action_timestamp: float | None = None
    raw_output: str | None = None


class VerdictFile(Foreign):
    verdict: str
    thought: str | None = None


def find_runs(folder: Path) -> Iterator[tuple[str, Path]]:
    """Finds every folder with a trajectory, named by its task."""
    for file in sorted(folder.rglob(_FILE)):
        path = file.parent
        yield (path.parent if path.name == _ERRORS else path).name, path


def read_run(name: str, path: Path, attempt: int, context: RunContext) -> Trajectory:
    """Reads one episode.

    Raises:
      BrokenRunError: the trajectory is no JSON, or has no step.
    """
    logged = _steps(path / _FILE)
    answer = _final_answer(logged)
    steps = [_step(number, one, path, answer, context) for number, one in enumerate(logged, start=1)]
    ending = _ending(logged, answer)
    website = next((url for one in logged if (url := _url(one)).startswith("http")), "")
    return make_trajectory(
        name, SOURCE, attempt, context, steps, ending, _verdict(path), _goal(path / "metadata.json"), website
    )


def map_action(output: ActionOutput, screen: Screen, answer: str) -> list[Action]:
    """Maps one logged action.

    Args:
      answer: the final answer, which `[EXIT]` gives.

    Raises:
      UnmappedError: no counterpart (an element by its id in the page, a message on the way, ...).
    """
    name, params = str(output.action_name), output.action or {}
    if name == "mouse_click" and params.get("button", "left") == "left":
        return [_click(params, name, screen)]
    if name == "gemini_type_text_at":
        clear, enter = params.get("clear_before_typing", True), params.get("press_enter", True)
        return [_click(params, name, screen), *typed(params.get("text"), clear is True, enter is True)]
    if name == "keyboard_type":
        return typed(params.get("text"), clear=False, enter=False)
    if name == "keyboard_press":
        return [press(chord(params.get("key"), name).replace("ControlOrMeta", "Control"))]
    if name == "scroll":
        return [_scroll(params, name, screen)]
    if name == "goto":
        return [to_action({"go_to_url": {"url": params.get("url")}})]
    if name == "noop":
        return [wait(_NOOP_SECONDS, name)]
    if name == "browser_nav":
        return [_navigate(params, name)]
    if name == "report_infeasible":
        return [to_action({"done": {"text": params.get("infeasibility_reason"), "success": False}})]
    if _is_exit(output):
        return [to_action({"done": {"text": answer}})]
    if name == "send_msg_to_user":
        raise UnmappedError(name, "a message that does not end the episode")
    raise UnmappedError(name, "our action space has no such action")


def _steps(file: Path) -> list[LoggedStep]:
    raw = read_json(file)
    if not isinstance(raw, dict) or not raw:
        raise BrokenRunError(f"{file.name} has no step")
    numbered = [key for key in raw if not key.isdecimal()]
    if numbered:
        raise BrokenRunError(f"{file.name}: {numbered[0][:40]!r} is no number of a step")
    return [
        validated(LoggedStep, raw[key], f"{file.name}: step {key}")
        for key in sorted(raw, key=lambda key: int(key[:9]))
    ]


def _step(number: int, one: LoggedStep, path: Path, answer: str, context: RunContext) -> Step:
    output, error = one.action.action_output, _error(one)
    # Only the file name: a run must not lead to other folders.
    names = [path / "images" / Path(one.screenshot).name] if one.screenshot else []
    shot = store_file(context.images, names)
    screen = screen_of(context.images, shot)
    predicted = output.action is not None
    found = ForeignStep(
        raw=one.raw_output or one.action.action_str or json.dumps(output.model_dump(), ensure_ascii=False),
        screenshot=shot,
        url=_url(one),
        title=_title(one),
        thought=output.thought or "",
        goal=one.action.action_description or "",
        results=((error, True),) if predicted and error else None,
        error="" if predicted else f"No action was recorded. {error}".strip(),
    )
    return make_step(number, found, lambda: map_action(output, screen, answer), context.notes)


def _click(params: dict[str, Any], name: str, screen: Screen) -> Action:
    return screen.point([params.get("x"), params.get("y")], name)


def _scroll(params: dict[str, Any], name: str, screen: Screen) -> Action:
    across, down = params.get("delta_x", 0), params.get("delta_y", 0)
    if across:
        raise UnmappedError(name, "sideways")
    if screen.height is None:
        raise UnmappedError(name, "no screenshot gives the size of the page")
    if not isinstance(down, int | float) or isinstance(down, bool):
        raise UnmappedError(name, f"not a number: {str(down)[:40]!r}")
    return scrolled(down / screen.height, name)


def _navigate(params: dict[str, Any], name: str) -> Action:
    kind = params.get("nav_type")
    if kind == "go_back":
        return to_action({"go_back": {}})
    if kind == "new_tab":
        return to_action({"go_to_url": {"url": "about:blank", "new_tab": True}})
    if kind == "tab_focus":
        return to_action({"switch_tab": {"page_id": params.get("index")}})
    raise UnmappedError(name, f"unknown kind {str(kind)[:40]!r}")


def _message(output: ActionOutput) -> str:
    if output.action_name != "send_msg_to_user" or output.action is None:
        return ""
    return str(output.action.get("msg") or "")


def _is_exit(output: ActionOutput) -> bool:
    return _message(output).startswith(_EXIT)


def _final_answer(logged: Sequence[LoggedStep]) -> str:
    """Returns what upstream judges: the last `[ANSWER]`, else the last other message but `[EXIT]`."""
    messages = [_message(one.action.action_output) for one in logged]
    answers = [text for text in messages if _ANSWER in text]
    if answers:
        return answers[-1].partition(_ANSWER)[2].strip()
    return next((text for text in reversed(messages) if text and _EXIT not in text), "")


def _ending(logged: Sequence[LoggedStep], answer: str) -> Ending:
    last, error = logged[-1].action.action_output, _error(logged[-1])
    times = [one.action_timestamp for one in logged if one.action_timestamp]
    # From the first decision to the last one; the last action's own time is unknown.
    seconds = max(times) - min(times) if len(times) > 1 else None
    if error:
        return Ending("crashed", text=answer, detail=error[:500], seconds=seconds)
    if _is_exit(last):
        return Ending("done", text=answer, seconds=seconds)
    if last.action_name == "report_infeasible":
        reason = str((last.action or {}).get("infeasibility_reason") or "")
        return Ending("done", text=answer or reason, declared=False, seconds=seconds)
    return Ending("max_steps", known=False, text=answer, seconds=seconds)


def _error(one: LoggedStep) -> str:
    return "; ".join(f"{kind}: {text}" for kind, text in (one.error or {}).items())


def _url(one: LoggedStep) -> str:
    url = (one.other_obs or {}).get("url")
    return url if isinstance(url, str) else ""


def _title(one: LoggedStep) -> str:
    seen = one.other_obs or {}
    titles, index = seen.get("open_pages_titles"), seen.get("page_index")
    if isinstance(titles, list) and isinstance(index, int) and 0 <= index < len(titles):
        return str(titles[index])
    return ""


def _goal(file: Path) -> str:
    try:
        metadata = read_json(file)
    except BrokenRunError:
        return ""
    goal = metadata.get("goal") if isinstance(metadata, dict) else None
    return goal if isinstance(goal, str) else ""


def _verdict(path: Path) -> Verdict | None:
    """Returns the first readable verdict, in the order of the judges' names."""
    for file in sorted(path.glob("*_verdict.json")):
        try:
            read = validated(VerdictFile, read_json(file), file.name)
        except BrokenRunError:
            continue
        if read.verdict in ("SUCCESS", "FAILURE"):
            judge = file.name.removesuffix("_verdict.json")
            return Verdict(judge, read.verdict == "SUCCESS", read.thought or "")
    return None
