"""Numbered login tasks with a success and a failure each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collection.mining.branch import branch
from collection.mining.judging import JudgedLabels
from collection.mining.pairs import RunPair
from rmsweb_jax.records.schema import Trajectory
from tests.collection.trajectories import CLICK, DONE, SCROLL, TYPE, TYPE_PASSWORD, numbered, trajectory
from tests.mining.label_server import chat_model

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


def label_users(url: str, cache: Path, users: Sequence[int]) -> list[str]:
    """The categories of those tasks' pairs; for processes of their own."""
    with JudgedLabels(chat_model(url), cache) as labels:
        return [label.category for label in labels.label_many([pair_of(user) for user in users], workers=2)]


def pair_of(number: int, *actions: dict[str, Any], **changes: Any) -> RunPair:
    return RunPair("primary", branch(success_of(number)), branch(failure_of(number, *actions, **changes)))
