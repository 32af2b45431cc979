"""Child processes that never outlive their parent."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import subprocess
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO

from rmsweb_jax.errors import UserError

_PR_SET_PDEATHSIG = 1
# Loaded before any fork: between fork and exec a child must not import or open anything, since another thread
# may have held a lock when it was forked.
_LIBC = ctypes.CDLL(None, use_errno=True)
_POLL_S = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")
# In ten minutes an idle interpreter uses less CPU time, and a working one more, even on a crowded machine.
_WORK_S = 10


def bypass_proxy_locally() -> None:
    """Takes this machine out of the environment's proxy, for this process and its children.

    A run talks to servers that it starts here, for example a policy's, and the proxy does not lead to them.
    """
    names = ("no_proxy", "NO_PROXY")
    hosts = [host for name in names for host in os.environ.get(name, "").split(",") if host]
    if "*" not in hosts:
        hosts = list(dict.fromkeys([*hosts, "127.0.0.1", "localhost", "::1"]))
        os.environ.update(dict.fromkeys(names, ",".join(hosts)))


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent ends, even by SIGKILL (Linux).

    For `subprocess.Popen(preexec_fn=die_with_parent)`, or called first in a worker. The signal is SIGKILL:
    everything that must persist is on disk already, and the next run can start at once.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def exit_with_parent() -> None:
    """Ends this `multiprocessing` child when its parent ends, even by SIGKILL; must be called in the child.

    Unlike `die_with_parent` it does not depend on the thread that started the child, which may end first.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        raise ValueError("exit_with_parent() is for children of multiprocessing")

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="watch-parent", daemon=True).start()


class ChildProcess(contextlib.AbstractContextManager["ChildProcess"]):
    """A command that runs as a child and never outlives this process; its output goes to a file.

    The child has a session of its own: Ctrl-C on the terminal reaches this process only, which then stops
    the child in order. Start it in a thread that lives as long as the child is needed, because for the kernel
    the end of that thread is the end of the parent.

    Args:
      name: name of the child in messages.
      command: program and arguments.
      log: file to which its output is appended.
      env: variables added to those of this process.
      cores: CPUs that it may use; None: all CPUs of this process.
      cwd: its working folder; None: that of this process.
      grace_s: seconds between SIGINT and SIGKILL when it is stopped: more than episodes get to end.
      stdin, stdout: as in `subprocess.Popen`; None sends standard output to `log`, too.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        cores: set[int] | None = None,
        cwd: Path | None = None,
        grace_s: float = 60.0,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
    ):
        self.name, self._log, self._grace_s = name, log, grace_s
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as file:
            # The log may hold the output of earlier children; `failure` quotes only what comes after.
            self._start = file.tell()
            with warnings.catch_warnings():
                # JAX warns of a fork that goes on without its threads; this one calls the kernel, and execs.
                warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
                self._process = subprocess.Popen(
                    command,
                    stdin=stdin,
                    stdout=file if stdout is None else stdout,
                    stderr=file,
                    cwd=cwd,
                    env={**os.environ, **(env or {})},
                    start_new_session=True,
                    preexec_fn=_prepare_child(os.getpid(), cores),
                )

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its session and process group."""
        return self._process.pid

    @property
    def stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None, "started without stdin=PIPE"
        return self._process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None, "started without stdout=PIPE"
        return self._process.stdout

    def poll(self) -> int | None:
        """Returns the exit code, or None while it runs; kills processes of its group that are left over."""
        if self._process.returncode is None:
            with contextlib.suppress(ChildProcessError):  # Another thread has collected the exit code.
                if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    # Before the exit code is collected: until then no other group can get this number.
                    self._kill_group()
        return self._process.poll()

    def wait(self, seconds: float = float("inf")) -> int | None:
        """Waits for the end; returns the exit code, or None if it still runs after that time."""
        wait_for_any([self], seconds)
        return self.poll()

    def interrupt(self) -> None:
        """Sends SIGINT to the child itself, which then ends its own children."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGINT)

    def stop(self) -> None:
        """Interrupts it, and kills its process group if it has not ended after the grace period."""
        stop_all([self])

    def kill(self) -> None:
        """Kills its process group at once."""
        if self.poll() is None:
            self._kill_group()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def failure(self) -> UserError:
        """Makes the error for its failure, which quotes the last line of its output."""
        with open(self._log, "rb") as file:
            file.seek(self._start)
            lines = file.read().decode(errors="replace").strip().splitlines()
        code = self.poll()
        default = "no output yet" if code is None else f"exit code {code}"
        reason = lines[-1].removeprefix("error: ") if lines else default
        return UserError(f"{self.name}: {reason} (log: {self._log})")

    def activity(self) -> tuple[int, int]:
        """Returns a value that changes while the child works: log size, and CPU time in coarse steps."""
        try:
            # After the program's name, which may hold spaces and brackets; see proc(5).
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return self._log.stat().st_size, 0
        seconds = sum(map(int, fields[11:15])) / _TICKS
        return self._log.stat().st_size, int(seconds / _WORK_S)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def _prepare_child(parent: int, cores: set[int] | None) -> Callable[[], None]:
    def prepare() -> None:
        die_with_parent()
        if os.getppid() != parent:
            os._exit(1)  # The parent ended before the call above.
        # A shell's background jobs ignore SIGINT, which children would inherit.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if cores is not None:
            os.sched_setaffinity(0, cores)

    return prepare


def wait_for_any(children: Sequence[ChildProcess], seconds: float) -> None:
    """Returns when one of the children has ended, or after that time."""
    deadline = time.monotonic() + seconds
    while all(child.poll() is None for child in children) and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(_POLL_S, left))


def stop_all(children: Sequence[ChildProcess]) -> None:
    """Interrupts all children at once, and kills those that are left after their grace periods."""
    for child in children:
        child.interrupt()
    for child in children:
        child.wait(child._grace_s)
        child.kill()


class StallClock:
    """Measures how long a watched value has not changed: slow work makes progress, stuck work does not."""

    def __init__(self) -> None:
        self._value: object = None
        self._since = time.monotonic()

    def seconds(self, value: object) -> float:
        """Seconds for which the value has been the same; 0 when it differs from the last one."""
        if value != self._value:
            self._value, self._since = value, time.monotonic()
        return time.monotonic() - self._since
