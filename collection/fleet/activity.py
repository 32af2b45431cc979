"""What each worker does now: workers report to the parent process, which writes one file for viewers."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from multiprocessing import AuthenticationError
from pathlib import Path
from typing import Any, Literal

from collection.llm.actor import ActorModel, ActorReply, ExtractionRequest, ReflectionRequest, StepRequest
from collection.llm.calls import Calls, CallsAddress, connect
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import image_names

# File name in a run's workdir, while it runs.
WORKERS = "workers.json"
_INTERVAL_S = 1.0

# `outage`: of a model; `site`: no task may start now, since the sites of those left are at their limits.
Waiting = Literal["browser", "page", "model", "outage", "site"]


@dataclasses.dataclass(frozen=True)
class Activity:
    """What a worker does now; a line of `WORKERS`.

    Attributes:
      worker: its number, that of its journal.
      step: number of the step that it is in; 0 before the first.
      screenshot: SHA-256 of the last screenshot; its file is there once the episode is.
      waiting_for: what it waits for.
      model: name of the model that it waits for.
      since: Unix time of the last change.
    """

    worker: str
    task_id: str = ""
    site: str = ""
    attempt: int = 0
    step: int = 0
    screenshot: str = ""
    waiting_for: Waiting = "site"
    model: str = ""
    since: float = 0.0


class Reporter:
    """Reports to the parent process what this worker does, at most once a second; never delays or fails it.

    Args:
      parent: serves the run's calls, and `WorkerReports`; None reports nothing.
      worker: see `Activity`.
    """

    def __init__(self, parent: CallsAddress | None, worker: str):
        self._parent, self._activity = parent, Activity(worker)
        self._changed, self._over = threading.Event(), threading.Event()
        if parent is not None:
            threading.Thread(target=self._send, name="activity", daemon=True).start()

    def set(self, **changes: Any) -> None:
        """Changes fields of the activity."""
        self._activity = dataclasses.replace(self._activity, since=time.time(), **changes)
        self._changed.set()

    @contextlib.contextmanager
    def calling(self, model: str, **changes: Any) -> Iterator[None]:
        """Waits for a model while the block runs, and for the page afterwards."""
        self.set(waiting_for="model", model=model, **changes)
        try:
            yield
        finally:
            self.set(waiting_for="page", model="")

    def close(self) -> None:
        self._over.set()
        self._changed.set()

    def _send(self) -> None:
        assert self._parent is not None
        # Without its parent a worker ends anyway.
        with contextlib.suppress(OSError, EOFError, AuthenticationError):
            reports: Any = connect(self._parent, "reports")
            while not self._over.is_set():
                self._changed.wait()
                self._changed.clear()
                reports.add(self._activity)
                self._over.wait(_INTERVAL_S)


@dataclasses.dataclass(frozen=True)
class ReportingActor:
    """An actor whose calls are reported."""

    actor: ActorModel
    reporter: Reporter

    @property
    def name(self) -> str:
        return self.actor.name

    def reply(self, request: StepRequest) -> ActorReply:
        shown = image_names(request.messages)
        screenshot = {"screenshot": shown[-1]} if shown else {}
        with self.reporter.calling(self.name, step=request.step, **screenshot):
            return self.actor.reply(request)

    def reflect(self, request: ReflectionRequest) -> ActorReply:
        with self.reporter.calling(self.name):
            return self.actor.reflect(request)

    def extract(self, request: ExtractionRequest) -> ActorReply:
        with self.reporter.calling(self.name):
            return self.actor.extract(request)


class WorkerReports:
    """The last report of each worker; threads may add to it at the same time."""

    def __init__(self) -> None:
        self._reports: dict[str, Activity] = {}
        self._written = 0.0

    def add(self, activity: Activity) -> None:
        self._reports[activity.worker] = activity

    def activity(self, assigned: Activity, outages: Collection[str]) -> Activity:
        """Returns a worker's report on what is assigned to it, or that if there is none yet.

        Args:
          outages: models that do not answer.
        """
        report = self._reports.get(assigned.worker)
        if report is None or (report.task_id, report.attempt) != (assigned.task_id, assigned.attempt):
            return assigned
        stuck = report.waiting_for == "model" and report.model in outages
        return dataclasses.replace(report, waiting_for="outage") if stuck else report

    def write(self, workdir: Path, activities: Iterable[Activity], calls: Calls) -> None:
        """Replaces `WORKERS`, at most once a second: the workers, and the outages of models."""
        if time.monotonic() - self._written < _INTERVAL_S:
            return
        self._written = time.monotonic()
        status = {
            "time": time.time(),
            "workers": [dataclasses.asdict(one) for one in activities],
            "outages": calls.outages(),
        }
        write_atomic(workdir / WORKERS, json.dumps(status).encode())
