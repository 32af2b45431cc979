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
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from selenium.webdriver.common import utils

from collection.browser import chromium
from collection.browser.config import BrowserConfig
from collection.browser.devtools import DevToolsConnection
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.session import Browser, BrowserLostError
from rmsweb_jax.errors import UserError

SMALL = BrowserConfig(width=321, height=201, quiet_ms=0)


def alive(pids: list[int]) -> list[psutil.Process]:
    """Returns the processes that still run; zombies of other parents do not count."""
    running = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                running.append(process)
    return running


@pytest.fixture
def folder() -> Iterator[str]:
    """A temporary folder with a short path."""
    with tempfile.TemporaryDirectory(prefix="", dir=chromium.SHORT_FOLDER) as path:
        yield path


# The longest path below which a browser's socket fits, and one more.
@pytest.mark.parametrize("too_long", [False, True])
def test_viewport_is_exact_and_closing_leaves_nothing(
    folder: str, monkeypatch: pytest.MonkeyPatch, too_long: bool
) -> None:
    own = len(f"/{chromium.PREFIX}{chromium.owner_mark()}-12345678/tmp")
    system = f"{folder}/{'x' * (chromium.TEMPORARY_BYTES + too_long - own - len(folder) - 1)}"
    os.mkdir(system)
    monkeypatch.setenv("TMPDIR", system)
    monkeypatch.setattr(tempfile, "tempdir", system)
    mine = f"{chromium.SHORT_FOLDER}/{chromium.PREFIX}{chromium.owner_mark()}-*"
    before = set(glob.glob(mine))
    monkeypatch.setenv("SHOP_PASSWORD", "only the collector's")
    with Browser(SMALL) as browser:
        assert browser.script("return [innerWidth, innerHeight, devicePixelRatio]") == [321, 201, 1]
        pids = browser.process_ids
        assert len(pids) > 3
        assert "SHOP_PASSWORD" not in psutil.Process(pids[0]).environ()  # What all others have inherited.
        assert os.listdir(system) == [os.path.basename(browser.profile)]
        assert len(glob.glob(mine)) == len(before) + too_long
    assert alive(pids) == [] and os.listdir(system) == []
    assert set(glob.glob(mine)) == before


