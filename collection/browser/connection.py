"""One WebDriver session: its commands, and their errors and time-outs.

Local browsers run in a process session of their own and talk to their driver through a pipe, so they exit
with the driver even if this process is killed.
"""

from __future__ import annotations

import abc
import contextlib
import time
from collections.abc import Callable
from typing import Any, Self, TypeVar

import urllib3.exceptions
from selenium.common.exceptions import (
    InvalidSessionIdException,
    NoAlertPresentException,
    NoSuchWindowException,
    SessionNotCreatedException,
    TimeoutException,
    UnexpectedAlertPresentException,
    WebDriverException,
)
from selenium.webdriver.remote.webdriver import WebDriver

from collection.browser.config import BrowserConfig, BrowserLostError, PageError, first_line
from collection.browser.driver import DriverProcess
from collection.browser.guard.guard import Guard
from collection.browser.guard.proxy import ProxyLostError
from collection.browser.processes import kill_busy_renderers, memory_mb, reap_orphans, session_members

T = TypeVar("T")

# Messages for a lost browser; for a node killed behind a grid, they are generic.
_LOST = (
    "chrome not reachable",
    "disconnected",
    "existing session",
    "session deleted",
    "invalid session",
    "unable to find session",
)
MAX_DIALOG_CHARS = 200
# dialogs.js limits a document to a few dialogs, and the driver may report each of them several times.
_MAX_DIALOG_REPORTS = 24


class DriverConnection(abc.ABC):
    """A driver with its browser; closed by `with` or `close()`.

    Attributes:
      dialogs: texts of dismissed alerts, confirms and prompts that the agent has not seen yet.
      accepted_dialogs: texts of those that were accepted.
      accept_dialogs: accept dialogs that a call opens.
      guard: restricts the browser; None for no restriction.

    Raises:
      UserError: Chromium or its driver is missing or does not start.
      BrowserLostError: from every method, once the browser is gone.
    """

    def __init__(self, config: BrowserConfig, guard: Guard | None = None) -> None:
        self.config = config
        self.guard = guard
        self.dialogs: list[str] = []
        self.accepted_dialogs: list[str] = []
        self.accept_dialogs = False
        self._born = time.monotonic()
        self._calls = 0
        self._recovering = False
        reap_orphans()
        self._process = DriverProcess(config, guard.flags if guard else ())
        self._driver = self._process.driver
        if guard is not None and self._process.port:
            guard.protect(self._process.port)
        if guard is not None and guard.watches:
            self._watch(guard)

    def _watch(self, guard: Guard) -> None:
        """Lets the guard judge the browser's documents, before any page is opened."""
        try:
            port, url = self._process.devtools()
            guard.protect(port)
            guard.watch(url)
        except ProxyLostError as error:
            self._process.end()
            raise BrowserLostError(f"the browser's documents cannot be watched: {error}") from error
        except BaseException:
            self._process.end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the browser, its driver and all their processes, and removes the profile."""
        if not self._process.pid:
            with contextlib.suppress(WebDriverException, urllib3.exceptions.HTTPError, OSError):
                self._driver.quit()
        self._process.end()

    @property
    def driver(self) -> WebDriver:
        return self._driver

    @property
    def profile(self) -> str:
        """Folder with all files of a local browser and its driver; empty on a grid."""
        return self._process.profile

    @property
    def process_ids(self) -> list[int]:
        """Process ids of a local browser, its driver first; empty on a grid."""
        return session_members(self._process.pid) if self._process.pid else []

    @property
    def age_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._born

    def memory_mb(self) -> float:
        """Returns the memory of a local browser in MB, all processes together; 0 on a grid."""
        return memory_mb(self._process.pid) if self._process.pid else 0.0

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Calls WebDriver; if a dialog interferes, adds its text to `dialogs` and repeats the call.

        Raises:
          PageError: the page keeps opening dialogs, or its process has crashed.
          BrowserLostError: the browser or its driver is gone.
        """
        self._calls += 1
        previous = None
        # The driver has dismissed the dialog when it reports it, so the same call can be repeated.
        for _ in range(_MAX_DIALOG_REPORTS):
            try:
                result = function(*args)
                if self.accept_dialogs:
                    self._accept_dialog()
                return result
            except UnexpectedAlertPresentException as error:
                dialog = self.redact(error.alert_text or "")[:MAX_DIALOG_CHARS]
                # The driver may report a dialog again while it closes.
                self.dialogs += [dialog] * (dialog != previous)
                previous = dialog
            except NoSuchWindowException as error:
                raise PageError("The page has closed its window") from error
            except (InvalidSessionIdException, SessionNotCreatedException) as error:
                raise BrowserLostError(first_line(error)) from error
            except urllib3.exceptions.ReadTimeoutError as error:
                # A page that hangs while it handles a click or a key blocks the driver for ever.
                if not self._process.pid or not kill_busy_renderers(self.process_ids):
                    raise BrowserLostError("the browser's driver does not answer") from error
                self._recover(self._replace_tab, error)
                raise PageError("The page does not respond; it was closed") from error
            except (urllib3.exceptions.HTTPError, ConnectionError) as error:
                raise BrowserLostError(f"the browser's driver is gone ({type(error).__name__})") from error
            except TimeoutException as error:
                self._recover(self._timed_out, error)
                raise
            except WebDriverException as error:
                if "tab crashed" in (error.msg or "").lower():
                    self._recover(self._replace_tab, error)
                    raise PageError("The page has crashed; it was closed") from error
                if any(sign in (error.msg or "").lower() for sign in _LOST):
                    raise BrowserLostError(first_line(error)) from error
                raise
        raise PageError("The page keeps opening dialogs")

    def _accept_dialog(self) -> None:
        """Accepts the dialog that is open, if there is one."""
        with contextlib.suppress(NoAlertPresentException):
            dialog = self._driver.switch_to.alert
            text = dialog.text
            dialog.accept()
            self.accepted_dialogs.append(self.redact(text)[:MAX_DIALOG_CHARS])

    def redact(self, text: str) -> str:
        """Returns the text without secrets; to be called before truncation, which could split a secret."""
        return self.guard.redactor.text(text) if self.guard else text

    def _recover(self, repair: Callable[[], None], error: Exception) -> None:
        """Repairs the current tab. A browser that does not answer during the repair counts as lost."""
        # The repair itself uses `call`: a second failure must not start another repair.
        if self._recovering:
            raise BrowserLostError(f"the browser does not answer: {first_line(error)}") from error
        self._recovering = True
        try:
            repair()
        finally:
            self._recovering = False

    @abc.abstractmethod
    def _timed_out(self) -> None:
        """Handles a time-out of the page; raises PageError if the page does not respond at all."""

    @abc.abstractmethod
    def _replace_tab(self) -> None:
        """Replaces the current tab by an empty one."""

    def script(self, code: str, *args: Any) -> Any:
        """Runs JavaScript in the current frame and returns its value."""
        return self.call(self._driver.execute_script, code, *args)

    def cdp(self, command: str, **params: Any) -> dict[str, Any]:
        """Sends a DevTools command to the current tab; returns its result."""
        return self.call(self._driver.execute, "executeCdpCommand", {"cmd": command, "params": params})[
            "value"
        ]
