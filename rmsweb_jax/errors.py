"""Errors that end a command with one line instead of a traceback."""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import re
import signal
import sys
import traceback
from collections.abc import Iterator


class UserError(Exception):
    """An error the user can fix; the message says what is wrong, where, and what to do.

    Command lines print the message alone, without a traceback, and exit with `exit_code`.
    """

    exit_code = 2


class StoppedError(UserError):
    """A signal stopped the run after saving its state; a scheduler may start the same command again.

    The exit code is EX_TEMPFAIL of sysexits.h.

    Args:
      saved: the state from which the next run continues, as a clause.
      cause: name of the signal.
    """

    exit_code = 75

    def __init__(self, saved: str, cause: str = "a signal"):
        super().__init__(f"stopped by {cause}; {saved}: run the same command again to continue")


class UnreachableError(UserError):
    """A store does not answer; a scheduler may start the same command again."""

    exit_code = StoppedError.exit_code


class StopSignal(KeyboardInterrupt):
    """A signal other than Ctrl-C that asks the process to end; the argument is its name."""


# SIGTERM is what Kubernetes, Slurm and a reclaimed TPU send. SIGUSR1 is what `sbatch --signal=USR1@300` sends
# before a time limit.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


def _raise_stop(number: int, frame: object) -> None:
    raise StopSignal(signal.Signals(number).name)


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Turns errors that users can cause into one line on standard error and a non-zero exit code."""
    # An exception, so that `finally` blocks run. `StopRequest` replaces the handler while a run can save its
    # state.
    for number in STOP_SIGNALS:
        signal.signal(number, _raise_stop)
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if (known := user_message(error)) is None:
            raise
        message, code = known
        print(f"error: {message}", file=sys.stderr, flush=True)
        sys.exit(code)


def user_message(error: BaseException) -> tuple[str, int] | None:
    """Returns the line and the exit code for an error that users can cause; None for any other error."""
    if isinstance(error, UserError):
        return str(error), error.exit_code
    if isinstance(error, ModuleNotFoundError):
        message = missing_extra(error)
        return (message, 2) if message else None
    if isinstance(error, StopSignal):
        stop = StoppedError("what was done is kept", str(error))
        return str(stop), stop.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted: what was done is kept; run the same command again to continue", 130
    if isinstance(error, OSError):
        where = error.filename or "output"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return f"disk full while writing {where}: free space, then run the same command again", 2
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return f"{where}: {error.strerror}; change its permissions, or use another --workdir", 2
    return None


def missing_extra(error: ModuleNotFoundError) -> str:
    """Writes the message for a missing module that an extra installs; "" for any other module."""
    try:
        requirements = importlib.metadata.requires("rmsweb-jax") or ()
    except importlib.metadata.PackageNotFoundError:
        return ""
    top = (error.name or "").partition(".")[0].lower().replace("_", "-")
    extras = []
    for line in requirements:
        match = re.match(r"([\w.-]+)[^;]*; extra == [\"'](\w+)[\"']", line)
        package = match[1].lower().replace("_", "-") if match else ""
        # An extra that includes another one lists this package itself.
        if not match or package == "rmsweb-jax":
            continue
        # A namespace package is a prefix: `google` of google-genai, `orbax` of orbax-checkpoint.
        if f"{package}-".startswith(f"{top}-"):
            extras.append(match[2])
    # Some packages are in the extras of both sides; name the extra of the side that imports it.
    frames = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
    side = "collect" if any(name.split(".")[0] == "collection" for name in frames) else "train"
    extra = side if side in extras else extras[0] if extras else ""
    return f"{error}: pip install 'rmsweb-jax[{extra}]'" if extra else ""