# A driver that is stopped does not answer; how long it is waited for follows from the limits.
@pytest.mark.parametrize(
    ("name", "reason"), [("SIGKILL", "is gone"), ("SIGSTOP", "the browser's driver does not answer")]
)
def test_a_browser_whose_driver_is_killed_or_stopped_is_lost_and_reaped(
    monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    monkeypatch.setattr(chromium, "_DRIVER_GRACE_S", 4.0)
    config = SMALL.model_copy(update={"page_load_seconds": 8.0, "script_seconds": 8.0})
    with Browser(config) as browser:
        pids = browser.process_ids
        os.kill(pids[0], getattr(signal, name))
        with pytest.raises(BrowserLostError, match=reason):
            browser.settle(first_ms=1)
    assert alive(pids) == []


_OWNER = """
import os, signal, sys
from collection.browser.session import Browser, BrowserConfig
browser = Browser(BrowserConfig(width=321, height=201))
print(browser.profile, *browser.process_ids, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_browsers_end_with_a_killed_owner_and_leave_no_profile() -> None:
    owner = subprocess.run([sys.executable, "-c", _OWNER], capture_output=True, text=True, check=False)
    profile, *rest = owner.stdout.split()
    pids = [int(pid) for pid in rest]
    assert owner.returncode == -signal.SIGKILL and pids
    deadline = time.monotonic() + 600
    # A single wait until the deadline would also wait for zombies on systems that do not reap orphans.
    while (left := alive(pids)) and time.monotonic() < deadline:
        psutil.wait_procs(left, timeout=0.05)
    assert alive(pids) == []
    chromium.reap_orphans()
    assert not os.path.exists(profile)


def test_a_reused_process_id_marks_an_orphan(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", folder)
    pid, _, started = chromium.owner_mark().partition("-")
    marks = {"mine": chromium.owner_mark(), "reused": f"{pid}-{int(started) - 100}", "other": "of-somebody"}
    program = f"{folder}/chromedriver"
    os.symlink(sys.executable, program)
    with contextlib.ExitStack() as stack:
        running = {}
        for name, mark in marks.items():
            profile = f"{folder}/{chromium.PREFIX}{mark}-profile"
            os.mkdir(profile)
            command = ([program, "-c", "input()"], -1, None, subprocess.PIPE)
            environment = {chromium.PROFILE: profile}
            running[name] = subprocess.Popen(*command, env=environment, start_new_session=True)
            stack.enter_context(running[name])
            stack.callback(running[name].kill)
        chromium.reap_orphans()
        assert {name for name, one in running.items() if alive([one.pid])} == {"mine", "other"}
        names = {f"{chromium.PREFIX}{marks[name]}-profile" for name in ("mine", "other")}
        assert set(os.listdir(folder)) == {*names, "chromedriver"}


def test_two_browsers_that_start_at_once_have_sessions_of_their_own_drivers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = utils.free_port()
    # Selenium's choice, which two processes can make at the same moment.
    monkeypatch.setattr(utils, "free_port", lambda: port)
    with Browser(SMALL) as one, Browser(SMALL) as two:
        for browser in (one, two):
            driver_id = browser.process_ids[0]
            assert psutil.Process(browser.driver.capabilities["goog:processID"]).ppid() == driver_id


def test_a_driver_whose_port_is_in_use_is_started_again(folder: str) -> None:
    program, tried = Path(folder, "chromedriver"), Path(folder, "tried")
    first = f"touch {tried}; echo 'IPv4 port not available. Exiting...'; exit 1"
    program.write_text(f'#!/bin/sh\n[ -e {tried} ] || {{ {first}; }}\nexec chromedriver "$@"\n')
    program.chmod(0o700)
    with Browser(SMALL.model_copy(update={"chromedriver": str(program)})) as browser:
        assert browser.script("return 6 * 7") == 42


def test_missing_and_wrong_programs_are_reported_in_one_line_and_leave_no_profile() -> None:
    mine = f"{tempfile.gettempdir()}/rmsweb.{os.getpid()}-*"
    before = set(glob.glob(mine))
    for changes, line in (
        ({"chromium": "/nowhere/chromium"}, "^/nowhere/chromium not found; install chromium"),
        ({"chromedriver": "/bin/false"}, "^no browser session from /bin/false: the driver did not start: no"),
    ):
        with pytest.raises(UserError, match=line):
            Browser(BrowserConfig(**changes))
    assert set(glob.glob(mine)) == before


def test_a_browser_that_does_not_answer_after_its_start_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DevToolsConnection, "_receive", lambda connection, message: None)
    with pytest.raises(BrowserLostError, match="does not answer after its start"):
        Browser(BrowserConfig(script_seconds=0.1))


def test_a_local_browser_is_reached_without_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    guard = Guard(GuardConfig(), watch=True)
    with guard, Browser(BrowserConfig(), guard) as browser:
        assert browser.script("return 6 * 7") == 42


def test_a_frame_that_moves_to_another_process_stays_the_current_one(browser, local_pages):
    other = local_pages.replace("127.0.0.1", "other.test")
    browser.goto(f"{local_pages}/")
    browser.script(f"document.body.innerHTML = '<iframe src=\"{local_pages}/\"></iframe>'")
    frame = browser.driver.find_element("tag name", "iframe")
    browser.enter_frame(frame)
    load = "const [frame, url, done] = arguments; frame.onload = () => done(); frame.src = url"
    browser.driver.execute_async_script(load, frame, f"{other}/")
    assert browser.script("return location.hostname") == "other.test"
    browser.goto(f"{local_pages}/")
    assert browser.script("return window === top")
