"""Queries to the actor: the prompt of a step, its record, and the parsed reply."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import orjson

from collection.agent.config import PromptConfig
from collection.agent.prompt import AgentState, build_messages, screenshot_size
from collection.environments.base import ExtractionError, View
from collection.llm.actor import DONE_ONLY, ActorModel, ExtractionRequest, StepRequest
from collection.llm.model import ImageSource
from rmsweb_jax.actions import Reply, ReplyError, action_catalogue, read_reply, repair_reply
from rmsweb_jax.records.schema import CallUsage, ExtractionCall, Message, SampledTokens, TextPart

NO_ACTION = "Your last reply had no action: give at least one."
_AGAIN = (
    "This reply could not be used, and nothing was done: {error}. Answer the message before it again, with "
    "one JSON object in the form that the first message shows and nothing else."
)
# Of an unusable reply, which may be long.
_MAX_SHOWN_CHARS = 2_000
UNUSABLE = "Unusable reply: "


@dataclasses.dataclass(frozen=True)
class ParsedReply:
    """An actor's reply, raw and parsed.

    Attributes:
      reply: None if the reply is unusable; `error` then gives the reason.
      problem: the actor itself says that its answer is no reply: cut off, blocked, empty.
      discarded: an earlier reply of this step that could not be used; `usage` includes it.
      outage_s: seconds that the calls have waited for a model that did not answer.
      sampled: tokens of the text, if the actor returns them.
    """

    messages: tuple[Message, ...]
    text: str
    reply: Reply | None
    error: str
    repaired: bool
    usage: CallUsage
    problem: bool = False
    discarded: tuple[str, ...] = ()
    outage_s: float = 0.0
    sampled: SampledTokens | None = None


@dataclasses.dataclass(frozen=True)
class ActorSession:
    """The queries of one episode to its actor.

    Attributes:
      guidance: added to every live message, and to no recorded one.
      excluded: names of actions that are not offered.
      redact: removes secrets from the actor's output.
      lenient: as of `EpisodeRunner`.
    """

    actor: ActorModel
    images: ImageSource
    prompt: PromptConfig
    attempt: int
    guidance: str
    excluded: tuple[str, ...]
    redact: Callable[[str], str]
    lenient: bool

    def query(self, state: AgentState, view: View, done_only: bool) -> ParsedReply:
        """Asks for a step. If `lenient`, asks once more after an unusable reply, which the actor is shown.

        If not, after an empty action list alone. Never if its tokens are recorded: every reply of a policy
        that learns from its episodes is a turn.
        """
        notices = [DONE_ONLY] if done_only else []
        notices += [view.notice] if view.notice else []
        first = self._query_once(state, view, notices, done_only)
        unusable = first.reply is None and not first.problem if self.lenient else _has_no_action(first.text)
        if first.sampled is not None or not unusable:
            return first
        if self.lenient:
            shown, error = first.text[:_MAX_SHOWN_CHARS], first.error.removeprefix(UNUSABLE)
            turns = (
                Message(role="assistant", content=(TextPart(text=shown),)),
                Message(role="user", content=(TextPart(text=_AGAIN.format(error=error)),)),
            )
            second = self._query_once(state, view, notices, done_only, turns)
        else:
            second = self._query_once(state, view, [*notices, NO_ACTION], done_only)
        return dataclasses.replace(
            second,
            usage=_add_usage(first.usage, second.usage),
            discarded=(first.text,),
            outage_s=first.outage_s + second.outage_s,
        )

    def _query_once(
        self,
        state: AgentState,
        view: View,
        notices: list[str],
        done_only: bool,
        turns: tuple[Message, ...] = (),
    ) -> ParsedReply:
        state = dataclasses.replace(state, notice=" ".join(notices))
        catalogue = action_catalogue(exclude=self.excluded)
        shown = catalogue if self.prompt.style == "full" else ()
        stats = view.page_stats
        if self.prompt.style == "screenshot":
            stats = screenshot_size(view.observation, self.images)
        page = (view.observation, stats, self.prompt)
        # Two versions: training must not see guidance or failed replies, which the policy will not have.
        recorded = live = build_messages(state, *page, actions=shown)
        if self.guidance:
            live = build_messages(state, *page, self.guidance, actions=shown)
        names = ("done",) if done_only else tuple(action["name"] for action in catalogue)
        answer = self.actor.reply(
            StepRequest(
                state.task.task_id, self.attempt, state.step_number, live + turns, self.images, actions=names
            )
        )
        text = self.redact(answer.text)
        reply, repaired, error = None, False, ""
        if answer.problem:
            # A truncated reply is not repaired: the repair would invent its end.
            error = UNUSABLE + self.redact(answer.problem)
        else:
            try:
                reply, repaired = (read_reply if self.lenient else repair_reply)(text)
            except ReplyError as problem:
                error = UNUSABLE + str(problem)
        return ParsedReply(
            recorded,
            text,
            reply,
            error,
            repaired,
            answer.usage,
            bool(answer.problem),
            outage_s=answer.outage_s,
            sampled=answer.sampled,
        )


@dataclasses.dataclass
class StepExtractor:
    """Answers the extraction queries of one step and records them.

    Attributes:
      outage_s: seconds that the calls have waited for a model that did not answer.
    """

    session: ActorSession
    task_id: str
    step: int
    calls: list[ExtractionCall] = dataclasses.field(default_factory=list)
    outage_s: float = 0.0

    def extract(self, query: str, text: str) -> tuple[str, float]:
        """Answers a question about a page, as `Extractor` says; records every call with its cost.

        Raises:
          ExtractionError: the actor gave no answer.
        """
        redact = self.session.redact
        reply = self.session.actor.extract(
            ExtractionRequest(
                task_id=self.task_id,
                attempt=self.session.attempt,
                step=self.step,
                number=len(self.calls) + 1,
                query=query,
                text=redact(text),
            )
        )
        self.outage_s += reply.outage_s
        # A call without an answer is recorded for its cost; training skips empty responses.
        answer = "" if reply.problem else redact(reply.text).strip()
        self.calls.append(
            ExtractionCall(messages=reply.messages, response=answer, usage=reply.usage, sampled=reply.sampled)
        )
        if not answer:
            raise ExtractionError(redact(reply.problem) or "the answer was empty")
        return answer, reply.outage_s


def _add_usage(first: CallUsage, second: CallUsage) -> CallUsage:
    """Returns the sum of two calls' usage."""
    return CallUsage(
        prompt_tokens=first.prompt_tokens + second.prompt_tokens,
        response_tokens=first.response_tokens + second.response_tokens,
        seconds=first.seconds + second.seconds,
        cost=first.cost + second.cost,
    )


def _has_no_action(text: str) -> bool:
    """Returns True for a reply that is valid JSON with an empty action list."""
    start, end = text.find("{"), text.rfind("}")
    try:
        reply = orjson.loads(text[start : end + 1]) if start >= 0 else None
    except orjson.JSONDecodeError:
        return False
    return isinstance(reply, dict) and reply.get("action") == []
