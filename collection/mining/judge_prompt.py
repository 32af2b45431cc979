"""What a judge of failure modes is sent: the task, both runs' last steps, the rule features."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import jinja2

from collection.agent.fence import fenced_line, fenced_text
from collection.mining.branch import Branch
from collection.mining.judge_answer import Answer
from collection.mining.labels import PAPER_SHARES
from collection.steps import StepView
from rmsweb_jax.records.schema import Message, TextPart

# Longest texts, in characters: both runs' steps together stay within a few thousand tokens.
_MAX_ADDRESS = 300
_MAX_WORDS = 500
_MAX_PARAMS = 300
_MAX_ANSWER = 4_000
_MAX_REQUEST = 8_000
_MAX_FIRST = 2_000

# What belongs to each category (RMSWeb, appendix, "Failure-label taxonomy").
EXPLANATIONS: dict[str, str] = {
    "unverifiable_evidence": "the conclusion lacks evidence from a page, or rests on a source that does not "
    "satisfy the task",
    "endpoint_incomplete": "the target is found, but not added, booked, submitted or confirmed as the task "
    "wants; also an end that comes too early",
    "access_obstruction": "a captcha, a refusal such as 403, or a control that is not available",
    "ui_navigation": "a detail page, tab, date picker, dropdown or field is not reached or not operated",
    "runtime_evaluation": "the run times out or crashes, or its actions cannot be interpreted",
    "constraint_mismatch": "what was chosen or typed violates a required attribute, object or number",
    "filter_context": "a filter, sort order or search is claimed to be active, but the page does not show it",
    "datetime_availability": "a requested date, time, stock or recency is never verified",
    "target_discovery": "repeated searching or navigating does not reach the page where the task is done",
    "extraction_omission": "a required field, unit, comparison or computed number is missing or wrong",
    "login_payment_boundary": "it stops at the wrong login, payment or privacy boundary, or gives sensitive "
    "data that nobody gave it",
}


def label_messages(
    success: Branch,
    localization: Branch,
    features: Mapping[str, float],
    final_steps: int,
    first: Answer | None = None,
) -> tuple[Message, ...]:
    """One user message.

    Args:
      features: how the runs differ, each in [0, 1]; zeros may be left out.
      final_steps: how many of each run's last steps are summarized.
      first: the answer that is to be reviewed; None asks for the first one.
    """
    task = success.run.task
    text = _template("label.j2" if first is None else "review.j2").render(
        objective=fenced_text(task.objective, _MAX_REQUEST),
        constraints=[fenced_line(constraint) for constraint in task.constraints],
        website=fenced_line(task.website, _MAX_ADDRESS),
        success=_run(success, final_steps),
        other=_run(localization, final_steps),
        features=dict(sorted(features.items())),
        categories={name: EXPLANATIONS[name] for name in PAPER_SHARES},
        first=first and _first(first),
    )
    return (Message(role="user", content=(TextPart(text=text.rstrip()),)),)


def _first(answer: Answer) -> dict[str, Any]:
    return {
        "verdict": answer.verdict,
        "reason": fenced_line(answer.verdict.reason, _MAX_WORDS) if answer.verdict else "",
        "note": fenced_line(answer.note, _MAX_WORDS),
        "text": fenced_line(answer.text, _MAX_FIRST),
    }


def _run(branch: Branch, final_steps: int) -> dict[str, Any]:
    run, steps = branch.run, branch.steps
    left_out = max(0, len(steps) - final_steps)
    return {
        "success": run.success,
        "outcome": run.outcome,
        "declared_success": run.declared_success,
        "answer": fenced_line(run.final_text, _MAX_ANSWER),
        "left_out": left_out,
        "total": len(steps),
        "steps": [_step(number, step) for number, step in enumerate(steps[left_out:], start=left_out + 1)],
    }


def _step(number: int, view: StepView) -> dict[str, Any]:
    observation, reply = view.step.observation, view.reply
    return {
        "number": number,
        "url": fenced_line(observation.url, _MAX_ADDRESS),
        "title": fenced_line(observation.title, _MAX_ADDRESS),
        "usable": reply is not None,
        "memory": fenced_line(reply.memory, _MAX_WORDS) if reply else "",
        "goal": fenced_line(reply.next_goal, _MAX_WORDS) if reply else "",
        "actions": [
            fenced_line(f"{action.name} {_params(action.params)}", _MAX_PARAMS) for action in reply.executable
        ]
        if reply
        else [],
        "results": [
            {
                "action": result.action,
                "error": result.error,
                "changed": result.changed,
                "text": fenced_line(result.text, _MAX_WORDS),
            }
            for result in view.step.results
        ],
    }


def _params(params: Any) -> str:
    return json.dumps(params.model_dump(exclude_defaults=True), ensure_ascii=False)


@functools.cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("collection.mining", "prompts"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # Chat text, not HTML: escaping would change what is quoted.
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(name)
