r"""Run folders of Fara (github.com/microsoft/fara).

Read from Fara-7B at 3f3f1fd82cc2769a6630932d1670bac7349f4a42 (`fara_agent.py`, and
`systems/websurfer.py`, `trajectory.py`, `utils.py`, `core.py` of `webeval`), Fara-1.5 at
6505fefa7137151f44ec360a6ef765eb5dd1a835 (`fara15_agent.py`, `run_fara.py`; its `core/data_point.py` from a
copy without a commit). Fara-7B's folders do not contain the request: give a tasks file.

    RUNS/<task id>/web_surfer.log            Fara-7B: one JSON event a line
                   <task id>_final_answer.json   the answer
                   screenshot<N>.png         the page after action N, without boxes; 0 is before the first
                   times.json, scores/<judge>.json   duration; verdicts of `webeval`
    RUNS/<folder>/data_point.json            Fara-1.5: task, events and verdicts
                  screenshot_<N>_pre.png, screenshot_<N>_post.png

Neither has the page's text or the agent's input: `build_sft` makes prompts of task, history and screenshot
for policies that see no page text (its variant `screenshot`).
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
    file_name,
    flag,
    hovered,
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
    store_file,
    text,
    to_action,
    typed,
    wait,
)
from rmsweb_jax.actions import Action
from rmsweb_jax.records.schema import CallUsage, Outcome, Step, Trajectory

Params = dict[str, Any]
# Fara-1.5 names points, and distances, in thousandths of the window.
_PLANE = 1000
_LOG, _POINT = "web_surfer.log", "data_point.json"
_OBSERVED = re.compile(r"\s*Observation#(\d+): (.*)", re.DOTALL)
_TEXT_EVENT = re.compile(r"\s*Thought #\d+: (.*?)\nAction #\d+: .*?with arguments\s+(\{.*\})", re.DOTALL)
_FARA_ENDS = ("terminate", "stop")
_FARA_OUTCOMES: dict[str, Outcome] = {"complete": "max_steps", "waiting_for_user": "failures"}
# Fara-7B sees the screenshot with sides that are multiples of this, and names points of that image.
_PATCH = 28
# Fara-7B's scroll turns the wheel by this many pixels, not by the distance that the model names.
_WHEEL = 400
_PROTOCOLS = ("https://", "http://", "file://", "about:")


def find_fara(folder: Path) -> Iterator[tuple[str, Path]]:
    """Finds every folder with a log or a data point; its name is the run's."""
    for path in sorted({file.parent for name in (_LOG, _POINT) for file in folder.rglob(name)}):
        yield path.name, path


def read_fara(run: Run) -> Trajectory:
    return _read_point(run) if (run.path / _POINT).exists() else _read_log(run)


def _read_log(run: Run) -> Trajectory:
    """Reads a folder of Fara-7B."""
    try:
        lines = (run.path / _LOG).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise BrokenRunError(f"{_LOG} cannot be read ({error.strerror})") from error
    calls: list[tuple[str, Params]] = []
    spoken: list[tuple[str, Params]] = []
    results: dict[int, str] = {}
    for event in map(parse_row, lines):
        message = str(event.get("message") or "")
        if event.get("action") is not None and isinstance(event.get("arguments"), dict):
            calls.append((str(event.get("url") or ""), event["arguments"]))
        elif observed := _OBSERVED.match(message):
            results[int(observed.group(1)[:9])] = observed.group(2)
        elif (said := _TEXT_EVENT.match(message)) and (given := parse_row(said.group(2))):
            spoken.append(("", given | {"thoughts": said.group(1).strip()}))
    # Logs without structured events have the same actions in words.
    calls = calls or spoken
    answers = sorted(run.path.glob("*_answer.json"))
    if not answers:
        raise BrokenRunError("no *_final_answer.json: the run was stopped")
    final = row(read_json(answers[0]))
    if not calls:
        raise BrokenRunError(f"{_LOG} has no action")
    steps = []
    for place, (url, given) in enumerate(calls, start=1):
        shot = store_file(run.images, run.path / f"screenshot{place - 1}.png")
        observed = results.get(place)
        steps.append(
            _fara_step(run, place, given, shot, url, [(observed, False)] if observed else None, newer=False)
        )
    last = calls[-1][1]
    ended, aborted = last.get("action") in _FARA_ENDS, flag(final, "is_aborted") is True
    answer, seconds = text(final, "final_answer"), number(optional_row(run.path / "times.json"), "duration")
    return make_trajectory(
        run,
        steps,
        "done" if ended else "crashed" if aborted else "max_steps",
        known=ended or aborted,
        final_text="" if answer == "<no_answer>" else answer,
        declared=_fara_declared(last) if ended else None,
        seconds=seconds if seconds and 0 < seconds < 1e9 else None,
        verdict=_fara_score(run.path / "scores"),
        website=next((url for url, _ in calls if url.startswith("http")), ""),
    )


def _fara_score(folder: Path) -> Verdict | None:
    """Returns the first readable verdict of `webeval`; WebJudge's has priority, as the benchmark's own."""
    for file in sorted(
        folder.glob("*.json"), key=lambda one: (not one.name.startswith("WebJudge"), one.name)
    ):
        found = optional_row(file)
        if (score := number(found, "score")) is not None:
            return Verdict(file.stem, score >= 1, text(found, "gpt_response_text"))
    return None


