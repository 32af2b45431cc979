"""Types of browser actions: their context, their outcome, and the element behind an index."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.remote.webelement import WebElement

from collection.browser import page_scripts
from collection.browser.files import FileFolder
from collection.browser.page import ActionTarget
from collection.browser.session import Browser
from collection.browser.snapshot import take_snapshot


@dataclasses.dataclass
class ActionContext:
    """Resources of actions in addition to the browser.

    Attributes:
      files: the episode's file folder; None refuses file actions.
      uploads: files outside that folder which may be uploaded.
      search_urls: engine name -> URL with `{query}`.
      extract: (query, Markdown) -> answer of the extraction model; None refuses extraction.
      extra_actions: names of `EXTRA_ACTIONS` that are permitted.
      deadline: `time.monotonic` value after which no action starts, and up to which actions may wait;
        `extract` moves it by the time that it has waited for a model that did not answer.
    """

    files: FileFolder | None = None
    uploads: tuple[pathlib.Path, ...] = ()
    search_urls: Mapping[str, str] = dataclasses.field(default_factory=dict)
    extract: Callable[[str, str], str] | None = None
    extra_actions: tuple[str, ...] = ()
    deadline: float = math.inf


class ActionError(Exception):
    """An action cannot be executed; the message is shown to the agent."""


@dataclasses.dataclass(frozen=True)
class ActionOutcome:
    """Outcome of an action.

    Attributes:
      text, changed, error, output: as in `ActionResult`.
      page: a new snapshot is needed to know if the page has changed.
    """

    text: str
    changed: bool = False
    error: bool = False
    output: str = ""
    page: bool = True


class LocatedElement:
    """An indexed element; inside the `with` block, scripts and the driver are in the element's frame."""

    def __init__(self, browser: Browser, index: int) -> None:
        target = (browser.snapshot or take_snapshot(browser)).targets.get(index)
        if target is None:
            raise ActionError(f"Element [{index}] is not on the page")
        self.browser, self.index, self.target = browser, index, target

    def __enter__(self) -> tuple[WebElement, ActionTarget]:
        try:
            return self._find(self.target) or self._find_like(), self.target
        except BaseException:
            self._leave()
            raise

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _find(self, target: ActionTarget) -> WebElement | None:
        """Enters the frames of a target; returns its element, or None if that is gone."""
        for uid in target.frames:
            frame = self.browser.script(page_scripts.FIND, uid)
            if frame is None:
                raise ActionError(f"The frame of element [{self.index}] is gone")
            self.browser.call(self.browser.driver.switch_to.frame, frame)
            self.browser.enter_frame(frame)
        return self.browser.script(page_scripts.FIND, target.uid, target.document)

    def _leave(self) -> None:
        for _ in self.target.frames:
            self.browser.leave_frame()
        if self.target.frames:
            self.browser.call(self.browser.driver.switch_to.default_content)

    def _find_like(self) -> WebElement:
        """Finds what a page has put in the place of an element that is gone, by all that identifies it."""
        self._leave()
        now = take_snapshot(self.browser, peek=True)
        alike = [one for one in now.targets.values() if one.looks_like(self.target)]
        if not alike:
            raise ActionError(f"Element [{self.index}] is gone")
        element = self._find(min(alike, key=lambda one: math.dist(one.box, self.target.box)))
        if element is None:
            raise StaleElementReferenceException(f"element [{self.index}] was replaced again")
        return element


def page_gone(index: int | None = None) -> str:
    """The message about an action whose page is not open any more."""
    page = f"The page that [{index}] was on" if index else "The page that this was meant for"
    return f"{page} has gone; look again"


def file_folder(context: ActionContext) -> FileFolder:
    """Returns the episode's file folder. Raises ActionError if the episode has none."""
    if context.files is None:
        raise ActionError("There is no file folder")
    return context.files
