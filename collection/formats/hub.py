"""Episodes as sessions in the Session Trace Simple Format (STS-Format) of the Hugging Face Hub.

Each is one JSON-lines file: a header, then messages with tool calls and their results. Described at
huggingface.co/docs/hub/session-traces-format; read from huggingface/hub-docs at
9d148464cd781f6c3488af4fb48ab15935f72216. The format has text alone: a screenshot is a Markdown image with
its path.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from collection.formats.turns import Turn, page_words, request, result_words, system_prompt, turns
from rmsweb_jax.records.schema import Observation, Trajectory

HARNESS = "rmsweb-jax"
_NAME_CHARS = 120


def hub_session(
    run: Trajectory, image_path: Callable[[str], str], version: str, page_text: bool = True
) -> bytes:
    """Returns an episode as JSON lines.

    Args:
      image_path: path of an image, by its SHA-256, as the file is to name it.
      version: of the program that recorded it.
      page_text: the pages' lines are in it, too.
    """

    def shown(text: str, page: Observation | None) -> str:
        parts = [text, page_words(page, page_text) if page else ""]
        if page is not None and page.screenshot:
            parts.append(f"![screenshot]({image_path(page.screenshot)})")
        return "\n\n".join(part for part in parts if part)

    header = {
        "type": "session",
        "harness": HARNESS,
        "id": run.trajectory_id,
        "name": " ".join(run.task.objective.split())[:_NAME_CHARS] or run.task.task_id,
        "version": version,
        "source": run.source,
        "model": run.model,
        "actor": run.actor,
        "attempt": run.attempt,
        "task_id": run.task.task_id,
        "site": run.task.site,
        "outcome": run.outcome,
        "success": run.success,
        "judge": run.judge,
    }
    messages: list[dict[str, Any]] = []
    if system := system_prompt(run):
        messages.append({"role": "system", "content": system})
    first = run.steps[0].observation if run.steps else None
    messages.append({"role": "user", "content": shown(request(run), first)})
    for turn in turns(run):
        messages += _messages(turn, run.model, shown)
    lines = [header, *({"type": "message", "message": message} for message in messages)]
    return b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)


def _messages(
    turn: Turn, model: str, shown: Callable[[str, Observation | None], str]
) -> list[dict[str, Any]]:
    said: dict[str, Any] = {"role": "assistant", "content": turn.message, "model": model}
    if turn.thinking:
        said["reasoningContent"] = turn.thinking
    if not turn.calls:
        after = shown(turn.step.error, turn.page)
        return [said, *([{"role": "user", "content": after}] if after else [])]
    said["toolCalls"] = [
        {
            "id": call.id,
            "function": {
                "name": call.name,
                "arguments": json.dumps(call.arguments, ensure_ascii=False),
            },
        }
        for call in turn.calls
    ]
    results = [
        # The page that followed is with the last result.
        {
            "role": "tool",
            "toolCallId": call.id,
            "content": shown(
                result_words(call.result) if call.result else "",
                turn.page if call is turn.calls[-1] else None,
            ),
        }
        for call in turn.calls
    ]
    return [said, *results]
