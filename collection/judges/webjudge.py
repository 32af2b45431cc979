"""WebJudge (Online-Mind2Web): key points, relevant screenshots, and a verdict on those.

Xue et al. 2025, "An Illusion of Progress?"; the prompts are our own.
"""

from __future__ import annotations

import dataclasses

from collection.agent.prompt import fenced_line, fenced_text
from collection.judges.asking import ModelJudge, Questions
from collection.judges.base import Verdict
from collection.judges.evidence import MAX_ANSWER_CHARS, history, render, screenshots
from collection.judges.notes import TaskNotes
from collection.judges.reading import read_score, read_status
from rmsweb_jax.records.schema import Trajectory

LEAST_SCORE = 3
SCREENSHOTS = 30  # RMSWeb, appendix: up to 30 screenshots.
NO_STATUS = "[no verdict: the last line is neither Status: success nor Status: failure]"
_MAX_POINTS_CHARS = 4_000
_MAX_REASON_CHARS = 600


@dataclasses.dataclass(frozen=True)
class _Shot:
    """A screenshot and its assessment.

    Attributes:
      score: None if the assessment could not be parsed.
    """

    step: int
    picture: str
    score: int | None
    reason: str

    @property
    def weight(self) -> int:
        """Ranking weight; an unparsable assessment counts as just relevant, so that it hides no evidence."""
        return LEAST_SCORE if self.score is None else self.score


class WebJudge(ModelJudge):
    """Asks for the key points, then about each screenshot, then for the verdict."""

    method = "webjudge"
    templates = ("key_points.j2", "screenshot.j2", "status.j2")
    evidence = (
        ("screenshots", SCREENSHOTS),
        ("least_score", LEAST_SCORE),
        ("answer_chars", MAX_ANSWER_CHARS),
    )
    sees = f"the actions, the final answer and the {SCREENSHOTS} screenshots that it took to matter most"

    def _decide(self, trajectory: Trajectory, notes: TaskNotes, questions: Questions) -> Verdict:
        points = fenced_text(questions.ask(render("key_points.j2", trajectory)), _MAX_POINTS_CHARS)
        taken = [
            self._assess(trajectory, points, step, shot, questions) for step, shot in screenshots(trajectory)
        ]
        kept = _kept(taken)
        text = render(
            "status.j2", trajectory, points=points, shots=kept, steps=history(trajectory), least=LEAST_SCORE
        )
        words = questions.ask(text, [shot.picture for shot in kept])
        success = read_status(words)
        unread = sum(shot.score is None for shot in taken)
        kept_note = (
            f"[{len(kept)} of {len(taken)} screenshots kept; {unread} without a score that can be read]"
        )
        return Verdict(success, "\n".join([words, kept_note, *([NO_STATUS] if success is None else [])]))

    def _assess(
        self, trajectory: Trajectory, points: str, step: int, picture: str, questions: Questions
    ) -> _Shot:
        text = render("screenshot.j2", trajectory, points=points, step=step, total=len(trajectory.steps))
        words = questions.ask(text, [picture])
        score = read_score(words)
        reason = "" if score is None else words.strip().rpartition("\n")[0]
        return _Shot(step, picture, score, fenced_line(reason, _MAX_REASON_CHARS))


def _kept(taken: list[_Shot]) -> list[_Shot]:
    """Selects relevant screenshots in order; if too many, the best ones, and the later of equals."""
    matter = [shot for shot in taken if shot.weight >= LEAST_SCORE]
    best = sorted(matter, key=lambda shot: (shot.weight, shot.step))[-SCREENSHOTS:]
    return sorted(best, key=lambda shot: shot.step)
