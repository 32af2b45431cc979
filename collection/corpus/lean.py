"""Trajectories without the fields that only training reads, decoded in a fraction of the time.

A pool of 100,000 runs is some hundred gigabytes of JSON, most of it prompts. Code that only compares runs
skips these: unknown fields are ignored, and a step's messages stay bytes until they are read.

`gc=False` is for structs without references to containers, which cannot be in a reference cycle.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import msgspec
from pydantic import TypeAdapter

from rmsweb_jax.records.schema import Message, Outcome, Trajectory


class LeanElement(msgspec.Struct, frozen=True, gc=False):
    """`rmsweb_jax.records.schema.Element`; `attributes` are parsed on every access."""

    index: int | None
    tag: str
    text: str
    attributes_json: msgspec.Raw = msgspec.field(name="attributes", default=msgspec.Raw(b"{}"))

    @property
    def attributes(self) -> dict[str, str]:
        return _ATTRIBUTES.decode(self.attributes_json)


class LeanObservation(msgspec.Struct, frozen=True):
    url: str
    title: str
    page_text: str
    elements: tuple[LeanElement, ...]
    fingerprint: str
    screenshot: str | None = None


class LeanActionResult(msgspec.Struct, frozen=True, gc=False):
    action: str
    text: str
    error: bool = False
    changed: bool = False
    output: str = ""


class LeanStep(msgspec.Struct, frozen=True):
    """`rmsweb_jax.records.schema.Step`; `messages` are parsed on every access."""

    number: int
    observation: LeanObservation
    messages_json: msgspec.Raw = msgspec.field(name="messages")
    response: str
    results: tuple[LeanActionResult, ...] = ()
    error: str = ""
    repaired: bool = False

    @property
    def messages(self) -> tuple[Message, ...]:
        return _messages().validate_json(bytes(self.messages_json))


class LeanTask(msgspec.Struct, frozen=True):
    task_id: str
    website: str
    objective: str
    constraints: tuple[str, ...] = ()
    category: str = "Other"
    environment: Literal["web", "miniwob", "app"] = "web"
    site: str = ""


class Run(msgspec.Struct, frozen=True):
    """The fields of `rmsweb_jax.records.schema.Trajectory` by which runs are compared."""

    trajectory_id: str
    task: LeanTask
    actor: str
    attempt: int
    steps: tuple[LeanStep, ...]
    outcome: Outcome
    declared_success: bool | None = None
    final_text: str = ""
    success: bool = False


class TaskHead(msgspec.Struct, frozen=True, gc=False):
    task_id: str


class Head(msgspec.Struct, frozen=True):
    """Identity and result of a run."""

    trajectory_id: str
    task: TaskHead
    success: bool = False


_RUN = msgspec.json.Decoder(Run)
_ATTRIBUTES = msgspec.json.Decoder(dict[str, str])
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
    """Converts a record to the result of `decode_run` on its bytes."""
    return _RUN.decode(trajectory.model_dump_json())


@functools.cache
def _messages() -> TypeAdapter[Any]:
    return TypeAdapter(tuple[Message, ...])
