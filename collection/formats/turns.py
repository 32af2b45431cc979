"""The parts of a recorded episode that all trace formats have: calls with their results, and pages."""

from __future__ import annotations

import dataclasses
from typing import Any

from collection.corpus.steps import view
from rmsweb_jax.records.schema import ActionResult, CallUsage, Observation, Step, Trajectory


@dataclasses.dataclass(frozen=True)
class ToolCall:
    """An executed action; `result` is None if none was recorded."""

    id: str
    name: str
    arguments: dict[str, Any]
    result: ActionResult | None


@dataclasses.dataclass(frozen=True)
class Turn:
    """One step of the agent.

    Attributes:
      message: what it said: its next goal, else its memory; its raw reply if that could not be used.
      calls: the actions that were executed; none of an unusable reply.
      page: what it saw next; None after the last step.
      usage: of the reply and of page readings; None if it was not recorded.
      llm_calls: number of these calls.
    """

    step: Step
    message: str
    thinking: str
    calls: tuple[ToolCall, ...]
    page: Observation | None
    usage: CallUsage | None
    llm_calls: int


def turns(run: Trajectory) -> list[Turn]:
    """Returns the steps of an episode in order."""
    pages = [step.observation for step in run.steps]
    return [_turn(run, step, page) for step, page in zip(run.steps, [*pages, None][1:], strict=True)]


def request(run: Trajectory) -> str:
    """Returns the task as the agent was given it."""
    return "\n".join((run.task.objective, *run.task.constraints))


def system_prompt(run: Trajectory) -> str:
    """Returns the system message of the first step; empty if none was recorded."""
    messages = run.steps[0].messages if run.steps else ()
    return next((message.text for message in messages if message.role == "system"), "")


def page_words(page: Observation, with_text: bool) -> str:
    """Describes a page in words: address, title and, if asked for, its lines as the agent saw them."""
    head = [f"URL: {page.url}"] if page.url else []
    head += [f"Title: {page.title}"] if page.title else []
    text = [page.page_text] if with_text and page.page_text else []
    return "\n".join([*head, *text])


def result_words(result: ActionResult) -> str:
    """Returns the text of a result, and what the agent read."""
    text = f"Error: {result.text}" if result.error else result.text
    return "\n".join(part for part in (text, result.output) if part)


def _turn(run: Trajectory, step: Step, page: Observation | None) -> Turn:
    reply = view(step).reply
    usages = [step.usage, *(extraction.usage for extraction in step.extractions)]
    recorded = "steps.usage" not in run.missing
    total = CallUsage(
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        response_tokens=sum(usage.response_tokens for usage in usages),
        seconds=sum(usage.seconds for usage in usages),
        cost=sum(usage.cost for usage in usages),
    )
    llm_calls = len(usages) + len(step.discarded)
    if reply is None:
        return Turn(step, step.response, "", (), page, total if recorded else None, llm_calls)
    calls = []
    for place, action in enumerate(reply.executable):
        result = step.results[place] if place < len(step.results) else None
        params = action.params.model_dump(mode="json", exclude_defaults=True)
        calls.append(ToolCall(f"step-{step.number}-{place + 1}", action.name, params, result))
    return Turn(
        step,
        reply.next_goal or reply.memory,
        reply.thinking or "",
        tuple(calls),
        page,
        total if recorded else None,
        llm_calls,
    )
