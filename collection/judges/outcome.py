"""The outcome judge: request, final answer and last screenshots to a verdict."""

from __future__ import annotations

import functools
import re

import jinja2

from collection.agent.fence import fenced_line, fenced_text
from collection.judges.base import Verdict
from collection.llm.base import call_seed
from collection.llm.model import ImageSource, Model, ModelRequest
from rmsweb_jax.records.schema import ImagePart, Message, TextPart, Trajectory

SCREENSHOTS = 4
MAX_ANSWER_CHARS = 30_000
MAX_PAGE_CHARS = 8_000

NO_ANSWER = "Failed without a call: no final answer."
GAVE_UP = "Failed without a call: the agent itself declared that it had not succeeded."

_DECORATION = r"[\s*_`\"'.!)\]]*"
_NOT_SUCCESS = re.compile(rf"(?<![\w-])NOT\s+SUCCESS(?:FUL)?{_DECORATION}\Z")
_SUCCESS = re.compile(rf"(?<![\w-])SUCCESS{_DECORATION}\Z")
# "This is in no way a SUCCESS" is not one.
_DENIAL = re.compile(
    r"\b(?:not|no|never|cannot|neither|nor|without|hardly|far from|unable|fail\w*)\b|n['’]t\b", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"[.!?:;]\s|\n")


class OutcomeJudge:
    """Judges by a multimodal model; `collection.judges.base.Judge`."""

    def __init__(self, model: Model):
        self._model = model

    @property
    def name(self) -> str:
        return f"outcome ({self._model.name})"

    def judge(self, trajectory: Trajectory, images: ImageSource) -> Verdict:
        """The verdict on a finished episode; without an answer nobody is asked.

        Raises:
          UserError: the model cannot answer.
        """
        if trajectory.outcome != "done" or not trajectory.final_text.strip():
            return Verdict(False, NO_ANSWER)
        if trajectory.declared_success is not True:
            return Verdict(False, GAVE_UP)
        task = trajectory.task
        reply = self._model.complete(
            ModelRequest(
                messages=outcome_messages(trajectory),
                purpose="judge",
                seed=call_seed("judge", task.task_id, trajectory.actor, trajectory.attempt),
                images=images,
            )
        )
        if reply.problem:
            return Verdict(None, f"{reply.text}\n[{reply.problem}]".strip(), reply.usage)
        return Verdict(read_verdict(reply.text), reply.text, reply.usage)


def read_verdict(text: str) -> bool | None:
    """The verdict that a judge's words end in; None for UNKNOWN and for everything else."""
    if _NOT_SUCCESS.search(text):
        return False
    found = _SUCCESS.search(text)
    if found is None:
        return None
    sentence = _SENTENCE_END.split(text[: found.start()])[-1]
    return None if _DENIAL.search(sentence) else True


def outcome_messages(trajectory: Trajectory) -> tuple[Message, ...]:
    """One user message: the request, the answer, the last page's text, and up to `SCREENSHOTS` pictures."""
    shots = [step.observation.screenshot for step in trajectory.steps]
    shown = [shot for shot in shots if shot is not None][-SCREENSHOTS:]
    last = trajectory.steps[-1]
    text = _template().render(
        screenshots=len(shown),
        objective=trajectory.task.objective,
        constraints=trajectory.task.constraints,
        answer=fenced_text(trajectory.final_text, MAX_ANSWER_CHARS),
        url=fenced_line(last.observation.url),
        title=fenced_line(last.observation.title),
        page_text=last.observation.page_text[:MAX_PAGE_CHARS],  # Made harmless where it was written.
    )
    pictures = tuple(ImagePart(sha256=shot) for shot in shown)
    return (Message(role="user", content=(TextPart(text=text), *pictures)),)


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("collection.judges", "prompts"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # Chat text, not HTML: escaping would change what is quoted.
    )
    return environment.get_template("outcome.j2")
