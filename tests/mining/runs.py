"""Numbered login tasks with a success and failures each."""

from __future__ import annotations

from typing import Any

from collection.mining.runs import RunPair, parse_run
from rmsweb_jax.records.schema import Trajectory
from tests.trajectories import CLICK, DONE, SCROLL, TYPE, TYPE_PASSWORD, numbered, trajectory

PREMATURE = (TYPE, DONE)
WANDERS = (TYPE, SCROLL, SCROLL, SCROLL)


def success_of(number: int, **changes: Any) -> Trajectory:
    values: dict[str, Any] = {
        "task_id": f"miniwob/login-user/{number}",
        "objective": f"Log in as user {number}.",
        "declared_success": True,
    }
    return trajectory(*numbered(TYPE, TYPE_PASSWORD, CLICK, DONE), **(values | changes))


def failure_of(number: int, *actions: dict[str, Any], **changes: Any) -> Trajectory:
    """A run of `actions`; without any it ends before its form is filled in."""
    values: dict[str, Any] = {
        "task_id": f"miniwob/login-user/{number}",
        "objective": f"Log in as user {number}.",
        "success": False,
        "actor": "sft",
    }
    return trajectory(*numbered(*(actions or PREMATURE)), **(values | changes))


def tied_runs(tasks: int) -> list[Trajectory]:
    """A success and two failures, by two actors, of each task; all of equal lengths, so that ties occur."""
    return [
        run
        for number in range(tasks)
        for run in (success_of(number), failure_of(number), failure_of(number, actor="base"))
    ]


def pair_of(number: int, *actions: dict[str, Any], **changes: Any) -> RunPair:
    return RunPair(
        "primary", parse_run(success_of(number)), parse_run(failure_of(number, *actions, **changes))
    )
