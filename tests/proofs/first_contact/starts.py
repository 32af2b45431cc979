"""Two hundred browser starts from eight processes at once: is every session the own driver's?"""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.synchronize import Barrier

import psutil

from collection.browser.config import BrowserConfig
from collection.browser.session import Browser

PROCESSES, STARTS = 8, 25
_PATIENCE_S = 600.0


def main() -> str:
    """Starts browsers; prints and returns the page."""
    spawn = multiprocessing.get_context("spawn")
    together, answers = spawn.Barrier(PROCESSES), spawn.Queue()
    processes = [spawn.Process(target=_start_browsers, args=(together, answers)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    found = [answers.get(timeout=_PATIENCE_S) for _ in range(PROCESSES * STARTS)]
    for process in processes:
        process.join()
    strangers = [problem for problem in found if problem]
    own = len(found) - len(strangers)
    counts = f"{PROCESSES} processes, {len(found)} starts: {own} sessions of the own driver"
    page = f"# Starts of browsers\n\n{counts}\n"
    print(page + "".join(f"\n- {problem}" for problem in strangers))
    assert not strangers, f"{len(strangers)} of {len(found)} sessions are not the own driver's"
    return page


def _start_browsers(together: Barrier, answers: multiprocessing.Queue[str]) -> None:
    for _ in range(STARTS):
        # All at once, which is when two drivers could take one port.
        together.wait(_PATIENCE_S)
        try:
            with Browser(BrowserConfig()) as browser:
                answers.put(_stranger(browser))
        except Exception as error:
            answers.put(f"{type(error).__name__}: {error}")


def _stranger(browser: Browser) -> str:
    """Returns what does not belong to the driver that this process started, as the system sees it."""
    started, port, devtools = browser.process_ids[0], *browser._process.ports
    session = psutil.Process(browser.driver.capabilities["goog:processID"])
    facts = {
        "the driver is not this process's": psutil.Process(started).ppid() == os.getpid(),
        "another process listens at the driver's port": port in _listens(psutil.Process(started)),
        "the browser is another driver's": session.ppid() == started,
        "another process listens at the DevTools port": devtools in _listens(session),
    }
    return ", ".join(problem for problem, holds in facts.items() if not holds)


def _listens(process: psutil.Process) -> set[int]:
    connections = process.net_connections("tcp")
    return {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}
