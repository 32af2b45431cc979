"""Finding the browser's programs, and leaving none of its processes behind."""

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

# In the driver's environment: `PID-STARTED:PROFILE` of whoever started it.
OWNER = "RMSWEB_BROWSER"
PREFIX = "rmsweb."
# Where paths are short, whatever TMPDIR says.
SHORT_FOLDER = "/tmp"
# A page in an endless loop has a core for itself, unless others want it, too.
_BUSY_PERCENT, _BUSY_WINDOW_S = 25.0, 0.3


def find_program(path: str, names: tuple[str, ...]) -> str:
    """The program's path; raises UserError when it is not installed."""
    found = shutil.which(path) if path else next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise UserError(
            f"{path or names[0]} not found; install chromium and chromium-driver "
            "(Debian: apt-get install chromium chromium-driver) or set its path in the config"
        )
    return found


def owner_mark() -> str:
    """`PID-STARTED` of this process: numbers of ended processes are given to others."""
    return f"{os.getpid()}-{_started(os.getpid())}"


def make_profile(within: str | None = None) -> str:
    """A folder for what a browser writes; its name tells who owns it.

    Args:
      within: `SHORT_FOLDER`, or None for the system's temporary folder.
    """
    return tempfile.mkdtemp(prefix=f"{PREFIX}{owner_mark()}-", dir=within)


def reap_orphans() -> None:
    """Ends browsers whose owning process was killed before it could, and removes their folders.

    Of all processes only the name is read, of browsers and drivers the environment, too: 7 ms for 115
    processes, a third of them browsers'.
    """
    for process in psutil.process_iter(["name"]):
        if not (process.info["name"] or "").startswith("chrom"):
            continue
        with contextlib.suppress(psutil.Error, OSError):
            owner, _, profile = process.environ().get(OWNER, "").partition(":")
            if owner and not _lives(owner):
                kill_session(os.getsid(process.pid))
                shutil.rmtree(profile, ignore_errors=True)
    # A browser that died with its owner is not found above, and has left its profile.
    for parent in {tempfile.gettempdir(), SHORT_FOLDER}:
        for folder in pathlib.Path(parent).glob(f"{PREFIX}*-*-*"):
            owner, _, _rest = folder.name.removeprefix(PREFIX).rpartition("-")
            if not _lives(owner):
                shutil.rmtree(folder, ignore_errors=True)


def _lives(owner: str) -> bool:
    """Whether the process of an owner's mark runs; what is no mark is left alone."""
    pid, _, started = owner.partition("-")
    return not (pid.isdigit() and started.isdigit()) or _started(int(pid)) == int(started)


def _started(pid: int) -> int:
    """When a process started, in hundredths of a second of its clock; -1 if it does not run."""
    try:
        return round(psutil.Process(pid).create_time() * 100)
    except psutil.Error:
        return -1


def memory_mb(leader: int) -> float:
    """What the processes of a session use, in MB; pages they share are counted once a process.

    It costs about 1 ms: the exact figure (PSS) would cost thirty times that.
    """
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0
    for pid in session_members(leader):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # Own pages are the resident ones without the shared ones.
            sizes = pathlib.Path(f"/proc/{pid}/statm").read_text().split()
            total += (int(sizes[1]) - int(sizes[2])) * page
    return total / 1e6


def kill_busy_renderers(pids: list[int]) -> int:
    """Kills the processes of pages that compute without a pause; how many there were."""
    renderers = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if "--type=renderer" in process.cmdline():
                process.cpu_percent()
                renderers.append(process)
    time.sleep(_BUSY_WINDOW_S)
    killed = 0
    for process in renderers:
        with contextlib.suppress(psutil.Error):
            if process.cpu_percent() > _BUSY_PERCENT:
                process.kill()
                killed += 1
    return killed


def session_members(leader: int) -> list[int]:
    """The processes of a session, its leader first: later ones may have lower numbers."""
    members = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if os.getsid(pid) == leader:
                members.append(pid)
    return sorted(members, key=lambda pid: pid != leader)


def kill_session(leader: int) -> None:
    """Kills all processes of a session until none but zombies (others' children) are left."""
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
