"""Trajectories without what only training reads: decoded at a fraction of the full records' time.

A pool of 100,000 runs is some hundred gigabytes of JSON, most of it prompts. Whoever only compares runs
skips over that: unknown fields are ignored, and a step's messages stay bytes until they are read.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import msgspec
from pydantic import TypeAdapter

from rmsweb_jax.records.schema import Message, Outcome, Trajectory


class Element(msgspec.Struct, frozen=True, gc=False):
    """`rmsweb_jax.records.schema.Element` without attributes."""

    index: int | None
    tag: str
    text: str


class Observation(msgspec.Struct, frozen=True):
    url: str
    title: str
    page_text: str
    elements: tuple[Element, ...]
    fingerprint: str
    screenshot: str | None = None


class ActionResult(msgspec.Struct, frozen=True, gc=False):
    action: str
    text: str
    error: bool = False
    changed: bool = False
    output: str = ""


class Step(msgspec.Struct, frozen=True):
    """`rmsweb_jax.records.schema.Step`; `messages` are parsed each time they are read."""

    number: int
    observation: Observation
    messages_json: msgspec.Raw = msgspec.field(name="messages")
    response: str
    results: tuple[ActionResult, ...] = ()
    error: str = ""
    repaired: bool = False

    @property
    def messages(self) -> tuple[Message, ...]:
        return _messages().validate_json(bytes(self.messages_json))


class Task(msgspec.Struct, frozen=True):
    task_id: str
    website: str
    objective: str
    constraints: tuple[str, ...] = ()
    category: str = "Other"
    environment: Literal["web", "miniwob"] = "web"
    site: str = ""


class Run(msgspec.Struct, frozen=True):
    """`rmsweb_jax.records.schema.Trajectory`, as far as runs are compared."""

    trajectory_id: str
    task: Task
    actor: str
    attempt: int
    steps: tuple[Step, ...]
    outcome: Outcome
    declared_success: bool | None = None
    final_text: str = ""
    success: bool = False


class TaskHead(msgspec.Struct, frozen=True, gc=False):
    task_id: str


class Head(msgspec.Struct, frozen=True):
    """Which run a record holds and how it ended."""

    trajectory_id: str
    task: TaskHead
    success: bool = False


_RUN = msgspec.json.Decoder(Run)
_HEAD = msgspec.json.Decoder(Head)


def decode_run(entry: bytes) -> Run:
    """Decodes a stored trajectory.

    Raises:
      ValueError: the bytes are not a trajectory.
    """
    return _RUN.decode(entry)


def decode_head(entry: bytes) -> Head:
    """Decodes a stored trajectory's head; skips its steps."""
    return _HEAD.decode(entry)


def lean(trajectory: Trajectory) -> Run:
    """What `decode_run` gives for a record's bytes."""
    return _RUN.decode(trajectory.model_dump_json())


@functools.cache
def _messages() -> TypeAdapter[Any]:
    return TypeAdapter(tuple[Message, ...])
