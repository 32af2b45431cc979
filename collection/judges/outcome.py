"""`own_outcome`: our judge by request, answer, actions, last page and last screenshots.

After the outcome judge of RMSWeb's appendix; the prompt is our own, and it is no benchmark's official judge.
"""

from __future__ import annotations

from collection.agent.prompt import fenced_line, fenced_text
from collection.judges.asking import ModelJudge, Questions
from collection.judges.base import Verdict
from collection.judges.evidence import MAX_ANSWER_CHARS, TEXT_LIMITS, history, page, render
from collection.judges.notes import Reference, TaskNotes
from collection.judges.reading import read_verdict
from rmsweb_jax.records.schema import Trajectory

SCREENSHOTS = 4  # RMSWeb, appendix: the last four screenshots.


class OwnOutcomeJudge(ModelJudge):
    """Asks one question, with the task's reference answer if its notes have one."""

    method = "own_outcome"
    sees = f"the actions, the final answer, the last page as text and the last {SCREENSHOTS} screenshots"
    templates = ("outcome.j2",)
    evidence = (("screenshots", SCREENSHOTS), *TEXT_LIMITS)
    needs_answer = True

    def _decide(self, trajectory: Trajectory, notes: TaskNotes, questions: Questions) -> Verdict:
        shots = [shot for step in trajectory.steps if (shot := step.observation.screenshot)][-SCREENSHOTS:]
        text = render(
            "outcome.j2",
            trajectory,
            screenshots=len(shots),
            steps=history(trajectory),
            page=page(trajectory.steps[-1]),
            reference=notes.reference and _fenced(notes.reference),
        )
        words, success = questions.decide(text, read_verdict, shots)
        return Verdict(success, words)


def _fenced(reference: Reference) -> Reference:
    return Reference(
        answer=fenced_text(reference.answer, MAX_ANSWER_CHARS),
        golden=reference.golden,
        notice=fenced_line(reference.notice),
    )
