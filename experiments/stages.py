"""Runs experiment scripts as child processes: chains of stages, several at once, each resumable."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmsweb_jax.processes import ChildProcess, StallClock, stop_all, wait_for_any
from rmsweb_jax.progress import read_progress

_POLL_S = 0.5
# A stage may be slow for hours, but then its progress, its log or its CPU time still grows.
_STALL_S = 3600.0


@dataclass(frozen=True)
class Stage:
    """One run of an experiment script.

    Attributes:
      name: for messages.
      folder: its workdir; `report.json` there marks it as done, `log.txt` holds its output.
      module: the script.
      settings: `--config` and its overrides.
      always: it has no such mark, and runs every time.
    """

    name: str
    folder: Path
    module: str
    settings: tuple[str, ...]
    always: bool = False

    @property
    def done(self) -> bool:
        return not self.always and (self.folder / "report.json").exists()

    def command(self) -> list[str]:
        return [sys.executable, "-m", self.module, *self.settings, f"--workdir={self.folder}"]

    def progress(self) -> str:
        """Progress in a few words: units, time left, note."""
        state = read_progress(self.folder)
        if state is None:
            return "starting"
        left = "" if state["eta_s"] is None else f", {state['eta_s']:.0f} s left"
        return f"{state['done']}/{state['total']}{left} {state['note']}".rstrip()


@dataclass(frozen=True)
class Chain:
    """Stages that run one after another.

    Attributes:
      name: for messages.
      key: what the caller knows it by.
    """

    name: str
    stages: tuple[Stage, ...]
    key: Any = None


@dataclass(frozen=True)
class StageEnd:
    """A stage that has ended.

    Attributes:
      seconds: how long it ran; None: it was done before.
      error: empty if it succeeded.
      last: whether its chain has ended with it.
    """

    chain: Chain
    stage: Stage
    seconds: float | None
    error: str
    last: bool


def run_stages(
    chains: Sequence[Chain],
    cache: Path,
    jobs: int = 1,
    on_wait: Callable[[Sequence[tuple[Chain, Stage]]], None] = lambda running: None,
) -> Generator[StageEnd]:
    """Runs every chain and yields each stage as it ends.

    A failed stage ends its own chain alone. Closing the iterator, or an interrupt, stops the running stages
    in order, so that the same call resumes them.

    Args:
      cache: folder of compiled programs, which the stages share; JAX_COMPILATION_CACHE_DIR names another.
      jobs: chains at once. Each gets its own share of the cores: JAX otherwise uses all of them in every
        process, and the processes wait for each other.
      on_wait: called about twice a second with what is running.
    """
    env = {
        "JAX_COMPILATION_CACHE_DIR": os.environ.get("JAX_COMPILATION_CACHE_DIR") or str(cache.resolve()),
        "PYTHONUNBUFFERED": "1",
    }
    waiting, shares = deque(chains), core_shares(jobs)
    running: list[_RunningChain] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                free = next(cores for cores in shares if all(cores is not one.cores for one in running))
                running.append(_RunningChain(waiting.popleft(), free, env))
            for one in list(running):
                yield from one.advance()
                if not one.left:
                    running.remove(one)
            on_wait([(one.chain, one.left[0]) for one in running])
            wait_for_any([one.child for one in running if one.child], _POLL_S)
    finally:
        stop_all([one.child for one in running if one.child])


def core_shares(jobs: int) -> list[set[int]]:
    """This process's cores divided among `jobs` jobs; jobs share cores where there are too few."""
    cores = sorted(os.sched_getaffinity(0))
    return [{cores[place] for place in range(job % len(cores), len(cores), jobs)} for job in range(jobs)]


@dataclass
class _RunningChain:
    """A chain with the stages that are left, and the process of the first of them."""

    chain: Chain
    cores: set[int]
    env: dict[str, str]
    left: deque[Stage] = field(init=False)
    child: ChildProcess | None = None
    started: float = 0.0
    stall: StallClock = field(default_factory=StallClock)

    def __post_init__(self) -> None:
        self.left = deque(self.chain.stages)

    def advance(self) -> Iterator[StageEnd]:
        """Yields the stages that have ended by now and starts the next one."""
        while self.left:
            stage = self.left[0]
            seconds, error = None, ""
            if self.child is None:
                if not stage.done:
                    self._start(stage)
                    return
            else:
                code = self.child.poll()
                if code is None and not self._is_stuck(stage, self.child):
                    return
                seconds = time.monotonic() - self.started
                if code is None:
                    self.child.stop()
                    error = f"stuck for {_STALL_S / 60:.0f} min; {self.child.failure()}"
                elif code or not (stage.always or stage.done):
                    error = str(self.child.failure())
                self.child = None
            self.left.popleft()
            if error:
                self.left.clear()
            yield StageEnd(self.chain, stage, seconds, error, last=not self.left)

    def _start(self, stage: Stage) -> None:
        self.child = ChildProcess(
            stage.name, stage.command(), stage.folder / "log.txt", env=self.env, cores=self.cores
        )
        self.started, self.stall = time.monotonic(), StallClock()

    def _is_stuck(self, stage: Stage, child: ChildProcess) -> bool:
        return self.stall.seconds((read_progress(stage.folder), child.activity())) > _STALL_S
