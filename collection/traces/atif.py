"""Episodes as ATIF documents, the Agent Trajectory Interchange Format of Harbor (RFC 0001, version 1.7).

The first steps are the system prompt and the request with the first page; then there is one step per
decision: its actions are tool calls, and its observation has their results and the page that followed.
Images are referred to by path. What ATIF has no field for is in `extra`, under the names of our records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from collection.traces.turns import (
    Turn,
    page_words,
    request,
    result_words,
    system_prompt,
    turns,
)
from rmsweb_jax.records.schema import CallUsage, Observation, Trajectory

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
