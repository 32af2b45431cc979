"""Scripts that Ctrl-C ends: at a moment that their log or their memory shows, as a terminal sends it."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rmsweb_jax.records.files import is_temporary
from rmsweb_jax.signals import STOP_SIGNALS
from tests.virtual_devices import device_environment

ROOT = Path(__file__).parent.parent
_FAILURES = ("Traceback", "Fatal Python error", "Exception ignored", "Segmentation fault", "leaked")
# On a busy machine the kernel needs a moment to end what was killed.
_GONE_S = 60.0


@dataclasses.dataclass(frozen=True)
class End:
    """How a script ended.

    Attributes:
      code: exit code.
      log: standard error and output.
      seconds: from the signal to the end.
      left: what it has left: processes, temporary files, half-written ones.
    """

    code: int
    log: str
    seconds: float
    left: tuple[str, ...]

    @property
    def error(self) -> str:
        """Its last line, if that is the only one that says what went wrong; otherwise all that do."""
        lines = self.log.splitlines()
        wrong = [line for line in lines if line.startswith("error: ") or any(map(line.count, _FAILURES))]
        return lines[-1] if lines and wrong == lines[-1:] else " / ".join(wrong) or "nothing"


Ready = Callable[["Script"], bool]


class Script:
    """A script in a session of its own, as in a terminal.

    Args:
      command: what Python is given.
      workdir: its workdir; its output goes to `workdir.log`.
      cache: folder of compiled programs; None compiles anew.
    """

    def __init__(self, command: Sequence[str], workdir: Path, cache: Path | None = None):
        self._temporary = tempfile.TemporaryDirectory(prefix="interrupts-", dir=workdir.parent)
        self.workdir, self._log = workdir, workdir.with_suffix(".log")
        environment = device_environment(1) | {"TMPDIR": self._temporary.name, "JAX_LOG_COMPILES": "1"}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        if cache is not None:
            environment["JAX_COMPILATION_CACHE_DIR"] = str(cache)
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command, f"--workdir={workdir}"],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
                # A shell's background jobs ignore SIGINT, which the script would respect.
                preexec_fn=_take_signals,
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def handles_signals(self) -> bool:
        """Whether its own code runs: Python itself has no handler of SIGUSR1."""
        return bool(self._status("SigCgt") >> (signal.SIGUSR1 - 1) & 1)

    def has_loaded(self, library: str) -> bool:
        """Whether a library with this part of a path is in its memory."""
        return library in self._read("maps")

    def interrupt(self, ready: Ready, after: float = 0.0) -> End:
        """Sends SIGINT to its process group.

        Args:
          ready: the moment; it then still runs for `after` seconds.
        """
        self._wait(ready)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(after)
        begin = time.monotonic()
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
        return self.end(begin)

    def end(self, begin: float | None = None) -> End:
        """Waits for its end."""
        begin = time.monotonic() if begin is None else begin
        code = self.process.wait()
        seconds = time.monotonic() - begin
        with self._temporary:
            left = [f"temporary {path.name}" for path in Path(self._temporary.name).iterdir()]
        left += [f"half-written {path.name}" for path in self.workdir.rglob("*") if is_temporary(path)]
        left += self._processes()
        # What its children print as they end is in the log, too.
        return End(code, self.log, seconds, tuple(left))

    def _processes(self) -> Iterator[str]:
        deadline = time.monotonic() + _GONE_S
        while time.monotonic() < deadline:
            try:
                os.killpg(self.process.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.05)
        yield "processes"

    def _wait(self, ready: Ready) -> None:
        while self.process.poll() is None and not ready(self):
            time.sleep(0.02)

    def _status(self, name: str) -> int:
        lines = (line.partition(":") for line in self._read("status").splitlines())
        return next((int(value, 16) for key, _, value in lines if key == name), 0)

    def _read(self, name: str) -> str:
        try:
            return Path(f"/proc/{self.process.pid}/{name}").read_text()
        except OSError:  # It has ended.
            return ""


def _take_signals() -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def exported(workdir: Path) -> str:
    """A digest of the weights of an exported model."""
    return hashlib.sha256((workdir / "export/model.safetensors").read_bytes()).hexdigest()


def compiles(count: int = 1, program: str = "jit(") -> Ready:
    """The moment at which the compiler begins with its `count`-th program."""
    return lambda script: script.log.count(f"Compiling {program}") >= count


def has_rows(count: int) -> Ready:
    """The moment at which `count` steps are logged."""

    def ready(script: Script) -> bool:
        path = script.workdir / "metrics.jsonl"
        return path.exists() and path.read_bytes().count(b"\n") >= count

    return ready
