"""What answers for the agent: one interface for models behind an API and for the scripted teacher."""

from __future__ import annotations

import dataclasses
import hashlib
import random
from typing import Protocol

from collection.llm.model import ImageSource
from rmsweb_jax.records.schema import CallUsage, Message


@dataclasses.dataclass(frozen=True)
class TeacherRequest:
    """One decision to make.

    Attributes:
      task_id, attempt, step: which decision; every random choice is seeded by them, so that runs
        repeat whatever the order and the number of workers.
      messages: the live chat, with guidance where there is any.
      images: resolves the messages' screenshots.
      actions: names of the actions that may be answered with; empty: the usual ones.
    """

    task_id: str
    attempt: int
    step: int
    messages: tuple[Message, ...]
    images: ImageSource
    actions: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ReflectionRequest:
    """A finished round to learn from.

    Attributes:
      summary: one line a step (`collection.reflect.summarize`).
      outcome: how the round ended, in words.
      guidance: what the round was told; empty in the first.
    """

    task_id: str
    attempt: int
    objective: str
    summary: str
    outcome: str
    guidance: str


@dataclasses.dataclass(frozen=True)
class ExtractionRequest:
    """A page to be read for the agent.

    Attributes:
      number: which extraction of the step it is, from 1.
      query: what the agent wants to know.
      text: the page, or a part of it, as Markdown; at most 30,000 characters by the interface.
    """

    task_id: str
    attempt: int
    step: int
    number: int
    query: str
    text: str


@dataclasses.dataclass(frozen=True)
class TeacherReply:
    """What a teacher answered.

    Attributes:
      problem: why the text is no proper answer (blocked, cut off, empty), one line; else empty.
      messages: what was sent, where the caller did not write it itself (extractions, reflections).
    """

    text: str
    usage: CallUsage = dataclasses.field(default_factory=CallUsage)
    problem: str = ""
    messages: tuple[Message, ...] = ()


class Teacher(Protocol):
    """Decides steps, reflects on rounds and reads pages.

    All calls raise `UserError` when nothing can be answered: a refused key, an exhausted quota or
    budget, an endpoint that stays down.
    """

    @property
    def name(self) -> str:
        """The model or program, as written to `Trajectory.model`."""
        ...

    def reply(self, request: TeacherRequest) -> TeacherReply: ...

    def reflect(self, request: ReflectionRequest) -> TeacherReply: ...

    def extract(self, request: ExtractionRequest) -> TeacherReply: ...


def call_seed(*key: object) -> int:
    """31 bits from anything with a stable `str`; equal in every process, unlike `hash`."""
    digest = hashlib.sha256("\x1f".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def seeded(*key: object) -> random.Random:
    """A random generator of its own for `key`."""
    return random.Random(call_seed(*key))
