"""Recorded runs to be judged: short to write, on live pages."""

from __future__ import annotations

from typing import Any

from collection.judges.notes import Criterion, TaskNotes
from rmsweb_jax.records.schema import Trajectory
from tests.trajectories import CLICK, DONE, step, trajectory

RUBRIC = (
    Criterion(criterion="Finds the lamp", description="The lamp's page is opened.", max_points=3),
    Criterion(criterion="Tells the price", max_points=2),
    Criterion(criterion="Says that it is sold out", condition="the lamp is sold out", max_points=4),
)


def shots(count: int) -> list[str]:
    return [f"{number:064x}" for number in range(count)]


def run(count: int = 2, task_id: str = "web/shop.test/1", **changes: Any) -> Trajectory:
    """`count` steps, each with a page and a screenshot of its own; the last one is `done`."""
    steps = [step(n, CLICK, page=f"page {n}", screenshot=shot) for n, shot in enumerate(shots(count - 1), 1)]
    steps.append(step(count, DONE, page="the last page", screenshot=shots(count)[-1]))
    values: dict[str, Any] = {
        "objective": "Find the lamp.",
        "final_text": "The lamp costs 12 EUR.",
        "declared_success": True,
        "reward": None,
        "success": False,
    }
    made = trajectory(*steps, task_id=task_id, site="shop.test", **(values | changes))
    return made.model_copy(update={"task": made.task.model_copy(update={"environment": "web", "seed": None})})


def rubric_notes(task_id: str = "web/shop.test/1") -> dict[str, TaskNotes]:
    return {task_id: TaskNotes(rubric=RUBRIC)}
