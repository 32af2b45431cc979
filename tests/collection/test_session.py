"""Browsers start exactly as configured and leave nothing behind."""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import subprocess
import sys
import tempfile
import time

import psutil
import pytest

from collection.browser import processes
from collection.browser.session import Browser, BrowserConfig, BrowserLostError
from rmsweb_jax.errors import UserError

SMALL = BrowserConfig(width=321, height=201, quiet_ms=0)


def alive(pids: list[int]) -> list[psutil.Process]:
    """Those that still run; a zombie that its foreign parent has not collected does not."""
    running = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                running.append(process)
    return running


def test_viewport_is_exact_and_closing_leaves_nothing() -> None:
    with Browser(SMALL) as browser:
        assert browser.script("return [innerWidth, innerHeight, devicePixelRatio]") == [321, 201, 1]
        pids = browser.process_ids
        assert len(pids) > 3
        profile = browser._profile
    assert alive(pids) == [] and not os.path.exists(profile)


def test_a_killed_browser_is_lost_and_reaped() -> None:
    with Browser(SMALL) as browser:
        pids = browser.process_ids
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(BrowserLostError):
            browser.script("return 1")
    assert alive(pids) == []


def test_a_failure_inside_closes_the_browser() -> None:
    pids: list[int] = []

    def fail() -> None:
        with Browser(SMALL) as browser:
            pids.extend(browser.process_ids)
            raise KeyError("mine")

    with pytest.raises(KeyError):
        fail()
    assert pids and alive(pids) == []


_OWNER = """
import os, signal, sys
from collection.browser.session import Browser, BrowserConfig
browser = Browser(BrowserConfig(width=321, height=201))
print(browser._profile, *browser.process_ids, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_browsers_end_with_a_killed_owner_and_leave_no_profile() -> None:
    owner = subprocess.run([sys.executable, "-c", _OWNER], capture_output=True, text=True, check=False)
    profile, *rest = owner.stdout.split()
    pids = [int(pid) for pid in rest]
    assert owner.returncode == -signal.SIGKILL and pids
    deadline = time.monotonic() + 20
    # One wait to the deadline would be for zombies too, where nobody collects orphans.
    while (left := alive(pids)) and time.monotonic() < deadline:
        psutil.wait_procs(left, timeout=0.05)
    assert alive(pids) == []
    processes.reap_orphans()
    assert not os.path.exists(profile)


def test_missing_programs_are_told_in_one_line() -> None:
    with pytest.raises(UserError, match=r"^/nowhere/chromium not found; install chromium"):
        Browser(BrowserConfig(chromium="/nowhere/chromium"))


def test_a_program_that_is_no_driver_is_told_in_one_line_and_leaves_no_profile() -> None:
    mine = f"{tempfile.gettempdir()}/rmsweb-browser-{os.getpid()}-*"
    before = set(glob.glob(mine))
    with pytest.raises(UserError, match="no browser session from /bin/false"):
        Browser(BrowserConfig(chromedriver="/bin/false"))
    assert set(glob.glob(mine)) == before


def test_an_unreachable_grid_is_told_in_one_line() -> None:
    with pytest.raises(UserError, match=r"no browser session from http://127\.0\.0\.1:9"):
        Browser(BrowserConfig(grid_url="http://127.0.0.1:9"))
