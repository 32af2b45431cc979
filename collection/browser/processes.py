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

# In the driver's environment: `PID:PROFILE` of whoever started it.
OWNER = "RMSWEB_BROWSER"
_PROFILE = "rmsweb-browser-"


def find_program(path: str, names: tuple[str, ...]) -> str:
    """The program's path; raises UserError when it is not installed."""
    found = shutil.which(path) if path else next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise UserError(
            f"{path or names[0]} not found; install chromium and chromium-driver "
            "(Debian: apt-get install chromium chromium-driver) or set its path in the config"
        )
    return found


def make_profile() -> str:
    """A folder for a browser's profile; its name tells who owns it."""
    return tempfile.mkdtemp(prefix=f"{_PROFILE}{os.getpid()}-")


def reap_orphans() -> None:
    """Ends browsers whose owning process was killed before it could, and removes their profiles."""
    for process in psutil.process_iter(["pid", "name"]):
        if not (process.info["name"] or "").startswith("chrom"):
            continue
        with contextlib.suppress(psutil.Error, OSError):
            owner, _, profile = process.environ().get(OWNER, "").partition(":")
            if owner and not psutil.pid_exists(int(owner)):
                kill_session(os.getsid(process.pid))
                shutil.rmtree(profile, ignore_errors=True)
    # A browser that died with its owner is not found above, and has left its profile.
    for folder in pathlib.Path(tempfile.gettempdir()).glob(f"{_PROFILE}*-*"):
        owner = folder.name.removeprefix(_PROFILE).split("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def session_members(leader: int) -> list[int]:
    members = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if os.getsid(pid) == leader:
                members.append(pid)
    return members


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
