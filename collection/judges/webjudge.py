"""`own_webjudge`: our judge by key points, relevant screenshots, and a verdict on those.

After the three stages of Online-Mind2Web's WebJudge (Xue et al. 2025, "An Illusion of Progress?"). The
prompts are our own, and it is not the benchmark's official judge.
"""

from __future__ import annotations

import dataclasses

from collection.agent.prompt import fenced_line, fenced_text
from collection.judges.asking import ModelJudge, Questions
from collection.judges.base import Verdict
from collection.judges.evidence import TEXT_LIMITS, history, page, render, screenshots
from collection.judges.notes import TaskNotes
from collection.judges.reading import read_score, read_status
from rmsweb_jax.records.schema import Trajectory

LEAST_SCORE = 3
SCREENSHOTS = 30  # RMSWeb, appendix: up to 30 screenshots.
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


class OwnWebJudge(ModelJudge):
    """Asks for the key points, then about all screenshots at a time, then for the verdict."""

    method = "own_webjudge"
    sees = (
        "the actions, the final answer, the last page as text and the "
        f"{SCREENSHOTS} screenshots that it took to matter most"
    )
    templates = ("key_points.j2", "screenshot.j2", "status.j2")
    evidence = (("screenshots", SCREENSHOTS), ("least_score", LEAST_SCORE), *TEXT_LIMITS)

    def _decide(self, trajectory: Trajectory, notes: TaskNotes, questions: Questions) -> Verdict:
        points = fenced_text(questions.ask(render("key_points.j2", trajectory)), _MAX_POINTS_CHARS)
        taken = _assess(trajectory, points, questions)
        kept = _kept(taken)
        text = render(
            "status.j2",
            trajectory,
            points=points,
            shots=kept,
            steps=history(trajectory),
            page=page(trajectory.steps[-1]),
            least=LEAST_SCORE,
        )
        words, success = questions.decide(text, read_status, [shot.picture for shot in kept])
        unread = sum(shot.score is None for shot in taken)
        note = f"[{len(kept)} of {len(taken)} screenshots kept; {unread} without a score that can be read]"
        return Verdict(success, f"{words}\n{note}")


def _assess(trajectory: Trajectory, points: str, questions: Questions) -> list[_Shot]:
    """Asks about each screenshot."""
    shots, total = screenshots(trajectory), len(trajectory.steps)
    asked = [
        (render("screenshot.j2", trajectory, points=points, step=step, total=total), picture)
        for step, picture in shots
    ]
    return [
        _shot(step, picture, words)
        for (step, picture), words in zip(shots, questions.ask_each(asked), strict=True)
    ]


def _shot(step: int, picture: str, words: str) -> _Shot:
    score = read_score(words)
    reason = "" if score is None else words.strip().rpartition("\n")[0]
    return _Shot(step, picture, score, fenced_line(reason, _MAX_REASON_CHARS))


def _kept(taken: list[_Shot]) -> list[_Shot]:
    """Selects relevant screenshots in order; if too many, the best ones, and the later of equals."""
    matter = [shot for shot in taken if shot.weight >= LEAST_SCORE]
    best = sorted(matter, key=lambda shot: (shot.weight, shot.step))[-SCREENSHOTS:]
    return sorted(best, key=lambda shot: shot.step)
