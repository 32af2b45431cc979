"""Asking the teacher for a step: what it is sent, what is recorded of it, and what its reply means."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import orjson

from collection.agent import notices
from collection.agent.environment import ExtractionError, Look
from collection.agent.prompt import AgentState, PromptConfig, build_messages
from collection.llm.base import ExtractionRequest, ImageSource, Teacher, TeacherRequest
from rmsweb_jax.actions import Reply, ReplyError, action_catalogue, repair_reply
from rmsweb_jax.records.schema import CallUsage, ExtractionCall, Message


@dataclasses.dataclass(frozen=True)
class Answer:
    """A reply, as sent and as understood; `reply` is None when `error` says why not.

    Attributes:
      discarded: an earlier reply of this step, without any action; `usage` counts it.
    """

    messages: tuple[Message, ...]
    text: str
    reply: Reply | None
    error: str
    repaired: bool
    usage: CallUsage
    discarded: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Interview:
    """One episode's questions to its teacher.

    Attributes:
      guidance: is in every live message and in no record.
      excluded: actions that are not offered.
      redact: hides secrets in what the teacher wrote.
    """

    teacher: Teacher
    images: ImageSource
    prompt: PromptConfig
    attempt: int
    guidance: str
    excluded: tuple[str, ...]
    redact: Callable[[str], str]

    def ask(self, state: AgentState, look: Look, done_only: bool) -> Answer:
        """Asks for a step; a reply with an empty action list is asked for once more."""
        told = [notices.DONE_ONLY] if done_only else []
        told += [look.notice] if look.notice else []
        answer = self._once(state, look, told, done_only)
        if not _has_no_action(answer.text):
            return answer
        again = self._once(state, look, [*told, notices.NO_ACTION], done_only)
        return dataclasses.replace(
            again, usage=add_usage(answer.usage, again.usage), discarded=(answer.text,)
        )

    def _once(self, state: AgentState, look: Look, told: list[str], done_only: bool) -> Answer:
        state = dataclasses.replace(state, notice=" ".join(told))
        catalogue = action_catalogue(exclude=self.excluded)
        shown = catalogue if self.prompt.style == "full" else ()
        page = (look.observation, look.page_stats, self.prompt)
        recorded = live = build_messages(state, *page, actions=shown)
        if self.guidance:
            live = build_messages(state, *page, self.guidance, actions=shown)
        names = ("done",) if done_only else tuple(action["name"] for action in catalogue)
        sent = self.teacher.reply(
            TeacherRequest(
                state.task.task_id, self.attempt, state.step_number, live, self.images, actions=names
            )
        )
        text = self.redact(sent.text)
        reply, repaired, error = None, False, ""
        if sent.problem:
            # Mending would invent the end of a reply that was cut off.
            error = f"Unusable reply: {self.redact(sent.problem)}"
        else:
            try:
                reply, repaired = repair_reply(text)
            except ReplyError as problem:
                error = f"Unusable reply: {problem}"
        return Answer(recorded, text, reply, error, repaired, sent.usage)


@dataclasses.dataclass
class Reader:
    """The extractions of one step."""

    interview: Interview
    task_id: str
    step: int
    calls: list[ExtractionCall] = dataclasses.field(default_factory=list)

    def extract(self, query: str, text: str) -> str:
        """The teacher's answer about a page; every call is kept with its cost.

        Raises:
          ExtractionError: there is no answer.
        """
        redact = self.interview.redact
        reply = self.interview.teacher.extract(
            ExtractionRequest(
                task_id=self.task_id,
                attempt=self.interview.attempt,
                step=self.step,
                number=len(self.calls) + 1,
                query=query,
                text=redact(text),
            )
        )
        # A call without an answer is kept for its cost; empty, it is never learned from.
        answer = "" if reply.problem else redact(reply.text).strip()
        self.calls.append(ExtractionCall(messages=reply.messages, response=answer, usage=reply.usage))
        if not answer:
            raise ExtractionError(redact(reply.problem) or "the answer was empty")
        return answer


def add_usage(first: CallUsage, second: CallUsage) -> CallUsage:
    """Both calls as one."""
    return CallUsage(
        prompt_tokens=first.prompt_tokens + second.prompt_tokens,
        response_tokens=first.response_tokens + second.response_tokens,
        seconds=first.seconds + second.seconds,
        cost=first.cost + second.cost,
    )


def _has_no_action(text: str) -> bool:
    """Whether a reply is sound but for its empty action list."""
    start, end = text.find("{"), text.rfind("}")
    try:
        reply = orjson.loads(text[start : end + 1]) if start >= 0 else None
    except orjson.JSONDecodeError:
        return False
    return isinstance(reply, dict) and reply.get("action") == []
