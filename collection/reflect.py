"""The reflection handler: a finished round and the guidance it had become the guidance of the next."""

from __future__ import annotations

from collection.llm.base import ReflectionRequest, Teacher
from collection.rounds import Reflected
from rmsweb_jax.actions import ReplyError, repair_reply
from rmsweb_jax.records.schema import Reflection, Step, Trajectory

_OUTCOMES = {
    "done": "it declared completion",
    "max_steps": "the step limit was reached",
    "failures": "too many steps failed in a row",
    "timeout": "the time limit was reached",
    "blocked": "the site refused access",
    "captcha": "the site asked for a captcha",
    "unreachable": "the start page could not be opened",
    "crashed": "the browser crashed",
}


def summarize(trajectory: Trajectory) -> str:
    """One line a step: `number. URL | thinking | goal: GOAL | N actions` (RMSWeb, section 3.1)."""
    return "\n".join(_summarize_step(step) for step in trajectory.steps)


def _summarize_step(step: Step) -> str:
    thinking = goal = "?"
    try:
        reply, _ = repair_reply(step.response)
    except ReplyError:
        goal = step.error or goal
    else:
        thinking, goal = reply.thinking or reply.memory, reply.next_goal
    cells = (step.observation.url, thinking, f"goal: {goal}", f"{len(step.results)} actions")
    return f"{step.number}. " + " | ".join(" ".join(cell.split()) for cell in cells)


def describe_outcome(trajectory: Trajectory) -> str:
    """How a round ended, in words; begins with `reached the goal` exactly when it did."""
    if trajectory.success:
        return "reached the goal"
    text = f"did not reach the goal: {_OUTCOMES[trajectory.outcome]}"
    if trajectory.outcome == "done" and trajectory.declared_success:
        text += ", but the request was not fulfilled"
    return text + (f" ({trajectory.detail})" if trajectory.detail else "")


def reflect(trajectory: Trajectory, guidance: str, teacher: Teacher) -> Reflected:
    """tau_N, rho_{N-1} -> rho_N (RMSWeb, section 3.1).

    Where the teacher gives no proper answer (blocked, cut off), the guidance stays what it was.
    """
    reply = teacher.reflect(
        ReflectionRequest(
            task_id=trajectory.task.task_id,
            attempt=trajectory.attempt,
            objective=trajectory.task.objective,
            summary=summarize(trajectory),
            outcome=describe_outcome(trajectory),
            guidance=guidance,
        )
    )
    text = guidance if reply.problem else reply.text.strip()
    reflection = Reflection(task_id=trajectory.task.task_id, attempt=trajectory.attempt, guidance=text)
    return Reflected(reflection=reflection, usage=reply.usage)
