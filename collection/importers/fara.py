r"""Imports run folders of Fara (github.com/microsoft/fara).

    RUNS/<task id>/web_surfer.log            Fara-7B: one JSON event a line
                   <task id>_final_answer.json   the answer
                   screenshot<N>.png         the page after action N, without boxes; 0 is before the first
                   times.json, scores/<judge>.json   duration; verdicts of `webeval`
    RUNS/<folder>/data_point.json            Fara-1.5: task, events and verdicts
                  screenshot_<N>_pre.png, screenshot_<N>_post.png

Read from commit 3f3f1fd82cc2769a6630932d1670bac7349f4a42 (Fara-7B: `src/fara/fara_agent.py`, and
`systems/websurfer.py`, `trajectory.py`, `utils.py` and `core.py` in `webeval/src/webeval`) and
6505fefa7137151f44ec360a6ef765eb5dd1a835 (Fara-1.5: `src/fara/agents/fara/fara15_agent.py`,
`src/fara/run_fara.py`). Its `core/data_point.py` and `core/run_context.py` were read from a public copy
without a commit; `tests/test_fara15.py` of f4d453095260a5706db32a74363cc20399a37e84 uses the same fields.

Fara-7B's folders do not contain the request: give a tasks file. Neither has page text or elements.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import Field

from collection.importers.common import (
    BrokenRunError,
    Foreign,
    RunContext,
    clean,
    read_json,
    store_file,
    validated,
)
from collection.importers.coordinates import (
    Ending,
    ForeignStep,
    Verdict,
    make_step,
    make_trajectory,
    screen_of,
)
from collection.importers.fara_actions import answer, declared, is_end, map_action
from rmsweb_jax.records.schema import CallUsage, Outcome, Step, Trajectory

SOURCE = "fara"
_LOG, _POINT = "web_surfer.log", "data_point.json"
_OBSERVED = re.compile(r"\s*Observation#(\d+): (.*)", re.DOTALL)
_TEXT_EVENT = re.compile(r"\s*Thought #\d+: (.*?)\nAction #\d+: .*?with arguments\s+(\{.*\})", re.DOTALL)
_NO_ANSWER = "<no_answer>"
_ENDED: dict[str, Outcome] = {
    "complete": "max_steps",
    "aborted": "crashed",
    "running": "crashed",
    "waiting_for_user": "failures",
}


class FinalAnswer(Foreign):
    final_answer: str | None = None
    is_aborted: bool = False


class Score(Foreign):
    score: float
    gpt_response_text: str | None = None


class Event(Foreign):
    """One event of Fara-1.5: an action, or an observation of its page, output or user."""

    type: str
    id: str | None = None
    observation_type: str = ""
    action_id: str | None = None
    screenshot_path: str = ""
    url: str = ""
    output: str = ""
    error: str = ""
    # Of an action: its name and arguments; of a user, the message.
    content: Any = None
    llm_conversation: dict[str, Any] = Field(default_factory=dict)


class SolverLog(Foreign):
    events: tuple[Event, ...] = ()
    status: str = ""
    outcome: dict[str, Any] | None = None


class PointTask(Foreign):
    task_id: str
    instruction: str


class DataPoint(Foreign):
    task: PointTask
    solver_log: SolverLog
    verification: dict[str, dict[str, Any]] = Field(default_factory=dict)


def find_runs(folder: Path) -> Iterator[tuple[str, Path]]:
    """Finds every folder with a log or a data point; its name is the run's."""
    found = {path.parent for name in (_LOG, _POINT) for path in folder.rglob(name)}
    for path in sorted(found):
        yield path.name, path


def read_run(name: str, path: Path, attempt: int, context: RunContext) -> Trajectory:
    """Reads one run folder.

    Raises:
      BrokenRunError: a file is missing or no JSON, or the run has no action.
    """
    if (path / _POINT).exists():
        return _read_point(name, path, attempt, context)
    return _read_log(name, path, attempt, context)


def _read_log(name: str, path: Path, attempt: int, context: RunContext) -> Trajectory:
    calls, results = _calls(path / _LOG, context)
    files = sorted(path.glob("*_answer.json"))
    if not files:
        raise BrokenRunError("no *_final_answer.json: the run was stopped")
    final = validated(FinalAnswer, read_json(files[0]), files[0].name)
    if not calls:
        raise BrokenRunError(f"{_LOG} has no action")
    steps = []
    for number, (url, arguments) in enumerate(calls, start=1):
        shot = store_file(context.images, [path / f"screenshot{number - 1}.png"])
        thought = str(arguments.get("thoughts") or "")
        observed = results.get(number)
        found = ForeignStep(
            raw=_raw(thought, arguments),
            screenshot=shot,
            url=url,
            thought=thought,
            results=((observed, False),) if observed else None,
        )
        steps.append(_step(number, found, arguments, context, newer=False))
    last = calls[-1][1]
    ended = is_end(last)
    text = final.final_answer if final.final_answer not in (None, _NO_ANSWER) else ""
    ending = Ending(
        "done" if ended else "crashed" if final.is_aborted else "max_steps",
        known=ended or final.is_aborted,
        text=text or "",
        declared=declared(last) if ended else None,
        seconds=_duration(path / "times.json"),
    )
    website = next((url for url, _ in calls if url.startswith("http")), "")
    return make_trajectory(
        name, SOURCE, attempt, context, steps, ending, _score(path / "scores"), website=website
    )


