"""A collecting run as a process of its own, seen from outside: processes, journals, what it leaves."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import psutil

from collection.fleet.journals import FOLDER
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.schema import CallUsage, Trajectory
from tests.fleet import collect_killed
from tests.fleet.differences import first_difference
from tests.fleet.processes import kind_of

ROOT = Path(__file__).parents[2]
_MARK = "RMSWEB_PROOF"
_POLL_S = 0.02


class Watched:
    """Starts and watches `experiments.collect` in one workdir, with a temporary folder of its own.

    Args:
      folder: for the workdir `run`, the temporary folder and the log.
      settings: of the command line, without the workdir.
      module: what is run.
      path: folders put before others on PYTHONPATH.
    """

    def __init__(
        self,
        folder: Path,
        settings: Sequence[str],
        module: str = "tests.fleet.collect_killed",
        path: Sequence[Path] = (),
    ):
        self.folder, self.workdir = folder, folder / "run"
        # Short: a socket's path has 107 bytes at most, and Chromium's is some folders below.
        self.temporary, self.kill_folder = folder / "t", folder / "kill"
        for made in (self.temporary, self.kill_folder):
            made.mkdir(parents=True)
        self._command = [sys.executable, "-m", module, *settings, f"--workdir={self.workdir}"]
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *path))),
            "TMPDIR": str(self.temporary),
            collect_killed.FOLDER: str(self.kill_folder),
            _MARK: str(folder),
        }
        self._log: IO[bytes] | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._read: dict[Path, int] = {}
        self.episodes = 0

    def add(self, *settings: str) -> None:
        """Adds settings to the command line of a run that has not started."""
        self._command += settings

    def start(self) -> None:
        self._log = open(self.folder / "log", "ab")  # noqa: SIM115 - closed by wait()
        self.process = subprocess.Popen(
            self._command, stdout=self._log, stderr=self._log, cwd=ROOT, env=self._environment
        )

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def wait(self) -> int:
        assert self.process is not None and self._log is not None
        code = self.process.wait()
        self._log.close()
        return code

    def finish(self) -> None:
        """Starts it, if it does not run, and lets it come to its end.

        Raises:
          RuntimeError: it fails.
        """
        if not self.running:
            self.start()
        self.finish_started()

    def finish_started(self) -> None:
        """Lets a started run come to its end.

        Raises:
          RuntimeError: it fails.
        """
        if code := self.wait():
            raise RuntimeError(f"collect ended with {code}:\n{self.last_lines()}")

    def last_lines(self) -> str:
        return "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-20:])

    def processes(self, kind: str) -> list[psutil.Process]:
        """Living processes of a kind (`kind_of`), oldest first."""
        found = []
        for process in self._family():
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and kind_of(process) == kind:
                    found.append(process)
        return sorted(found, key=lambda process: process.create_time())

    def count_episodes(self) -> int:
        """Episodes in the journals by now; reads what is new of them."""
        for path in (self.workdir / FOLDER).glob("*.jsonl"):
            with open(path, "rb") as file:
                file.seek(self._read.get(path, 0))
                while (line := file.readline()).endswith(b"\n"):
                    self._read[path] = file.tell()
                    self.episodes += b' {"trajectory_id":' in line[:64]
        return self.episodes

    def until(self, condition: Callable[[], bool], seconds: float = 3600.0) -> None:
        """Waits for a condition of a run.

        Raises:
          RuntimeError: the run ends, or the time is over.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            if not self.running or time.monotonic() > deadline:
                code = self.process and self.process.returncode
                ended = f"{self.episodes} episodes, exit code {code}"
                raise RuntimeError(f"this never came: {condition} ({ended})\n{self.last_lines()}")
            time.sleep(_POLL_S)

    def left_processes(self) -> list[str]:
        """Processes that this run has started and that run now: by a mark that all inherit."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(_MARK) == str(self.folder):
                    found.append(f"{process.pid} {' '.join(process.cmdline())[:120]}")
        return found

    def left_files(self) -> list[str]:
        """Files left in the temporary folder."""
        return sorted(path.name for path in self.temporary.iterdir())

    def played(self) -> list[Trajectory]:
        """The data set without what clocks have measured."""
        return [without_times(one) for one in read_dataset(self.workdir, Trajectory)]

    def _family(self) -> Iterator[psutil.Process]:
        if self.process is not None:
            with contextlib.suppress(psutil.Error):
                yield from psutil.Process(self.process.pid).children(recursive=True)


def without_times(trajectory: Trajectory) -> Trajectory:
    """The trajectory with all seconds 0."""

    def still(usage: CallUsage) -> CallUsage:
        return usage.model_copy(update={"seconds": 0.0})

    steps = tuple(step.model_copy(update={"usage": still(step.usage)}) for step in trajectory.steps)
    judge = still(trajectory.judge_usage)
    return trajectory.model_copy(update={"seconds": 0.0, "steps": steps, "retries": 0, "judge_usage": judge})


@dataclasses.dataclass(frozen=True)
class Compared:
    """Compares two data sets by the ids of their episodes."""

    wanted: int
    lost: list[str]
    doubled: list[str]
    different: list[str]

    @property
    def equal(self) -> bool:
        return not (self.lost or self.doubled or self.different)


def compare(wanted: Sequence[Trajectory], found: Sequence[Trajectory]) -> Compared:
    """Differences of a run from another."""
    before = {one.trajectory_id: one for one in wanted}
    after: dict[str, Trajectory] = {}
    doubled = []
    for one in found:
        if one.trajectory_id in after or one.trajectory_id not in before:
            doubled.append(one.trajectory_id)
        after[one.trajectory_id] = one
    return Compared(
        wanted=len(before),
        lost=sorted(before.keys() - after.keys()),
        doubled=doubled,
        different=[
            f"{name}{first_difference(before[name].model_dump(), after[name].model_dump())}"
            for name in sorted(before.keys() & after.keys())
            if before[name] != after[name]
        ],
    )
