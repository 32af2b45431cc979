"""Several judges on the same recorded runs."""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

from collection.judges.base import Judge
from collection.llm.model import ImageSource
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


@dataclasses.dataclass(frozen=True)
class RunFacts:
    """What the sheet needs of a run, without its steps.

    Attributes:
      policy: its actor, and its data set if there are several.
    """

    trajectory_id: str
    task_id: str
    actor: str
    policy: str
    site: str
    kind: str
    outcome: str

    @classmethod
    def of(cls, run: Trajectory, data: str = "") -> RunFacts:
        """Args: data: name of the data set, or "" for the only one."""
        policy, task = f"{data}: {run.actor}" if data else run.actor, run.task
        return cls(run.trajectory_id, task.task_id, run.actor, policy, task.site, task.category, run.outcome)


def judge_runs(
    runs: Iterable[Trajectory], judges: Mapping[str, Judge], images: ImageSource, workers: int
) -> Iterator[Judgement]:
    """Judges each run with each judge, by name; yields results in order.

    Args:
      workers: concurrent judgements.

    Raises:
      UserError: no model call can succeed. Running judgements end first; their replies are cached.
    """

    def one(run: Trajectory, name: str) -> Judgement:
        verdict, task = judges[name].judge(run, images), run.task.task_id
        return Judgement(trajectory_id=run.trajectory_id, task_id=task, judge=name, **vars(verdict))

    return in_order((functools.partial(one, run, name) for run in runs for name in judges), workers)


def in_order(calls: Iterable[Callable[[], T]], workers: int) -> Iterator[T]:
    """Yields the results of calls in order, from several threads; drops those that wait after a failure."""
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="judges") as pool:
        try:
            for call in calls:
                waiting.append(pool.submit(call))
                # Bounds the number of runs in memory, and still gives all threads work.
                if len(waiting) > _WAITING * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            # Also after Ctrl-C, which only this thread receives.
            pool.shutdown(wait=False, cancel_futures=True)
