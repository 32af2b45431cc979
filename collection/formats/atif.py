"""ATIF documents, the Agent Trajectory Interchange Format of Harbor (RFC 0001, version 1.7), out and in.

The first steps are the system prompt and the request with the first page; then there is one step per
decision: its actions are tool calls, and its observation has their results and the page that followed.
Images are referred to by path. What ATIF has no field for is in `extra`, under the names of our records; a
document without it, of another agent, is read from ATIF's own fields. The model's input is in neither.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from collection.formats.browser_use import browser_use_action
from collection.formats.common import (
    BrokenRunError,
    Decision,
    Run,
    Verdict,
    flag,
    make_step,
    make_trajectory,
    number,
    read_json,
    row,
    rows,
    store_file,
    text,
)
from collection.formats.turns import (
    Turn,
    page_words,
    request,
    result_words,
    system_prompt,
    turns,
)
from rmsweb_jax.actions import Action, ReplyError, recorded_reply
from rmsweb_jax.records.schema import CallUsage, Observation, Outcome, Step, Task, Trajectory

# As `page_words` writes a page.
_HEAD = re.compile(r"\A(?:URL: (.*)(?:\n|\Z))?(?:Title: (.*)(?:\n|\Z))?")
# The oldest version with all fields that are used.
SCHEMA = "ATIF-v1.7"
_NOTES = (
    "One agent step per decision. An observation result without a source_call_id is the page after the "
    "step's actions, as the agent saw it. Times were not recorded."
)


def atif_document(
    run: Trajectory, image_path: Callable[[str], str], version: str, page_text: bool = True
) -> bytes:
    """Returns an episode as one JSON document.

    Args:
      image_path: path of an image, by its SHA-256, as the document is to name it.
      version: of the agent; of an imported run it is unknown.
      page_text: the pages' lines are in it, too.
    """
    played = turns(run)
    steps: list[dict[str, Any]] = []
    if system := system_prompt(run):
        steps.append({"source": "system", "message": system})
    first = run.steps[0].observation if run.steps else None
    steps.append({"source": "user", "message": _content(request(run), first, image_path, page_text)})
    steps += [_agent_step(turn, image_path, page_text) for turn in played]
    document = {
        "schema_version": SCHEMA,
        "session_id": run.trajectory_id,
        "trajectory_id": run.trajectory_id,
        "agent": {
            "name": run.source or "rmsweb-jax",
            "version": "unknown" if run.source else version,
            "model_name": run.model,
            "extra": {"actor": run.actor},
        },
        "steps": [{"step_id": number} | step for number, step in enumerate(steps, start=1)],
        "notes": _NOTES,
        "final_metrics": _totals([turn.usage for turn in played], len(steps), run),
        "extra": _extra(run),
    }
    return json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n"


def _agent_step(turn: Turn, image_path: Callable[[str], str], page_text: bool) -> dict[str, Any]:
    step: dict[str, Any] = {"source": "agent", "message": turn.message}
    if turn.thinking:
        step["reasoning_content"] = turn.thinking
    if turn.calls:
        step["tool_calls"] = [
            {"tool_call_id": call.id, "function_name": call.name, "arguments": call.arguments}
            for call in turn.calls
        ]
    results = [
        {
            "source_call_id": call.id,
            "content": result_words(call.result),
            "extra": {"error": call.result.error, "changed": call.result.changed},
        }
        for call in turn.calls
        if call.result is not None
    ]
    if turn.step.error:
        results.append({"content": turn.step.error, "extra": {"error": True}})
    if turn.page is not None:
        results.append({"content": _content("", turn.page, image_path, page_text)})
    if results:
        step["observation"] = {"results": results}
    if turn.usage is not None:
        step["metrics"] = _metrics(turn.usage)
        step["llm_call_count"] = turn.llm_calls
    recorded = turn.step
    extra = {
        "number": recorded.number,
        "response": recorded.response,
        "error": recorded.error,
        "repaired": recorded.repaired,
        "discarded": list(recorded.discarded),
        "incidents": [one.model_dump() for one in recorded.incidents],
        "fingerprint": recorded.observation.fingerprint,
    }
    step["extra"] = {key: value for key, value in extra.items() if value}
    return step


def _content(
    text: str, page: Observation | None, image_path: Callable[[str], str], page_text: bool
) -> str | list[dict[str, Any]]:
    """Returns text and page, as parts if there is a screenshot."""
    words = "\n\n".join(part for part in (text, page_words(page, page_text) if page else "") if part)
    if page is None or page.screenshot is None:
        return words
    image = {"media_type": "image/png", "path": image_path(page.screenshot)}
    return [*([{"type": "text", "text": words}] if words else []), {"type": "image", "source": image}]


def _metrics(usage: CallUsage) -> dict[str, Any]:
    metrics: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.response_tokens,
        "extra": {"seconds": usage.seconds},
    }
    # 0 is also the cost of a model without a known price.
    return metrics | ({"cost_usd": usage.cost} if usage.cost else {})


def _totals(usages: Sequence[CallUsage | None], steps: int, run: Trajectory) -> dict[str, Any]:
    """Sums of the steps' metrics; the judge's calls are not the agent's."""
    totals: dict[str, Any] = {"total_steps": steps, "extra": {"seconds": run.seconds, "retries": run.retries}}
    known = [usage for usage in usages if usage is not None]
    if len(known) < len(usages):
        return totals
    cost = sum(usage.cost for usage in known)
    return (
        totals
        | {
            "total_prompt_tokens": sum(usage.prompt_tokens for usage in known),
            "total_completion_tokens": sum(usage.response_tokens for usage in known),
        }
        | ({"total_cost_usd": cost} if cost else {})
    )