def _read_point(run: Run) -> Trajectory:
    """Reads a folder of Fara-1.5."""
    point = read_json(run.path / _POINT)
    log = row(point, "solver_log")
    events = rows(log, "events")
    outputs: dict[str, list[tuple[str, bool]]] = {}
    for event in events:
        if event.get("observation_type") == "tool_output" and text(event, "action_id"):
            error = text(event, "error")
            outputs.setdefault(event["action_id"], []).append((error or text(event, "output"), bool(error)))
    steps: list[Step] = []
    before: Params = {}
    given: Params = {}
    for event in events:
        if event.get("type") != "action":
            if event.get("observation_type") == "environment" and event.get("action_id") is None:
                before = event
            continue
        given = {"action": at(event, "content", "action")} | row(event, "content", "arguments")
        name = file_name(text(before, "screenshot_path"))
        shot = store_file(run.images, run.path / name) if name else None
        results = outputs.get(text(event, "id"))
        usage = _fara_usage(event)
        url = text(before, "url")
        steps.append(_fara_step(run, len(steps) + 1, given, shot, url, results, newer=True, usage=usage))
    if not steps:
        raise BrokenRunError(f"{_POINT} has no action")
    ended = given.get("action") in _FARA_ENDS
    return make_trajectory(
        run,
        steps,
        # A run that reaches its last round is `complete`, too.
        "done" if ended else _FARA_OUTCOMES.get(text(log, "status"), "crashed"),
        known=ended,
        final_text=str((given if ended else row(log, "outcome")).get("answer") or ""),
        declared=_fara_declared(given) if ended else None,
        verdict=_fara_verified(row(point, "verification")),
        objective=text(point, "task", "instruction"),
        website=next((url for one in events if (url := text(one, "url")).startswith("http")), ""),
    )


def _fara_usage(event: Params) -> CallUsage | None:
    counts = [row(one, "usage") for one in rows(event, "llm_conversation", "messages")]

    def total(key: str) -> int:
        return sum(one[key] for one in counts if isinstance(one.get(key), int) and one[key] > 0)

    usage = CallUsage(prompt_tokens=total("prompt_tokens"), response_tokens=total("completion_tokens"))
    return usage if usage.tokens else None


def _fara_verified(verification: Params) -> Verdict | None:
    """Returns the verdict of the outcome verifier, else of the first one with a score."""
    for judge in sorted(
        verification, key=lambda one: at(verification, one, "result_type") != "mm_rubric_outcome"
    ):
        score, passed = number(verification, judge, "score"), flag(verification, judge, "output_success")
        if passed is not None or score is not None:
            won = passed if passed is not None else (score or 0) >= 0.5
            return Verdict(judge, won, str(at(verification, judge, "reasoning") or ""))
    return None


def _fara_step(
    run: Run,
    place: int,
    given: Params,
    shot: str | None,
    url: str,
    results: list[tuple[str, bool]] | None,
    newer: bool,
    usage: CallUsage | None = None,
) -> Step:
    thought = str(given.get("thoughts") or "")
    kept = json.dumps({key: value for key, value in given.items() if key != "thoughts"}, ensure_ascii=False)
    screen = screen_of(run.images, shot)
    found = Decision(
        raw=f"Thought: {thought}\nAction: {kept}",
        actions=lambda: fara_actions(given, screen, newer),
        screenshot=shot,
        url=url,
        thought=thought,
        results=results,
        usage=usage,
    )
    return make_step(run, place, found)


def fara_actions(given: Params, screen: Screen, newer: bool) -> list[Action]:
    """Maps the arguments of one `computer_use` call.

    Args:
      given: with the name of the action in `action`.
      newer: it is of Fara-1.5.

    Raises:
      UnmappedError: no counterpart (a right click, a drag from where the mouse is, a question to the user).
    """
    name = str(given.get("action"))

    def point() -> Point:
        sides = [_PLANE, _PLANE]
        if not newer and screen.width is not None and screen.height is not None:
            sides = [max(_PATCH, round(side / _PATCH) * _PATCH) for side in (screen.width, screen.height)]
        return screen.pixel(given.get("coordinate"), name, *sides)

    match name:
        case "left_click" | "click":
            return [clicked(point())]
        case "double_click":
            return [clicked(point(), double=True)]
        case "mouse_move" | "hover":
            return [hovered(point())]
        case "type" | "input_text":
            words = given.get("text", given.get("text_value"))
            if newer:  # It types into the focused element.
                return typed(words, clear=False, enter=False)
            clear, enter = given.get("delete_existing_text") is True, given.get("press_enter") is not False
            return [clicked(point()), *typed(words, clear, enter)]
        case "key" | "keypress":
            return [press(chord(given.get("keys"), name))]
        case "scroll":
            pixels = amount(given.get("pixels", 0), name)  # Positive is upwards.
            if newer:
                return [scrolled(-pixels / _PLANE, name)]
            return [screen.scroll(-_WHEEL if pixels > 0 else _WHEEL if pixels else 0, name)]
        case "visit_url":
            url = given.get("url")
            if not isinstance(url, str) or not url:
                raise UnmappedError(name, "it names no address")
            if url.startswith(_PROTOCOLS) or " " not in url:
                return [to_action("go_to_url", url=url if url.startswith(_PROTOCOLS) else f"https://{url}")]
            return [to_action("search_engine", query=url, engine="bing")]
        case "web_search":
            return [to_action("search_engine", query=given.get("query"), engine="bing")]
        case "history_back":
            return [to_action("go_back")]
        case "wait" | "sleep":
            return [wait(given.get("time", given.get("duration", 3.0)), name)]
        case "read_page_answer_question":
            return [to_action("extract_structured_data", query=given.get("question"))]
        case "terminate" | "stop":
            # Fara-7B's answer is its last thought.
            answer = str(given.get("answer" if newer else "thoughts") or "")
            return [to_action("done", text=answer, success=_fara_declared(given))]
    raise UnmappedError(name, NO_SUCH)


def _fara_declared(given: Params) -> bool | None:
    """Returns the agent's own word on its success, which Fara-1.5 does not give."""
    return {"success": True, "failure": False}.get(str(given.get("status")))