def _calls(path: Path, context: RunContext) -> tuple[list[tuple[str, dict[str, Any]]], dict[int, str]]:
    """Returns url and arguments of every action of a log, and what was observed after it, by its number."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise BrokenRunError(f"{path.name} cannot be read ({error.strerror})") from error
    calls, spoken, results = [], [], {}
    for line in lines:
        try:
            event = json.loads(line.encode("utf-8", "replace"))
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            # The last line of a stopped run, or another program's output.
            context.notes.left_out["lines of web_surfer.log"] += 1
            continue
        message, arguments = str(event.get("message") or ""), event.get("arguments")
        if event.get("action") is not None and isinstance(arguments, dict):
            calls.append((str(event.get("url") or ""), clean(arguments)))
        elif observed := _OBSERVED.match(message):
            results[int(observed.group(1))] = clean(observed.group(2))
        elif (said := _TEXT_EVENT.match(message)) and (parsed := _object(said.group(2))) is not None:
            spoken.append(("", clean(parsed | {"thoughts": said.group(1).strip()})))
    # Logs without structured events have the same actions in words.
    return calls or spoken, results


def _read_point(name: str, path: Path, attempt: int, context: RunContext) -> Trajectory:
    point = validated(DataPoint, read_json(path / _POINT), _POINT)
    log = point.solver_log
    outputs: dict[str, list[tuple[str, bool]]] = {}
    for event in log.events:
        if event.observation_type == "tool_output" and event.action_id:
            text = event.error or event.output
            outputs.setdefault(event.action_id, []).append((text, bool(event.error)))
    steps, before, last = [], Event(type="observation"), {}
    for event in log.events:
        if event.type != "action":
            if event.observation_type == "environment" and event.action_id is None:
                before = event
            continue
        last = _arguments(event)
        thought = str(last.get("thoughts") or "")
        # Only the file name: a run must not lead to other folders.
        shot = PurePosixPath(before.screenshot_path.replace("\\", "/")).name
        found = ForeignStep(
            raw=_raw(thought, last),
            screenshot=store_file(context.images, [path / shot] if shot else []),
            url=before.url,
            thought=thought,
            results=tuple(outputs.get(event.id or "", ())) or None,
            usage=_usage(event),
        )
        steps.append(_step(len(steps) + 1, found, last, context, newer=True))
    if not steps:
        raise BrokenRunError(f"{_POINT} has no action")
    ended = is_end(last)
    # A run that reaches its last round is `complete`, too.
    outcome: Outcome = "done" if ended else _ENDED.get(log.status, "crashed")
    answered = str((log.outcome or {}).get("answer") or "")
    ending = Ending(
        outcome,
        known=ended,
        text=answer(last, newer=True) if ended else answered,
        declared=declared(last) if ended else None,
    )
    website = next((event.url for event in log.events if event.url.startswith("http")), "")
    verdict = _verified(point.verification)
    return make_trajectory(
        name, SOURCE, attempt, context, steps, ending, verdict, point.task.instruction, website
    )


def _step(
    number: int, found: ForeignStep, arguments: dict[str, Any], context: RunContext, newer: bool
) -> Step:
    screen = screen_of(context.images, found.screenshot)
    return make_step(number, found, lambda: map_action(arguments, screen, newer), context.notes)


def _arguments(event: Event) -> dict[str, Any]:
    content = event.content if isinstance(event.content, dict) else {}
    given = content.get("arguments")
    arguments = given if isinstance(given, dict) else {}
    return {"action": content.get("action")} | arguments


def _raw(thought: str, arguments: dict[str, Any]) -> str:
    kept = {key: value for key, value in arguments.items() if key != "thoughts"}
    return f"Thought: {thought}\nAction: {json.dumps(kept, ensure_ascii=False)}"


def _usage(event: Event) -> CallUsage | None:
    messages = event.llm_conversation.get("messages")
    used = (
        [one.get("usage") for one in messages if isinstance(one, dict)] if isinstance(messages, list) else []
    )
    counts = [one for one in used if isinstance(one, dict)]

    def total(key: str) -> int:
        return sum(one[key] for one in counts if isinstance(one.get(key), int) and one[key] > 0)

    usage = CallUsage(prompt_tokens=total("prompt_tokens"), response_tokens=total("completion_tokens"))
    return usage if usage.tokens else None


def _verified(verification: dict[str, dict[str, Any]]) -> Verdict | None:
    """Returns the verdict of the outcome verifier, else of the first one with a score."""
    by_outcome = sorted(
        verification.items(), key=lambda item: item[1].get("result_type") != "mm_rubric_outcome"
    )
    for judge, result in by_outcome:
        score, passed = result.get("score"), result.get("output_success")
        if isinstance(passed, bool) or isinstance(score, int | float):
            won = passed if isinstance(passed, bool) else float(score or 0) >= 0.5
            return Verdict(judge, won, str(result.get("reasoning") or ""))
    return None


def _score(folder: Path) -> Verdict | None:
    """Returns the first readable verdict of `webeval`; WebJudge's has priority, as the benchmark's own."""
    files = sorted(folder.glob("*.json"), key=lambda file: (not file.name.startswith("WebJudge"), file.name))
    for file in files:
        try:
            read = validated(Score, read_json(file), file.name)
        except BrokenRunError:
            continue
        return Verdict(file.stem, read.score >= 1, read.gpt_response_text or "")
    return None


def _duration(path: Path) -> float | None:
    try:
        value = read_json(path)
    except BrokenRunError:
        return None
    seconds = value.get("duration") if isinstance(value, dict) else None
    return float(seconds) if isinstance(seconds, int | float) and 0 < seconds < 1e9 else None


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
