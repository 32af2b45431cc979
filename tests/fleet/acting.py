"""An engine without processes: workers that play as they are told, on a clock that is turned by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from collection.agent.loop import crashed_trajectory
from collection.fleet import FleetConfig, SiteLimits
from collection.fleet.engine import Died, Message
from collection.fleet.run import Fleet
from collection.fleet_config import fleet_config
from collection.journals import FOLDER, Index, keep, read_history
from collection.rounds import Job, Reflected, run_round
from collection.worker import Ended, Failed, Order
from configs.collect import get_config
from rmsweb_jax.records.journal import Journal
from rmsweb_jax.records.schema import CallUsage, Outcome, Reflection, Task, Trajectory

NO_LIMITS = SiteLimits(max_per_site=9, site_interval_s=0.0, backoff_s=0.0, backoff_max_s=0.0)


@dataclasses.dataclass(frozen=True)
class Act:
    """How a round goes: how long, how it ends, and whether its worker lives to tell."""

    seconds: float = 1.0
    outcome: Outcome = "done"
    success: bool = False
    dies: str = ""  # "before" or "after" its record is on disk
    failed: Failed | None = None


Script = Callable[[str, int], Act]


class ActedEngine:
    """`collection.fleet.engine.Engine`; `script` is asked (task, number of the order, from 0)."""

    def __init__(self, workdir: Path, script: Script):
        self._workdir, self._script = workdir, script
        self.now, self._orders, self._started = 0.0, 0, 0
        self.journals: dict[int, str] = {}
        self.events: list[tuple[float, int, Order, Act]] = []
        self.begun: list[tuple[float, str]] = []
        self.closed_idle: frozenset[int] | None = None

    def start(self, journal: str) -> int:
        self._started += 1
        self.journals[self._started] = journal
        return self._started

    def give(self, worker: int, order: Order) -> None:
        assert all(worker != busy for _, busy, _, _ in self.events), "an idle worker only"
        task_id = order.job.task.task_id
        act = self._script(task_id, self._orders)
        self._orders += 1
        self.begun.append((self.now, task_id))
        self.events.append((self.now + act.seconds, worker, order, act))

    def wait(self, seconds: float) -> list[tuple[int, Message]]:
        first = min(self.events, key=lambda event: event[0], default=None)
        if first is None or first[0] > self.now + seconds:
            self.now += seconds
            return []
        self.events.remove(first)
        self.now = max(self.now, first[0])
        _, worker, order, act = first
        return [(worker, self._message(worker, order, act))]

    def wake(self) -> None: ...

    def kill(self, worker: int) -> None:
        del self.journals[worker]

    def close(self, idle: frozenset[int]) -> None:
        self.closed_idle = idle

    def _message(self, worker: int, order: Order, act: Act) -> Message:
        if act.failed is not None:
            return act.failed
        if act.dies == "before":
            return Died("exit code -9")
        name, kept = self.journals[worker], []
        with Journal(self._workdir / FOLDER / name) as journal:
            run_round(
                order.job,
                read_history(self._workdir, order.kept),
                lambda task, attempt, guidance: acted(task, attempt, act, guidance),
                _reflect,
                lambda record: kept.append(keep(record, journal, name)),
            )
        return Died("exit code -9") if act.dies else Ended(tuple(kept))


def acted(task: Task, attempt: int, act: Act, guidance: str = "") -> Trajectory:
    crashed = crashed_trajectory(task, "teacher", "m", attempt, guidance)
    return crashed.model_copy(update={"success": act.success, "outcome": act.outcome, "seconds": act.seconds})


def _reflect(trajectory: Trajectory, guidance: str) -> Reflected:
    reflection = Reflection(
        task_id=trajectory.task.task_id,
        attempt=trajectory.attempt,
        guidance=f"{guidance}r{trajectory.attempt}",
    )
    return Reflected(reflection=reflection, usage=CallUsage(cost=0.5))


def web_job(name: str, attempts: int = 1, stop_after: int = 0, reflective: bool = False) -> Job:
    """`name` is `SITE/NUMBER`."""
    task = Task(task_id=name, website=f"https://www.{name.split('/')[0]}.com/", objective="")
    return Job(task, attempts, stop_after, reflective)


def config(sites: SiteLimits = NO_LIMITS, **changes: object) -> FleetConfig:
    sections = get_config("smoke").to_dict()
    sections["actor"]["kind"] = "scripted"
    return dataclasses.replace(fleet_config(sections), sites=sites, **{"workers": 2, **changes})


def run(
    jobs: Sequence[Job],
    workdir: Path,
    script: Script,
    setup: FleetConfig,
    asked: Callable[[float], bool] = lambda now: False,
) -> tuple[ActedEngine, Fleet]:
    """Plays all jobs; `asked(now)`: whether to stop."""
    engine = ActedEngine(workdir, script)
    fleet = Fleet(jobs, workdir, setup, Index(workdir), engine, lambda: asked(engine.now), lambda: engine.now)
    try:
        fleet.run()
    finally:
        fleet.close()
    return engine, fleet
