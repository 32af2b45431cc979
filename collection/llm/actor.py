"""The actor interface, and the actor that is backed by a language model.

An actor decides the steps of an episode, writes guidance after a round and extracts text from pages.
Two exist: `LLMActor` here, over any `Model`, and the offline demo's `ScriptedTeacher`.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import re
from typing import Any, Protocol

import jinja2

from collection.llm.model import ImageSource, Model, ModelRequest, Purpose, call_seed
from rmsweb_jax.actions.json_schema import reply_schema
from rmsweb_jax.records.schema import CallUsage, Message, SampledTokens, TextPart

# A line of the state message. The scripted teacher has to recognise it, so both sides import it from here.
DONE_ONLY = "Only done is allowed now: say what was achieved and whether it is all that was asked."
# Tag around page text in extraction prompts.
FENCE = "untrusted_page"
# A page that contains the tag itself could end the fence early and speak outside it.
_FENCE_MARK = re.compile(rf"<(?=\s*/?\s*{FENCE})", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class StepRequest:
    """A request for the next step of an episode.

    Attributes:
      task_id, attempt, step: identify the step. They seed every random choice, so that a run repeats
        with any number of workers and in any order.
      messages: the live chat, including guidance if there is any.
      images: resolves the screenshots in the messages.
      actions: names of the actions that are allowed; empty allows the default set.
    """

    task_id: str
    attempt: int
    step: int
    messages: tuple[Message, ...]
    images: ImageSource
    actions: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ReflectionRequest:
    """A request for guidance after a finished round.

    Attributes:
      summary: one line per step (`collection.fleet.rounds.summarize`).
      outcome: the end of the round in words.
      guidance: the guidance that the round was played with; empty in the first round.
    """

    task_id: str
    attempt: int
    objective: str
    summary: str
    outcome: str
    guidance: str


@dataclasses.dataclass(frozen=True)
class ExtractionRequest:
    """A request to read a page for the agent.

    Attributes:
      number: position among the extractions of the step, from 1.
      query: the question that the agent asks about the page.
      text: the page, or a part of it, as Markdown; at most 30,000 characters by the interface.
    """

    task_id: str
    attempt: int
    step: int
    number: int
    query: str
    text: str


@dataclasses.dataclass(frozen=True)
class ActorReply:
    """The text that an actor returned, with its cost.

    Attributes:
      problem: one line that says why the text is not a usable answer (blocked, cut off, empty); else empty.
      messages: the messages sent, if the actor wrote them itself (extractions, reflections).
      outage_s: seconds that the call has waited for a model that did not answer.
      sampled: tokens of the text, if the model's server returns them.
    """

    text: str
    usage: CallUsage = dataclasses.field(default_factory=CallUsage)
    problem: str = ""
    messages: tuple[Message, ...] = ()
    outage_s: float = 0.0
    sampled: SampledTokens | None = None


class ActorModel(Protocol):
    """Decides steps, reflects on rounds and extracts text from pages.

    All methods raise `UserError` if no answer can be had: a refused key, an exhausted quota or budget, or
    an endpoint that stays down. A program that inherits from it need not reflect or extract.
    """

    @property
    def name(self) -> str:
        """Name of the model or program, as written to `Trajectory.model`."""
        return type(self).__name__

    @abc.abstractmethod
    def reply(self, request: StepRequest) -> ActorReply: ...

    def reflect(self, request: ReflectionRequest) -> ActorReply:
        return ActorReply("", problem=f"{self.name} does not reflect")

    def extract(self, request: ExtractionRequest) -> ActorReply:
        return ActorReply("", problem=f"{self.name} does not read pages")


class LLMActor:
    """An `ActorModel` that sends each request to a language model."""

    def __init__(self, model: Model):
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    def reply(self, request: StepRequest) -> ActorReply:
        seed = call_seed("reply", request.task_id, request.attempt, request.step)
        schema = reply_schema(request.actions)
        return self._ask("reply", request.messages, seed, request.images, schema)

    def reflect(self, request: ReflectionRequest) -> ActorReply:
        seed = call_seed("reflect", request.task_id, request.attempt)
        return self._ask("reflect", reflection_messages(request), seed)

    def extract(self, request: ExtractionRequest) -> ActorReply:
        key = (request.task_id, request.attempt, request.step, request.number)
        return self._ask("extract", extraction_messages(request), call_seed("extract", *key))

    def _ask(
        self,
        purpose: Purpose,
        messages: tuple[Message, ...],
        seed: int,
        images: ImageSource | None = None,
        schema: dict[str, Any] | None = None,
    ) -> ActorReply:
        answer = self._model.complete(ModelRequest(messages, purpose, seed, images, schema))
        return ActorReply(
            answer.text, answer.usage, answer.problem, messages, answer.outage_s, answer.sampled
        )


def reflection_messages(request: ReflectionRequest) -> tuple[Message, ...]:
    """Returns one user message with the task, the steps, the outcome and the earlier guidance."""
    text = _template("reflection.j2").render(
        objective=request.objective,
        summary=request.summary,
        outcome=request.outcome,
        guidance=request.guidance,
    )
    return (Message(role="user", content=(TextPart(text=text),)),)


def extraction_messages(request: ExtractionRequest) -> tuple[Message, ...]:
    """Returns one user message with the query and the page, fenced as untrusted text."""
    text = _template("extraction.j2").render(
        query=request.query, text=_FENCE_MARK.sub("&lt;", request.text), fence=FENCE
    )
    return (Message(role="user", content=(TextPart(text=text),)),)


@functools.cache
def _template(name: str) -> jinja2.Template:
    loader = jinja2.PackageLoader("collection.llm", "prompts")
    # The output is chat text, not HTML: escaping would change the text that is quoted.
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, autoescape=False)
    return environment.get_template(name)
