"""A pool without processes: workers that follow a script, on a clock that is turned by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from collection.agent.loop import crashed_trajectory
from collection.fleet.build import FleetConfig, fleet_config
from collection.fleet.config import CollectSettings, SiteLimits
from collection.fleet.journals import FOLDER, JournalIndex, append_record, read_history
from collection.fleet.rounds import Job, Reflected, run_round
from collection.fleet.run import Fleet
from collection.fleet.worker import RoundDone, RoundRequest, RunFailure
from collection.fleet.worker_pool import Message, WorkerDied
from collection.llm.calls import Calls
from configs.collect import get_config
from rmsweb_jax.records.journal import Journal
from rmsweb_jax.records.schema import CallUsage, Outcome, Reflection, Task, Trajectory
from rmsweb_jax.settings import from_config
from rmsweb_jax.signals import StopRequest

NO_LIMITS = SiteLimits(max_per_site=9, site_interval_s=0.0, backoff_s=0.0, backoff_max_s=0.0, max_refusals=0)


@dataclasses.dataclass(frozen=True)
class Act:
    """Scripted round: duration, outcome, its error, and whether its worker survives to report it."""

    seconds: float = 1.0
    outcome: Outcome = "done"
    success: bool = False
    error: str = ""
    dies: str = ""  # "before" or "after" its record is on disk
    failed: RunFailure | None = None


Script = Callable[[str, int], Act]


class ActedPool:
    """A `WorkerPool`; `script` is asked (task, number of the request, from 0)."""

    def __init__(self, workdir: Path, script: Script):
        self._workdir, self._script = workdir, script
        self.now, self._requests, self._started = 0.0, 0, 0
        self.journals: dict[int, str] = {}
        self.events: list[tuple[float, int, RoundRequest, Act]] = []
        self.begun: list[tuple[float, str]] = []
        self.closed_idle: frozenset[int] | None = None

    def start(self, journal: str) -> int:
        self._started += 1
        self.journals[self._started] = journal
        return self._started

    def submit(self, worker: int, request: RoundRequest) -> None:
        assert all(worker != busy for _, busy, _, _ in self.events), "an idle worker only"
        task_id = request.job.task.task_id
        act = self._script(task_id, self._requests)
        self._requests += 1
        self.begun.append((self.now, task_id))
        self.events.append((self.now + act.seconds, worker, request, act))

    def wait(self, seconds: float) -> list[tuple[int, Message]]:
        first = min(self.events, key=lambda event: event[0], default=None)
        if first is None or first[0] > self.now + seconds:
            self.now += seconds
            return []
        self.events.remove(first)
        self.now = max(self.now, first[0])
        _, worker, request, act = first
        return [(worker, self._message(worker, request, act))]

    def wake(self) -> None: ...

    def kill(self, worker: int) -> None:
        del self.journals[worker]

    def close(self, idle: frozenset[int]) -> None:
        self.closed_idle = idle

    def _message(self, worker: int, request: RoundRequest, act: Act) -> Message:
        if act.failed is not None:
            return act.failed
        if act.dies == "before":
            return WorkerDied("exit code -9")
        name, entries = self.journals[worker], []
        with Journal(self._workdir / FOLDER / name) as journal:
            run_round(
                request.job,
                read_history(self._workdir, request.entries),
                lambda task, attempt, guidance: acted(task, attempt, act, guidance),
                _reflect,
                lambda record: entries.append(append_record(record, journal, name)),
            )
        return WorkerDied("exit code -9") if act.dies else RoundDone(tuple(entries), act.error)


def acted(task: Task, attempt: int, act: Act, guidance: str = "") -> Trajectory:
    crashed = crashed_trajectory(task, "teacher", "m", attempt, guidance)
    return crashed.model_copy(update={"success": act.success, "outcome": act.outcome, "seconds": act.seconds})


def _reflect(trajectory: Trajectory, guidance: str) -> Reflected:
    reflection = Reflection(
        task_id=trajectory.task.task_id,
        attempt=trajectory.attempt,
        guidance=f"{guidance}r{trajectory.attempt}",
    )
    return Reflected(
        reflection=reflection, usage=CallUsage(prompt_tokens=1000, response_tokens=200, cost=0.5)
    )


def web_job(name: str, attempts: int = 1, stop_after: int = 0, reflective: bool = False) -> Job:
    """`name` is `SITE/NUMBER`."""
    task = Task(task_id=name, website=f"https://www.{name.split('/')[0]}.com/", objective="")
    return Job(task, attempts, stop_after, reflective)


def config(sites: SiteLimits = NO_LIMITS, **changes: object) -> FleetConfig:
    settings = get_config("smoke")
    settings.actor.kind = "scripted"
    setup = fleet_config(from_config(CollectSettings, settings))
    fleet = setup.settings.fleet.model_copy(update={**dict(sites), "workers": 2, **changes})
    return dataclasses.replace(setup, settings=setup.settings.model_copy(update={"fleet": fleet}))


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
    setup: FleetConfig,
    stop: Callable[[float], bool] = lambda now: False,
    pools: list[ActedPool] | None = None,
) -> tuple[ActedPool, Fleet]:
    """Plays all jobs; `stop(now)`: whether to stop; `pools` gets the pool before."""
    pool = ActedPool(workdir, script)
    if pools is not None:
        pools.append(pool)
    fleet = Fleet(
        jobs,
        workdir,
        setup,
        JournalIndex(workdir),
        pool,
        Stop(lambda: stop(pool.now)),
        Calls(),
        lambda: pool.now,
    )
    try:
        fleet.run()
    finally:
        fleet.close()
    return pool, fleet
