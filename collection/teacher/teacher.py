"""The scripted teacher: an `ActorModel` without network or model, with replies in an API model's format."""

from __future__ import annotations

import re
from collections import Counter

from collection.llm.actor import (
    DONE_ONLY,
    ActorReply,
    ExtractionRequest,
    ReflectionRequest,
    StepRequest,
    extraction_messages,
)
from collection.teacher.mistakes import (
    MistakeConfig,
    apply_mistake,
    draw_mistake,
    warnings_in,
    write_guidance,
)
from collection.teacher.parts import make_plan, next_move
from collection.teacher.state import parse_state
from rmsweb_jax.actions.parse import normalize_action, render_reply
from rmsweb_jax.actions.schema import Reply

# First words of the outcome of a successful round (`collection.fleet.rounds.describe_outcome`).
SUCCESS = "reached the goal"
NOT_FOUND = "The page has no line with a word of the query."
_WORD = re.compile(r"\w+")
_MAX_LINES = 5
# Words of a query that carry no information about its subject.
_COMMON = frozenset(
    _WORD.findall(
        "a an all and any are as at be by each find for from get give have how in is it list me of on or "
        "page show tell than that the their them these this to what when where which who with you"
    )
)


class ScriptedTeacher:
    """Decides from the state message and the wording of the request, with mistakes as configured."""

    name = "scripted"

    def __init__(self, mistakes: MistakeConfig):
        self._mistakes = mistakes

    def reply(self, request: StepRequest) -> ActorReply:
        state = parse_state(request.messages[-1].text, DONE_ONLY)
        plan = make_plan(state.request)
        mistake = None
        if plan:
            warned = warnings_in(state.guidance)
            mistake = draw_mistake(self._mistakes, plan, request.task_id, request.attempt, warned)
        move = next_move(state, plan, mistake.part if mistake else None)
        if mistake:
            move = apply_mistake(mistake, state, move, (request.task_id, request.attempt))
        last = state.history[-1] if state.history else None
        reply = Reply(
            thinking=None,
            evaluation_previous_goal="Start" if last is None else "Failed" if last.failed else "Success",
            memory=_memory(last.goal if last else ""),
            next_goal=move.goal,
            actions=(normalize_action(move.action),),
        )
        return ActorReply(render_reply(reply))

    def reflect(self, request: ReflectionRequest) -> ActorReply:
        success = request.outcome.startswith(SUCCESS)
        return ActorReply(write_guidance(request.objective, request.summary, success, request.guidance))

    def extract(self, request: ExtractionRequest) -> ActorReply:
        text = search_lines(request.text, request.query)
        return ActorReply(text, messages=extraction_messages(request))


def _memory(goal: str) -> str:
    """Returns a two-word summary of the last step."""
    verb, _, rest = goal.partition(" ")
    object_ = rest.split(" into ")[-1].split(" in '")[0].strip("'")
    done = {"Click": "clicked", "Type": "typed", "Select": "selected", "Scroll": "scrolled"}.get(verb)
    return f"{done} {object_}" if done else ""


def search_lines(text: str, query: str) -> str:
    """Returns the at most five lines that share most of the query's words, in page order.

    A word weighs more if fewer lines contain it.
    """
    lines = [line.strip() for line in text.splitlines() if _WORD.search(line)]
    words = [_words(line) for line in lines]
    wanted = _words(query) - _COMMON
    counts = Counter(word for line in words for word in line & wanted)
    scores = [sum(1 / counts[word] for word in line & wanted) for line in words]
    best = sorted((at for at, score in enumerate(scores) if score), key=lambda at: (-scores[at], at))
    return "\n".join(lines[at] for at in sorted(best[:_MAX_LINES])) or NOT_FOUND


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
