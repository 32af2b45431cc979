"""A pool without processes: workers that follow a script, on a clock that is turned by hand."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any

from collection.agent.loop import crashed_trajectory
from collection.fleet.config import CollectSettings, EpisodeSettings, SiteLimits, resolved
from collection.fleet.journal import RunJournal
from collection.fleet.pool import WorkerDiedError
from collection.fleet.rounds import Job, Round
from collection.fleet.run import Run
from collection.fleet.scheduler import SiteState
from collection.fleet.worker import Episode, PlayedEpisode, RunFailure
from collection.judges.build import JudgeConfig
from collection.llm.actor import ActorReply, ReflectionRequest
from collection.llm.calls import Calls, serve
from configs.collect import get_config
from rmsweb_jax.records.schema import CallUsage, Outcome, Task, Trajectory
from rmsweb_jax.settings import from_config
from rmsweb_jax.signals import StopRequest

NO_LIMITS = SiteLimits(max_per_site=9, site_interval_s=0.0, backoff_s=0.0, backoff_max_s=0.0, max_refusals=0)


@dataclasses.dataclass(frozen=True)
class Act:
    """Scripted round: duration, outcome, its error, and whether its worker survives it."""

    seconds: float = 1.0
    outcome: Outcome = "done"
    success: bool = False
    error: str = ""
    raises: Exception | None = None
    failed: RunFailure | None = None
    played: Trajectory | None = None


DIES = Act(raises=WorkerDiedError("exit code -9"))
Script = Callable[[str, int], Act]


class ActedPool:
    """A `Pool`; `script` is asked (task, number of the episode, from 0)."""

    shares_disk = True

    def __init__(self, script: Script):
        self._script, self.now = script, 0.0
        self.events: list[tuple[float, int, Future[Any], Episode, Act]] = []
        self.begun: list[tuple[float, str]] = []
        self.slots: set[int] = set()
        self.used: list[int] = []

    def submit(self, slot: int, episode: Episode) -> Future[Any]:
        assert all(slot != busy for _, busy, *_ in self.events), "an idle worker only"
        act = self._script(episode.task.task_id, len(self.begun))
        self.begun.append((self.now, episode.task.task_id))
        self.slots.add(slot)
        self.used.append(slot)
        future: Future[Any] = Future()
        self.events.append((self.now + act.seconds, slot, future, episode, act))
        return future

    def wait(self, futures: Collection[Future[Any]], seconds: float) -> Collection[Future[Any]]:
        ours = {event[2] for event in self.events}
        # Models are asked in threads; they take no time of this clock.
        others = [future for future in futures if future not in ours]
        if any(future.done() for future in others) or not ours:
            return wait(others, None if others else 0, FIRST_COMPLETED).done or self._sleep(seconds)
        end = min((event[0] for event in self.events), default=None)
        if end is None or end > self.now + seconds:
            return self._sleep(seconds)
        self.now = max(self.now, end)
        ended = [event for event in self.events if event[0] <= self.now]
        self.events = [event for event in self.events if event[0] > self.now]
        return tuple(self._end(*event[2:]) for event in ended)

    def _end(self, future: Future[Any], episode: Episode, act: Act) -> Future[Any]:
        if act.raises is not None:
            future.set_exception(act.raises)
        elif act.failed is not None:
            future.set_result(act.failed)
        else:
            played = act.played or acted(episode.task, episode.attempt, act, episode.guidance)
            record = played.model_dump_json().encode()
            future.set_result(PlayedEpisode(record, Round.of(played), act.error))
        return future

    def _sleep(self, seconds: float) -> Collection[Future[Any]]:
        self.now += seconds
        return ()

    def has_worker(self, slot: int) -> bool:
        return slot in self.slots

    def replace(self, slot: int) -> None:
        self.slots.discard(slot)
        self.events = [event for event in self.events if event[1] != slot]


def acted(task: Task, attempt: int, act: Act, guidance: str = "") -> Trajectory:
    crashed = crashed_trajectory(task, "teacher", "m", attempt, guidance)
    return crashed.model_copy(update={"success": act.success, "outcome": act.outcome, "seconds": act.seconds})


class Reflecting:
    """An actor whose guidance names the rounds that it has reflected on."""

    name = "reflecting"

    def reflect(self, request: ReflectionRequest) -> ActorReply:
        usage = CallUsage(prompt_tokens=1000, response_tokens=200, cost=0.5)
        return ActorReply(f"{request.guidance}r{request.attempt}", usage)


def web_job(name: str, attempts: int = 1, stop_after: int = 0, reflective: bool = False) -> Job:
    """`name` is `SITE/NUMBER`."""
    task = Task(task_id=name, website=f"https://www.{name.split('/')[0]}.com/", objective="")
    return Job(task, attempts, stop_after, reflective)


def config(sites: SiteLimits = NO_LIMITS, **changes: object) -> CollectSettings:
    settings = get_config("smoke")
    settings.actor.kind = "scripted"
    found = resolved(from_config(CollectSettings, settings))
    fleet = found.fleet.model_copy(update={**dict(sites), "workers": 2, **changes})
    return found.model_copy(update={"fleet": fleet})


class Stop(StopRequest):
    """A stop that is requested when a function says so."""

    def __init__(self, requested: Callable[[], bool]):
        super().__init__()
        self._requested = requested

    @property
    def requested(self) -> bool:
        return self._requested()


def run(
    jobs: Sequence[Job],
    workdir: Path,
    script: Script,
    settings: EpisodeSettings,
    stop: Callable[[float], bool] = lambda now: False,
    pools: list[ActedPool] | None = None,
    judge: JudgeConfig | None = None,
) -> tuple[ActedPool, Run]:
    """Plays all jobs; `stop(now)`: whether to stop; `pools` gets the pool before."""
    pool = ActedPool(script)
    if pools is not None:
        pools.append(pool)
    idle = set(range(1, settings.fleet.workers + 1))
    try:
        with begun(jobs, workdir, pool, idle, settings, stop, judge) as playing:
            playing.play()
    finally:
        assert idle == set(range(1, settings.fleet.workers + 1))
    return pool, playing


@contextlib.contextmanager
def begun(
    jobs: Sequence[Job],
    workdir: Path,
    pool: ActedPool,
    idle: set[int],
    settings: EpisodeSettings,
    stop: Callable[[float], bool] = lambda now: False,
    judge: JudgeConfig | None = None,
    sites: defaultdict[str, SiteState] | None = None,
) -> Iterator[Run]:
    """A run on a pool, some of whose workers are idle."""
    workdir.mkdir(exist_ok=True)
    with (
        contextlib.closing(RunJournal(workdir)) as journal,
        Calls(workdir / "calls.jsonl") as calls,
        serve(calls) as address,
    ):
        for job in jobs:
            journal.reopen(job)
        playing = ActedRun(
            *(jobs, workdir, settings, judge, journal, pool, idle, Stop(lambda: stop(pool.now))),
            *(calls, address, lambda: pool.now, pool.wait, sites),
        )
        try:
            yield playing
        finally:
            playing.close()


class ActedRun(Run):
    _actor = Reflecting()  # pyright: ignore
