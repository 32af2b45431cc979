"""One WebDriver session: what is said to it, and how it ends without leaving a process behind.

Local browsers run in a session (process group family) of their own and speak to their driver
through a pipe, so they end with the driver even when this process is killed.
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
    NoSuchWindowException,
    SessionNotCreatedException,
    TimeoutException,
    UnexpectedAlertPresentException,
    WebDriverException,
)
from selenium.webdriver.remote.webdriver import WebDriver

from collection.browser.config import BrowserConfig
from collection.browser.driver import DriverProcess
from collection.browser.errors import BrowserLostError, PageError, first_line
from collection.browser.guard.guard import Guard
from collection.browser.processes import kill_busy_renderers, memory_mb, reap_orphans, session_members

T = TypeVar("T")

# What a lost browser looks like; a node killed behind a grid gives only generic messages.
_LOST = (
    "chrome not reachable",
    "disconnected",
    "existing session",
    "session deleted",
    "invalid session",
    "unable to find session",
)
# Longer texts of a page are cut where they are told.
DIALOG_CHARS = 200
# A call gets through a document's dialogs (see dialogs.js), each of which the driver may tell of a few times.
_TRIES = 24


class Connection(abc.ABC):
    """A driver with its browser; closed by `with` or `close()`.

    Attributes:
      dialogs: texts of alerts, confirms and prompts dismissed and not yet told to the agent.
      guard: what the browser is held by; None: nothing.

    Raises:
      UserError: Chromium or its driver is missing or does not start.
      BrowserLostError: from every method, once the browser is gone.
    """

    def __init__(self, config: BrowserConfig, guard: Guard | None = None) -> None:
        self.config = config
        self.guard = guard
        self.dialogs: list[str] = []
        self._born = time.monotonic()
        self._calls = 0
        self._recovering = False
        reap_orphans()
        self._process = DriverProcess(config, guard.flags if guard else ())
        self._driver = self._process.driver
        if guard is not None and self._process.port:
            guard.protect(self._process.port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the browser, its driver and every process they started, and removes the profile."""
        if not self._process.pid:
            with contextlib.suppress(WebDriverException, urllib3.exceptions.HTTPError, OSError):
                self._driver.quit()
        self._process.end()

    @property
    def driver(self) -> WebDriver:
        return self._driver

    @property
    def profile(self) -> str:
        """Folder of a local browser with all that it and its driver write; empty on a grid."""
        return self._process.profile

    @property
    def process_ids(self) -> list[int]:
        """Every process of a local browser, its driver first; none on a grid."""
        return session_members(self._process.pid) if self._process.pid else []

    @property
    def age_s(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._born

    def memory_mb(self) -> float:
        """Memory of a local browser's own, all processes together; 0 on a grid."""
        return memory_mb(self._process.pid) if self._process.pid else 0.0

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Calls WebDriver; a dialog in the way is dismissed, kept in `dialogs`, and the call repeated.

        Raises:
          PageError: the page keeps opening dialogs, or its process has crashed.
          BrowserLostError: the browser or its driver is gone.
        """
        self._calls += 1
        told = None
        for _ in range(_TRIES):
            try:
                return function(*args)
            except UnexpectedAlertPresentException as error:
                dialog = self.redact(error.alert_text or "")[:DIALOG_CHARS]
                # The driver may tell of a dialog again while it goes.
                self.dialogs += [dialog] * (dialog != told)
                told = dialog
            except NoSuchWindowException as error:
                raise PageError("The page has closed its window") from error
            except (InvalidSessionIdException, SessionNotCreatedException) as error:
                raise BrowserLostError(first_line(error)) from error
            except urllib3.exceptions.ReadTimeoutError as error:
                # The driver waits for ever for a page that hangs while it handles a click or a key.
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

    def redact(self, text: str) -> str:
        """The text without secrets; to be called before a text is cut, which might cut a secret."""
        return self.guard.redactor.text(text) if self.guard else text

    def _recover(self, mend: Callable[[], None], error: Exception) -> None:
        """Mends the current tab. A browser that does not answer even then is lost."""
        if self._recovering:
            raise BrowserLostError(f"the browser does not answer: {first_line(error)}") from error
        self._recovering = True
        try:
            mend()
        finally:
            self._recovering = False

    @abc.abstractmethod
    def _timed_out(self) -> None:
        """Called when the page did not answer in time; raises PageError if it does not do so at all."""

    @abc.abstractmethod
    def _replace_tab(self) -> None:
        """Puts an empty tab in the place of the current one."""

    def script(self, code: str, *args: Any) -> Any:
        """Runs JavaScript in the current frame and returns its value."""
        return self.call(self._driver.execute_script, code, *args)

    def cdp(self, command: str, **params: Any) -> dict[str, Any]:
        """One DevTools command to the current tab."""
        return self.call(self._driver.execute, "executeCdpCommand", {"cmd": command, "params": params})[
            "value"
        ]
