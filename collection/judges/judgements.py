"""Several judges on the same recorded runs."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

from collection.judges.base import Judge
from collection.llm.model import ImageSource
from collection.tasks.files import read_lines
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import CallUsage, JudgeFingerprint, Trajectory

T = TypeVar("T")
# Maximum number of queued calls per thread; each has a run in memory.
_WAITING = 4


class Judgement(BaseModel):
    """One judge's verdict on one run; a line of `judgements.jsonl`.

    Attributes:
      judge: the judge's name in the config.
      success, text, usage, score, key, fingerprint: as of `collection.judges.base.Verdict`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    trajectory_id: str
    task_id: str
    judge: str
    success: bool | None
    score: float | None
    text: str
    usage: CallUsage
    key: str
    fingerprint: JudgeFingerprint | None = None


class Label(BaseModel):
    """A human verdict; a line of a labels file. Other fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    trajectory_id: str
    success: bool


def judge_runs(
    runs: Iterable[Trajectory], judges: Mapping[str, Judge], images: ImageSource, workers: int
) -> Iterator[Judgement]:
    """Judges each run with each judge; yields results in order.

    Args:
      judges: by name.
      workers: concurrent judgements.

    Raises:
      UserError: no model call can succeed. Running judgements end first; their replies are cached.
    """

    def one(run: Trajectory, name: str) -> Judgement:
        verdict = judges[name].judge(run, images)
        return Judgement(
            trajectory_id=run.trajectory_id,
            task_id=run.task.task_id,
            judge=name,
            success=verdict.success,
            score=verdict.score,
            text=verdict.text,
            usage=verdict.usage,
            key=verdict.key,
            fingerprint=verdict.fingerprint,
        )

    return in_order((functools.partial(one, run, name) for run in runs for name in judges), workers)


def in_order(calls: Iterable[Callable[[], T]], workers: int) -> Iterator[T]:
    """Yields the results of calls in order, from several threads; starts no call after a failure."""
    if workers < 1:
        raise UserError(f"config.workers={workers}: use at least 1")
    waiting: deque[Future[T]] = deque()
    failures: list[BaseException] = []

    def made(call: Callable[[], T]) -> T:
        # An earlier call gets here only after a later one failed: it must report the same error.
        if failures:
            raise failures[0]
        try:
            return call()
        except BaseException as error:
            failures.append(error)
            raise

    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="judges") as pool:
        try:
            for call in calls:
                waiting.append(pool.submit(made, call))
                # Bounds the number of runs in memory, and still gives all threads work.
                if len(waiting) > _WAITING * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            # Also after Ctrl-C, which only this thread receives.
            failures.append(CancelledError())


def read_labels(path: Path) -> dict[str, bool]:
    """Reads human verdicts by trajectory id.

    Raises:
      UserError: the file is unreadable, a line is not a label, or a run has two labels.
    """
    lines = read_lines(path, Label.model_validate_json, "labels (trajectory_id and success, one a line)")
    if lines.bad:
        raise UserError(f"{lines.warning(path)}: fix them, because missing labels bias the figures")
    labels: dict[str, bool] = {}
    for number, label in lines.good:
        if label.trajectory_id in labels:
            raise UserError(f"{path}: line {number}: {label.trajectory_id} has a label already: keep one")
        labels[label.trajectory_id] = label.success
    return labels
