"""The embedded teacher: no network, no model, the same interface and the same text as an API model's."""

from __future__ import annotations

from collection.agent import notices
from collection.llm.base import ExtractionRequest, ReflectionRequest, TeacherReply, TeacherRequest
from collection.llm.messages import extraction_messages
from collection.llm.scripted import guidance
from collection.llm.scripted.mistakes import MistakeConfig, apply_mistake, draw_mistake
from collection.llm.scripted.plan import make_plan
from collection.llm.scripted.reading import search_lines
from collection.llm.scripted.solve import Move, next_move
from collection.llm.scripted.view import View, read_state
from rmsweb_jax.actions.parse import normalize_action, render_reply
from rmsweb_jax.actions.schema import Reply

SUCCESS = "reached the goal"  # How a round's outcome begins when it did.


class ScriptedTeacher:
    """Reads the state message, decides by the wording of the request, and errs as configured."""

    name = "scripted"

    def __init__(self, mistakes: MistakeConfig):
        self._mistakes = mistakes

    def reply(self, request: TeacherRequest) -> TeacherReply:
        view = read_state(request.messages[-1].text, notices.DONE_ONLY)
        plan = make_plan(view.request)
        mistake = None
        if plan:
            warned = guidance.warnings_in(view.guidance)
            mistake = draw_mistake(self._mistakes, plan, request.task_id, request.attempt, warned)
        move = next_move(view, plan, mistake.part if mistake else None)
        if mistake:
            move = apply_mistake(mistake, view, move, (request.task_id, request.attempt))
        return TeacherReply(render_reply(_reply(view, move)))

    def reflect(self, request: ReflectionRequest) -> TeacherReply:
        success = request.outcome.startswith(SUCCESS)
        return TeacherReply(
            guidance.write_guidance(request.objective, request.summary, success, request.guidance)
        )

    def extract(self, request: ExtractionRequest) -> TeacherReply:
        text = search_lines(request.text, request.query)
        return TeacherReply(text, messages=extraction_messages(request))


def _reply(view: View, move: Move) -> Reply:
    last = view.history[-1] if view.history else None
    return Reply(
        thinking=None,
        evaluation_previous_goal="Start" if last is None else "Failed" if last.failed else "Success",
        memory=_memory(last.goal if last else ""),
        next_goal=move.goal,
        actions=(normalize_action(move.action),),
    )


def _memory(goal: str) -> str:
    """What the last step did, in two words or so."""
    verb, _, rest = goal.partition(" ")
    object_ = rest.split(" into ")[-1].split(" in '")[0].strip("'")
    done = {"Click": "clicked", "Type": "typed", "Select": "selected", "Scroll": "scrolled"}.get(verb)
    return f"{done} {object_}" if done else ""
