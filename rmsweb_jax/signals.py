"""Signals that ask a process to end: SIGINT (Ctrl-C), SIGTERM and SIGUSR1, which are handled alike.

A loop that can save its state is in a `StopRequest`: it notices the first signal at the end of its step. At
any other time, and at the second signal, the process ends:

- Where JAX is loaded, at once and without an exception (`end_at_once`). An exception of a signal handler
  comes only when the compiler has returned, after minutes, and wherever the main thread then runs Python:
  inside JAX's C++, which crashes when the interpreter ends; in a callback of the garbage collector, which
  swallows it; in the import of an extension, which makes another error of it.
- Elsewhere by a `KeyboardInterrupt` in the main thread (`interrupt_main`), so that children and temporary
  files are removed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

# SIGTERM is what Kubernetes, Slurm and a reclaimed TPU send. SIGUSR1 is what `sbatch --signal=USR1@300` sends
# before a time limit.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
# One Ctrl-C may arrive twice: from the terminal, and from a launcher that passes it on.
_REPEATED_S = 1.0
# Time in which buffered output is written.
_FLUSH_S = 2.0
_FOREVER_S = 1000.0
_SHOW_CURSOR = "\x1b[?25h"
# The process of `multiprocessing` that removes what killed processes leave warns of it after their last line.
# Warning options of this process are its options, too.
_QUIET_TRACKER = "ignore:resource_tracker"

# What the line of a run says that its command continues.
AGAIN = ": run the same command again to continue"

Leave = Callable[[int, str], NoReturn]

_active: list[StopRequest] = []
# The end of the pipe to which the interpreter writes signals; -1: there is none.
_writer = -1


class StopRequest(contextlib.AbstractContextManager["StopRequest"]):
    """Graceful shutdown: while it is active, the first signal sets a flag instead of ending the process.

    The flag is that of every active instance. Without `end_at_once` Python handles signals in the main thread
    only: an instance of another thread then sets no handler.

    Attributes:
      cause: name of the signal; "SIGTERM" before it.
    """

    def __init__(self) -> None:
        self.cause = "SIGTERM"
        self._since: float | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        if _active:  # A signal that came before also ends what begins now.
            self.cause, self._since = _active[-1].cause, _active[-1]._since
        _active.append(self)
        if _writer < 0 and threading.current_thread() is threading.main_thread():
            self._before = _handle(_interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        _active.remove(self)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def requested(self) -> bool:
        """Whether the signal came."""
        return self._since is not None

    def _receive(self, cause: str) -> bool:
        """Sets the flag; False for a second signal."""
        now = time.monotonic()
        if self._since is not None:
            return now - self._since < _REPEATED_S
        self.cause, self._since = cause, now
        return True


def exit_code(cause: str) -> int:
    """The exit code of a process that a signal has ended: EX_TEMPFAIL of sysexits.h; a shell's for Ctrl-C."""
    return 130 if cause == "SIGINT" else 75


def describe(cause: str) -> str:
    """The beginning of the line that says that a run has ended."""
    return "interrupted" if cause == "SIGINT" else f"stopped by {cause}"


def interrupt_main() -> None:
    """Makes signals raise `KeyboardInterrupt(name)` in the main thread, unless a `StopRequest` notes them."""
    global _writer
    _handle(_interrupt)
    signal.set_wakeup_fd(-1)
    if _writer >= 0:
        os.close(_writer)  # Which ends the thread that reads it.
    _writer = -1


def end_at_once(leave: Leave | None = None, continues: bool | None = None) -> None:
    """Makes signals end the process, unless a `StopRequest` notes them, also while its threads are in C++.

    The interpreter's own handler writes to a pipe at once, also while the main thread is in the compiler, and
    a thread reads it. Must be called in the main thread.

    Args:
      leave: ends the process; None: the one that was given before, at first `leave_process`.
      continues: whether the same command goes on; None: as was given before, at first False.
    """
    global _writer, _leave, _continues
    _leave = leave or _leave
    _continues = _continues if continues is None else continues
    if _writer >= 0:
        return
    sys.warnoptions.append(_QUIET_TRACKER)
    reader, _writer = os.pipe()
    os.set_blocking(_writer, False)
    threading.Thread(target=_listen, args=(reader,), name="signals", daemon=True).start()
    # Python also calls a handler of its own; without one a signal would have its default action.
    _handle(lambda number, frame: None)
    signal.set_wakeup_fd(_writer, warn_on_full_buffer=False)


def leave_process(code: int, line: str) -> NoReturn:
    """Ends this process; its last line is an error."""
    exit_process(code, line)


def print_error(line: str) -> None:
    """Prints an error in any thread."""
    # To the file itself: another thread may hold Python's lock of standard error. Bars hide the cursor.
    os.write(2, f"{_SHOW_CURSOR if os.isatty(2) else ''}error: {line}\n".encode())


def exit_process(code: int, line: str = "") -> NoReturn:
    """Ends this process and its workers from any thread, without an exception; its last line is the error."""
    try:
        # In a thread: the reader of the output may have stopped reading.
        flushing = threading.Thread(target=sys.stdout.flush, daemon=True)
        flushing.start()
        flushing.join(_FLUSH_S)
        # Only if it is imported: importing it takes locks that the main thread may hold.
        workers = getattr(sys.modules.get("multiprocessing.process"), "active_children", list)()
        if line:
            # As late as may be: the main thread still logs what it compiles.
            print_error(line)
        # Last, since the main thread may wait for them, and must not go on: it would end with another code.
        sys.setswitchinterval(_FOREVER_S)
        for worker in workers:
            worker.kill()
    finally:
        os._exit(code)


_leave: Leave = leave_process
_continues = False


def _handle(handler: Callable[[int, FrameType | None], None]) -> dict[signal.Signals, Any]:
    """Sets the handler of all signals but those that are ignored, as `nohup` and shells make jobs do.

    Returns:
      The handlers before.
    """
    return {
        number: signal.signal(number, handler)
        for number in STOP_SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN
    }


def _note(cause: str) -> bool:
    """Gives a signal to the active requests; False if there is none, or if it is their second one."""
    # A copy: the main thread may just be leaving the only one.
    requests = list(_active)
    return bool(requests) and all(request._receive(cause) for request in requests)


def _interrupt(number: int, frame: FrameType | None) -> None:
    cause = signal.Signals(number).name
    if not _note(cause):
        raise KeyboardInterrupt(cause)


def _listen(reader: int) -> None:
    ending = 0.0
    while numbers := os.read(reader, 64):
        for number in numbers:
            if number not in STOP_SIGNALS or _note(cause := signal.Signals(number).name):
                continue
            if not ending:
                ending = time.monotonic()
                line = f"{describe(cause)}; what was saved before is kept{AGAIN * _continues}"
                threading.Thread(target=_leave, args=(exit_code(cause), line), daemon=True).start()
            elif time.monotonic() - ending > _REPEATED_S:
                os._exit(exit_code(cause))  # It waits for other hosts to hear of it.
    os.close(reader)