def _extra(run: Trajectory) -> dict[str, Any]:
    """Returns what is known of task and verdict."""
    fields = ("attempt", "outcome", "detail", "declared_success", "final_text", "reward", "success", "judge")
    fields += ("judge_text", "judge_score", "judge_usage", "judge_fingerprint", "incidents", "missing")
    recorded = run.model_dump(mode="json", include={"task", *fields})
    return {name: recorded[name] for name in ("task", *fields) if recorded[name] not in (None, "", [])}


# In.


def find_atif(folder: Path) -> Iterator[tuple[str, Path]]:
    """Finds documents: every JSON file counts as one, and its path is its name."""
    for path in sorted(folder.rglob("*.json")):
        yield path.relative_to(folder).with_suffix("").as_posix(), path


def read_atif(run: Run) -> Trajectory:
    document = read_json(run.path)
    if not text(document, "schema_version").startswith("ATIF-"):
        raise BrokenRunError(f"{run.path.name} is no ATIF document (no schema_version 'ATIF-v...')")
    listed, extra = rows(document, "steps"), row(document, "extra")
    ours = _task(extra)
    user = next((one for one in listed if one.get("source") == "user"), {})
    asked, shot = _shown(run, user.get("message"))
    page = asked.removeprefix("\n".join((ours.objective, *ours.constraints))).strip("\n") if ours else ""
    played = [one for one in listed if one.get("source") == "agent"]
    if not played:
        raise BrokenRunError(f"{run.path.name} has no step of the agent")
    steps = []
    for place, one in enumerate(played, start=1):
        steps.append(_read_step(run, place, one, page, shot))
        # The page that followed is a result of none of the calls; the other one is an error of the reply.
        after = [
            found for found in rows(one, "observation", "results") if found.get("source_call_id") is None
        ]
        after = [found for found in after if "extra" not in found][-1:]
        page, shot = _shown(run, after[0].get("content")) if after else ("", None)
    ended = any(call.get("function_name") == "done" for call in rows(played[-1], "tool_calls"))
    outcome, judge, success = text(extra, "outcome"), text(extra, "judge"), flag(extra, "success")
    known = outcome in get_args(Outcome)
    made = make_trajectory(
        run,
        steps,
        outcome if known else "done" if ended else "max_steps",  # pyright: ignore[reportArgumentType]
        known=known or ended,
        objective=ours.objective if ours else asked,
        website=ours.website if ours else "",
        final_text=text(extra, "final_text") or (text(played[-1], "message") if ended and not ours else ""),
        declared=flag(extra, "declared_success"),
        detail=text(extra, "detail"),
        seconds=number(document, "final_metrics", "extra", "seconds"),
        verdict=Verdict(judge, success is True, text(extra, "judge_text")) if judge else None,
    )
    model = text(document, "agent", "model_name")
    update: dict[str, Any] = {"model": model} if model else {}
    if ours:
        actor, attempt = text(document, "agent", "extra", "actor") or run.actor, number(extra, "attempt")
        attempt = int(attempt or run.attempt)
        named = {"trajectory_id": f"{ours.task_id}#{actor}-{attempt}", "actor": actor, "attempt": attempt}
        update |= named | {"task": ours, "reward": number(extra, "reward")}
        if run.info(run.name).success is None:  # A tasks file has priority.
            update["success"] = success is True
    # A model's name is the only field that other formats never have.
    missing = tuple(name for name in made.missing if name != "model" or not model)
    lacked = extra.get("missing") if ours else None
    lacked = [name for name in lacked if isinstance(name, str)] if isinstance(lacked, list) else []
    return made.model_copy(update=update | {"missing": tuple(sorted({*missing, *lacked}))})


