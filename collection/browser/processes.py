"""Processes of a browser: finding programs, cleaning up orphans, memory use and killing."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterator

import psutil

from rmsweb_jax.errors import UserError

# Environment variable of the driver: `PID-STARTED:PROFILE` of the process that started it.
OWNER = "RMSWEB_BROWSER"
PREFIX = "rmsweb."
# Sockets need short paths, and TMPDIR may be long.
SHORT_FOLDER = "/tmp"
# A page in an endless loop is runnable all the time, whether or not a busy machine gives it a core.
_SAMPLES, _SAMPLE_S, _BUSY_SHARE = 10, 0.03, 0.8


def find_program(path: str, names: tuple[str, ...]) -> str:
    """Returns the path of a program: `path`, or the first of `names` on PATH. Raises UserError if missing."""
    found = shutil.which(path) if path else next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise UserError(
            f"{path or names[0]} not found; install chromium and chromium-driver "
            "(Debian: apt-get install chromium chromium-driver), or add their folder to PATH"
        )
    return found


def owner_mark() -> str:
    """Returns `PID-STARTED` of this process; the start time is needed because process ids are reused."""
    return f"{os.getpid()}-{_started(os.getpid())}"


def make_profile(within: str | None = None) -> str:
    """Creates a folder for a browser's files; its name contains the owner's mark.

    Args:
      within: `SHORT_FOLDER`, or None for the system's temporary folder.
    """
    return tempfile.mkdtemp(prefix=f"{PREFIX}{owner_mark()}-", dir=within)


def reap_orphans() -> None:
    """Kills browsers whose owning process is gone, and removes their folders.

    It reads the names of all processes, and the environment of browsers and drivers only. This takes 7 ms for
    115 processes, a third of which are browsers'.
    """
    psutil.process_iter.cache_clear()  # It keeps the names of processes whose numbers have been given again.
    for process in psutil.process_iter(["name"]):
        if not (process.info["name"] or "").startswith("chrom"):
            continue
        with contextlib.suppress(psutil.Error, OSError):
            owner, _, profile = process.environ().get(OWNER, "").partition(":")
            if owner and not _is_alive(owner):
                kill_session(os.getsid(process.pid))
                shutil.rmtree(profile, ignore_errors=True)
    # A browser that died with its owner has left its profile and is not found above.
    for parent in {tempfile.gettempdir(), SHORT_FOLDER}:
        for folder in pathlib.Path(parent).glob(f"{PREFIX}*-*-*"):
            owner, _, _rest = folder.name.removeprefix(PREFIX).rpartition("-")
            if not _is_alive(owner):
                shutil.rmtree(folder, ignore_errors=True)


def _is_alive(owner: str) -> bool:
    """Returns True if the process of an owner's mark runs, and for any other text, whose folder is kept."""
    pid, _, started = owner.partition("-")
    return not (pid.isdigit() and started.isdigit()) or _started(int(pid)) == int(started)


def _started(pid: int) -> int:
    """Returns the start time of a process in hundredths of a second; -1 if it does not run."""
    try:
        return round(psutil.Process(pid).create_time() * 100)
    except psutil.Error:
        return -1


def memory_mb(leader: int) -> float:
    """Returns the unshared memory of a session's processes in MB.

    The call takes about 1 ms; the exact figure (PSS) would take thirty times as long.
    """
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0
    for pid in session_members(leader):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # Unshared pages are the resident ones minus the shared ones.
            sizes = pathlib.Path(f"/proc/{pid}/statm").read_text().split()
            total += (int(sizes[1]) - int(sizes[2])) * page
    return total / 1e6


def kill_busy_renderers(pids: list[int]) -> int:
    """Kills renderer processes that compute without a pause; returns their number."""
    runnable: dict[psutil.Process, int] = {}
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if "--type=renderer" in process.cmdline():
                runnable[process] = 0
    for _ in range(_SAMPLES):
        for process in runnable:
            with contextlib.suppress(psutil.Error):
                runnable[process] += process.status() == psutil.STATUS_RUNNING
        time.sleep(_SAMPLE_S)
    killed = 0
    for process, samples in runnable.items():
        with contextlib.suppress(psutil.Error):
            if samples >= _BUSY_SHARE * _SAMPLES:
                process.kill()
                killed += 1
    return killed


def session_members(leader: int) -> list[int]:
    """Returns the process ids of a session, its leader first; later processes may have lower ids."""
    members = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if os.getsid(pid) == leader:
                members.append(pid)
    return sorted(members, key=lambda pid: pid != leader)


def kill_session(leader: int) -> None:
    """Kills all processes of a session until only zombies (children of other processes) are left."""
    deadline = time.monotonic() + 5
    while living := list(_living(leader)):
        for process in living:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(living, timeout=0.05)
        if time.monotonic() > deadline:
            return


def _living(leader: int) -> Iterator[psutil.Process]:
    for pid in session_members(leader):
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                yield process
