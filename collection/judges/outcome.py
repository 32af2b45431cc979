"""The outcome judge (RMSWeb, appendix): judges by request, answer, last page and last screenshots."""

from __future__ import annotations

from collection.agent.prompt import fenced_line, fenced_text
from collection.judges.asking import ModelJudge, Questions
from collection.judges.base import Verdict
from collection.judges.evidence import MAX_ANSWER_CHARS, MAX_PAGE_CHARS, page, render
from collection.judges.notes import Reference, TaskNotes
from collection.judges.reading import read_verdict
from rmsweb_jax.records.schema import Trajectory

SCREENSHOTS = 4  # RMSWeb, appendix: the last four screenshots.
NO_LINE = "[no verdict: the last line is neither SUCCESS nor NOT SUCCESS alone]"


class OutcomeJudge(ModelJudge):
    """Asks one question, with the task's reference answer if its notes have one."""

    method = "outcome"
    sees = f"the final answer, the last page as text and the last {SCREENSHOTS} screenshots"
    templates = ("outcome.j2",)
    evidence = (
        ("screenshots", SCREENSHOTS),
        ("page_chars", MAX_PAGE_CHARS),
        ("answer_chars", MAX_ANSWER_CHARS),
    )
    needs_answer = True

    def _decide(self, trajectory: Trajectory, notes: TaskNotes, questions: Questions) -> Verdict:
        shots = [shot for step in trajectory.steps if (shot := step.observation.screenshot)][-SCREENSHOTS:]
        text = render(
            "outcome.j2",
            trajectory,
            screenshots=len(shots),
            page=page(trajectory.steps[-1]),
            reference=notes.reference and _fenced(notes.reference),
        )
        words = questions.ask(text, shots)
        success = read_verdict(words)
        return Verdict(success, words if success is not None else f"{words}\n{NO_LINE}")


def _fenced(reference: Reference) -> Reference:
    return Reference(
        answer=fenced_text(reference.answer, MAX_ANSWER_CHARS),
        golden=reference.golden,
        notice=fenced_line(reference.notice),
    )