def _task(extra: dict[str, Any]) -> Task | None:
    """Returns the task of a document that this project wrote."""
    try:
        return Task.model_validate(extra.get("task"))
    except ValidationError:
        return None


def _shown(run: Run, content: Any) -> tuple[str, str | None]:
    """Returns the words of a content, and its last image; a path must not lead out of the folder."""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    words, shot, folder = [], None, run.path.parent
    for part in map(row, parts):
        words.append(text(part, "text"))
        path = text(part, "source", "path")
        if path and (folder / path).resolve().is_relative_to(folder.resolve()):
            shot = store_file(run.images, folder / path)
    return "\n".join(filter(None, words)), shot


def _read_step(run: Run, place: int, one: dict[str, Any], page: str, shot: str | None) -> Step:
    calls, results = rows(one, "tool_calls"), rows(one, "observation", "results")
    answered = {text(found, "source_call_id"): found for found in results}
    names = [text(call, "tool_call_id") for call in calls]
    answers = [answered[name] for name in names if name in answered]
    flags = [flag(found, "extra", "changed") for found in answers]
    raw, error = text(one, "extra", "response"), text(one, "extra", "error")
    reply = None
    if raw and not error:
        try:
            reply = recorded_reply(raw)[0]
        except ReplyError as broken:
            error = str(broken)

    def actions() -> list[Action]:
        if reply:
            return list(reply.executable)
        return [browser_use_action({text(call, "function_name"): row(call, "arguments")}) for call in calls]

    head = _HEAD.match(page)
    assert head is not None
    said = {"message": one.get("message"), "tool_calls": calls}
    found = Decision(
        raw=raw or json.dumps(said, ensure_ascii=False),
        actions=actions,
        screenshot=shot,
        url=head[1] or "",
        title=head[2] or "",
        page_text=page[head.end() :],
        thought=(reply.thinking or "") if reply else text(one, "reasoning_content"),
        evaluation=reply.evaluation_previous_goal if reply else "",
        memory=reply.memory if reply else "",
        goal=reply.next_goal if reply else text(one, "message"),
        results=[
            (
                _shown(run, found.get("content"))[0].removeprefix("Error: "),
                flag(found, "extra", "error") is True,
            )
            for found in answers
        ],
        changed=[differs is True for differs in flags] if flags and None not in flags else (),
        aligned=all(name in answered for name in names[: len(answers)]),
        usage=_usage(row(one, "metrics")),
        error=error or ("" if calls else "Unusable reply: no tool call"),
    )
    return make_step(run, place, found)


def _usage(metrics: dict[str, Any]) -> CallUsage | None:
    tokens = [int(number(metrics, name) or 0) for name in ("prompt_tokens", "completion_tokens")]
    seconds, cost = number(metrics, "extra", "seconds") or 0.0, number(metrics, "cost_usd") or 0.0
    return (
        CallUsage(prompt_tokens=tokens[0], response_tokens=tokens[1], seconds=seconds, cost=cost)
        if metrics
        else None
    )
