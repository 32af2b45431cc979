"""Experiment scripts run several at once as processes, each chain of them on its share of the cores."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rmsweb_jax.processes import die_with_parent
from rmsweb_jax.progress import Progress

_POLL_S, _STOP_S = 0.5, 30.0


@dataclass(frozen=True)
class Stage:
    """One script.

    Attributes:
      folder: its workdir; `report.json` there says that it is done, `log.txt` is what it printed.
      module: what is run.
      settings: `--config` and its overrides.
    """

    folder: Path
    module: str
    settings: tuple[str, ...]

    @property
    def done(self) -> bool:
        return (self.folder / "report.json").exists()

    def command(self) -> list[str]:
        return [sys.executable, "-m", self.module, *self.settings, f"--workdir={self.folder}"]


@dataclass(frozen=True)
class Chain:
    """Stages that follow each other.

    Attributes:
      key: variant and seed.
      name: for people.
    """

    key: tuple[str, int]
    name: str
    stages: tuple[Stage, ...]


@dataclass
class _Running:
    """A chain on its way: the stages left, and the process of the first of them."""

    chain: Chain
    cores: set[int]
    left: deque[Stage] = field(init=False)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.left = deque(stage for stage in self.chain.stages if not stage.done)


def run_chains(
    chains: Sequence[Chain], jobs: int, environment: Mapping[str, str], progress: Progress
) -> Generator[tuple[Chain, str]]:
    """Runs every chain and gives each as it ends, with why it failed or "".

    Stages that are done are passed over. A failure ends its own chain alone. Closing the iterator, or an
    interrupt, stops what runs in order, so that it can be resumed.

    Args:
      jobs: chains at once. Each has its own cores: JAX otherwise takes all of them for every process,
        and they wait for each other.
    """
    waiting, shares = deque(chains), core_shares(jobs)
    running: list[_Running] = []
    ended = 0
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                free = next(cores for cores in shares if all(cores is not one.cores for one in running))
                running.append(_Running(waiting.popleft(), free))
            for one in list(running):
                error = _advance(one, environment)
                if error is not None:
                    running.remove(one)
                    ended += 1
                    yield one.chain, error
            progress.update(ended, ", ".join(_note(one) for one in running))
            _wait(running)
    finally:
        _stop([one.process for one in running if one.process])


def core_shares(jobs: int) -> list[set[int]]:
    """The cores this process may use, dealt out to `jobs` jobs; some share one where there are too few."""
    cores = sorted(os.sched_getaffinity(0))
    return [{cores[place] for place in range(job % len(cores), len(cores), jobs)} for job in range(jobs)]


def _advance(one: _Running, environment: Mapping[str, str]) -> str | None:
    """Starts the next stage when there is none under way; "" or an error when the chain has ended."""
    if one.process is not None:
        if one.process.poll() is None:
            return None
        stage, code = one.left.popleft(), one.process.returncode
        one.process = None
        if code or not stage.done:
            return _reason(stage, code)
    if not one.left:
        return ""
    one.process = _start(one.left[0], one.cores, environment)
    return None


def _start(stage: Stage, cores: set[int], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    stage.folder.mkdir(parents=True, exist_ok=True)
    with open(stage.folder / "log.txt", "ab") as log:
        # A session of its own: Ctrl-C reaches this process alone, which then stops the stage in order.
        return subprocess.Popen(
            stage.command(),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_child_setup(cores),
            env=dict(environment),
        )


def _child_setup(cores: set[int]) -> Callable[[], None]:
    def prepare() -> None:
        die_with_parent()
        os.sched_setaffinity(0, cores)

    return prepare


def _wait(running: Sequence[_Running]) -> None:
    """Until one of the processes ends, but not long: progress is shown meanwhile."""
    processes = [one.process for one in running if one.process]
    for process in processes:
        try:
            process.wait(_POLL_S / len(processes))
            return
        except subprocess.TimeoutExpired:
            continue


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    for process in processes:
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _reason(stage: Stage, code: int) -> str:
    log = stage.folder / "log.txt"
    lines = log.read_text(errors="replace").strip().splitlines()
    reason = lines[-1].removeprefix("error: ") if lines else f"exit code {code}"
    return f"{stage.folder}: {reason} (log: {log})"


def _note(one: _Running) -> str:
    """How far a chain is, from what its stage tells."""
    if not one.left:
        return one.chain.name
    try:
        state = json.loads((one.left[0].folder / "progress.json").read_text())
    except FileNotFoundError:
        return f"{one.chain.name}: {one.left[0].folder.name} starts"
    return f"{one.chain.name}: {one.left[0].folder.name} {state['done']}/{state['total']}"
