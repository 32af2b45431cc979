"""A viewer that listens on loopback while a test runs, and waits for what a browser shows."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.support.wait import WebDriverWait

from collection.viewer.app import Viewer, make_app
from collection.viewer.folders import Folders
from collection.viewer.index import EpisodeIndex
from collection.viewer.labels import Labels
from collection.viewer.pages import Pages

# Seconds that a busy machine may take to show a page.
WAIT_S = 60


class Now(Folders):
    """Looks through the folders each time."""

    def all(self):
        self._at = -1e9
        return super().all()


def make_pages(root: Path, work: Path) -> tuple[Pages, EpisodeIndex, Labels]:
    """The pages of a folder; index and labels are in `work`."""
    folders = Folders([root])
    index, labels = EpisodeIndex(work / "index.sqlite", folders), Labels(work / "labels")
    index.refresh()
    return Pages(folders, index, labels), index, labels


@contextlib.contextmanager
def open_viewer(root: Path, work: Path) -> Iterator[str]:
    """Yields the address of a viewer of a folder."""
    pages, _, _ = make_pages(root, work)
    config = uvicorn.Config(make_app(Viewer(pages)), port=0, log_level="error")
    server = uvicorn.Server(config)
    socket = config.bind_socket()
    socket.listen()  # Else who asks before the server is up is refused.
    thread = threading.Thread(target=server.run, args=([socket],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def until(driver: webdriver.Chrome, condition: Callable[[], Any], seconds: float = WAIT_S) -> Any:
    """Waits until a condition is true, and returns what it returned."""
    wait = WebDriverWait(driver, seconds, ignored_exceptions=[StaleElementReferenceException])
    return wait.until(lambda _: condition())
