"""Prints one pair: `python -m tests.mining.planted.show CATEGORY SEED`; `unplanted` is a category too."""

from __future__ import annotations

import json
import sys

from rmsweb_jax.records.schema import Step, Trajectory
from tests.mining.planted.build import CATEGORIES, Planted, planted_pair, unplanted_pair


def show_step(step: Step, mark: str) -> str:
    """Number, address, actions and results of a step, with its goal."""
    try:
        reply = json.loads(step.response)
        actions = " + ".join(json.dumps(action) for action in reply["action"])
        goal = reply["next_goal"]
    except (ValueError, KeyError, TypeError):
        actions, goal = repr(step.response), ""
    results = "; ".join(
        f"{result.text}{' !' if result.error else '' if result.changed or result.output else ' ='}"
        for result in step.results
    )
    elements, page = len(step.observation.elements), step.observation.fingerprint[:6]
    return (
        f"{mark}{step.number:3d} {step.observation.url}  ({elements} elements, {page})\n"
        f"       {goal} | {actions[:300]}\n       -> {step.error or results}"
    )


def show_run(name: str, trajectory: Trajectory, steps: tuple[int, ...]) -> str:
    head = (
        f"{name}: {trajectory.outcome}, declared {trajectory.declared_success}, success {trajectory.success}"
    )
    lines = [show_step(step, ">>" if step.number in steps else "  ") for step in trajectory.steps]
    tail = [f"  answer: {trajectory.final_text}"] if trajectory.final_text else []
    return "\n".join([head, *lines, *tail])


def show_pair(pair: Planted) -> str:
    """Both runs; `>>` marks the planted decision, `=` an action that changed nothing, `!` an error."""
    task = pair.success.task
    head = [
        f"{pair.category or 'unplanted'} at {task.website}: {pair.note}",
        task.objective,
        *task.constraints,
    ]
    success = show_run("success", pair.success, (pair.success_step,))
    localization = show_run("localization", pair.localization, pair.acceptable_localization_steps)
    return "\n".join([*head, "", success, "", localization])


if __name__ == "__main__":
    category, seed = sys.argv[1], int(sys.argv[2])
    if category not in (*CATEGORIES, "unplanted"):
        sys.exit(f"{category}: no such category; choose one of {', '.join((*CATEGORIES, 'unplanted'))}")
    print(show_pair(unplanted_pair(seed) if category == "unplanted" else planted_pair(category, seed)))
