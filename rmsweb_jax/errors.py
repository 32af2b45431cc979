"""Errors that end a command with one line instead of a traceback."""

from __future__ import annotations

import contextlib
import errno
import re
import sys
import traceback
from collections.abc import Iterator

from rmsweb_jax.signals import AGAIN, describe, end_at_once, exit_code, interrupt_main


class UserError(Exception):
    """An error the user can fix; the message says what is wrong, where, and what to do.

    Command lines print the message alone, without a traceback, and exit with `exit_code`.
    """

    exit_code = 2


class StoppedError(UserError):
    """A signal stopped the run after saving its state; a scheduler may start the same command again.

    Args:
      saved: the state from which the next run continues, as a clause.
      cause: name of the signal.
      continues: False for a server, which has nothing to continue.
    """

    exit_code = 75

    def __init__(self, saved: str, cause: str = "a signal", continues: bool = True):
        super().__init__(f"{describe(cause)}; {saved}{AGAIN * continues}")
        self.exit_code = exit_code(cause)


class TakenOverError(UserError):
    """Another process writes to this run's folder in a bucket."""

    exit_code = StoppedError.exit_code


class UnreachableError(UserError):
    """A store does not answer; a scheduler may start the same command again."""

    exit_code = StoppedError.exit_code


@contextlib.contextmanager
def user_errors(continues: bool = True) -> Iterator[None]:
    """Turns errors that users can cause, and signals, into one line on standard error and an exit code.

    Args:
      continues: whether the same command again goes on after Ctrl-C.
    """
    if "jax" in sys.modules:
        end_at_once()
    else:
        interrupt_main()
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if (known := user_message(error, continues)) is None:
            raise
        message, code = known
        print(f"error: {message}", file=sys.stderr, flush=True)
        sys.exit(code)


def user_message(error: BaseException, continues: bool = True) -> tuple[str, int] | None:
    """Returns the line and the exit code for an error that users can cause; None for any other error.

    Args:
      continues: see `user_errors`.
    """
    if isinstance(error, UserError):
        return str(error), error.exit_code
    if isinstance(error, ModuleNotFoundError):
        message = missing_extra(error)
        return (message, 2) if message else None
    if isinstance(error, KeyboardInterrupt):
        cause = error.args[0] if error.args else "SIGINT"
        stop = StoppedError("what was done is kept", cause, continues)
        return str(stop), stop.exit_code
    if isinstance(error, OSError):
        where = error.filename or "output"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return f"disk full while writing {where}: free space, then run the same command again", 2
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return f"{where}: {error.strerror}; change its permissions, or use another --workdir", 2
    return None


def missing_extra(error: ModuleNotFoundError) -> str:
    """Writes the message for a missing module that an extra installs; "" for any other module."""
    import importlib.metadata  # Takes longer to load than all of this module.

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
    return f"{error}: pip install '.[{extra}]' in the checkout" if extra else ""
