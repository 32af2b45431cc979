"""One WebDriver session: its commands, and their errors and time-outs.

Local browsers run in a process session of their own and talk to their driver through a pipe, so they exit
with the driver even if this process is killed.
"""

from __future__ import annotations

import abc
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

import urllib3.exceptions
from selenium.common.exceptions import (
    InvalidSessionIdException,
    NoSuchFrameException,
    NoSuchWindowException,
    SessionNotCreatedException,
    TimeoutException,
    UnexpectedAlertPresentException,
    WebDriverException,
)
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement

from collection.browser.config import (
    BrowserConfig,
    BrowserLostError,
    PageCrashedError,
    PageError,
    TabGoneError,
    first_line,
)
from collection.browser.devtools import DevTools, Dialog, Frame
from collection.browser.devtools_connection import DocumentGoneError, Fields
from collection.browser.driver import DriverProcess
from collection.browser.guard.guard import Guard
from collection.browser.processes import kill_busy_renderers, memory_mb, reap_orphans, session_members
from rmsweb_jax.errors import UserError

T = TypeVar("T")

# Messages for a lost browser.
_LOST = (
    "chrome not reachable",
    "disconnected",
    "session deleted",
    "invalid session",
)
MAX_DIALOG_CHARS = 200
# The driver runs no command while a dialog is open, and a page may open one after the other.
_DIALOG_WAIT_S, _DIALOG_POLL_S = 10.0, 0.002
_FRAME_PLACE = "return rmsweb.placeOf(arguments[0]);"
# A navigation may destroy a document between two commands.
_MAX_ATTEMPTS = 3


class DriverConnection(abc.ABC):
    """A driver with its browser; closed by `with` or `close()`.

    Attributes:
      dialogs: texts of dismissed alerts, confirms and prompts that the agent has not seen yet, a few of each
        document.
      accepted_dialogs: texts of those that were accepted.
      accept_dialogs: accept dialogs that open.
      document: creation time of the document that scripts outside of frames run in alone; None is any.
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
        self.document: float | None = None
        self._born = time.monotonic()
        self._calls = 0
        self._recovering = False
        reap_orphans()
        self._process = DriverProcess(config, guard.flags if guard else ())
        self._driver = self._process.driver
        self._current = ""
        self._frames: list[tuple[Frame, WebElement]] = []
        try:
            self._devtools = DevTools(self._process.devtools_url, config.script_seconds, self._dialog_opened)
            if guard is not None:
                guard.protect(*self._process.ports)
            if guard is not None and guard.watches:
                # Before any page is opened.
                guard.watch(self._process.devtools_url)
        except (TimeoutError, TimeoutException, DocumentGoneError) as error:
            self._process.end()
            raise BrowserLostError("the browser does not answer after its start") from error
        except OSError as error:
            self._process.end()
            raise UserError(f"no DevTools connection to the browser: {error}") from error
        except BaseException:
            self._process.end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the browser, its driver and all their processes, and removes the profile."""
        self._devtools.close()
        self._process.end()

    @property
    def driver(self) -> WebDriver:
        return self._driver

    @property
    def profile(self) -> str:
        """Folder with all files of the browser and its driver."""
        return self._process.profile

    @property
    def process_ids(self) -> list[int]:
        """Process ids of the browser, its driver first."""
        return session_members(self._process.pid)

    @property
    def age_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._born

    def memory_mb(self) -> float:
        """Returns the memory of the browser in MB, all processes together."""
        return memory_mb(self._process.pid)

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Calls WebDriver or DevTools; if a dialog interferes, repeats the call.

        Raises:
          TabGoneError: the tab has closed.
          PageCrashedError: the process of the page has crashed.
          PageError: the page keeps opening dialogs, or does not respond.
          NoSuchFrameException: the document or its frame has gone.
          BrowserLostError: the browser or its driver is gone.
        """
        self._calls += 1
        deadline = time.monotonic() + _DIALOG_WAIT_S
        while time.monotonic() < deadline:
            try:
                return function(*args)
            except UnexpectedAlertPresentException:
                # The driver has not begun, so the same call can be repeated. The dialog is being answered.
                time.sleep(_DIALOG_POLL_S)
            except NoSuchWindowException as error:
                raise TabGoneError from error
            except DocumentGoneError as error:
                raise NoSuchFrameException(f"the document is gone: {error}") from error
            except (InvalidSessionIdException, SessionNotCreatedException) as error:
                raise BrowserLostError(first_line(error)) from error
            except urllib3.exceptions.ReadTimeoutError as error:
                # A page that hangs while it handles a click or a key blocks the driver for ever.
                if not kill_busy_renderers(self.process_ids):
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
                    raise PageCrashedError from error
                if any(sign in (error.msg or "").lower() for sign in _LOST):
                    raise BrowserLostError(first_line(error)) from error
                raise
        raise PageError("The page keeps opening dialogs")

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

    def script(self, code: str, *args: Any, listeners: bool = False) -> Any:
        """Runs a function body in the isolated world of the current frame and returns its value.

        The page's elements may be among the arguments and in the value; nothing else of the page is there.

        Args:
          listeners: find out first at which elements the page listens for mouse events.

        Raises:
          NoSuchFrameException: the frame is gone, or `document`.
        """
        given = [{"node": value.id} if isinstance(value, WebElement) else value for value in args]
        value, found = self.call(self._run, code, given, listeners)
        return self._elements(value, [WebElement(self._driver, one) for one in found]) if found else value

    def page_script(self, code: str, *args: Any) -> Any:
        """Runs JavaScript in the page's own world, in the driver's current frame, and returns its value.

        Only for code that is the page's own or the agent's: the page can see it and change what it does.
        """
        return self.call(self._driver.execute_script, code, *args)

    def cdp(self, command: str, **params: Any) -> dict[str, Any]:
        """Sends a DevTools command to the current tab; returns its result.

        The driver waits for a page that loads before it sends the command.
        """
        return self.call(self._cdp, command, params)

    def _cdp(self, command: str, params: dict[str, Any]) -> Fields:
        return Fields.of(
            self._driver.execute("executeCdpCommand", {"cmd": command, "params": params})["value"]
        )

    def enter_frame(self, element: WebElement) -> None:
        """Makes the frame in a frame element the current one; the driver stays where it is.

        Raises:
          NoSuchFrameException: the element has no frame any more.
        """
        self._frames.append((self.call(self._child_frame, element), element))

    def _child_frame(self, element: WebElement) -> Frame:
        return self._devtools.child_frame(self._frame, element.id)

    def leave_frame(self) -> None:
        """Returns to the parent of the current frame."""
        del self._frames[-1:]  # There is none after a tab was replaced.

    def mouse(self, *points: tuple[float, float], times: int = 1, ctrl: bool = False) -> None:
        """Presses the mouse at the first point and releases it at the last; one point makes a click.

        Args:
          points: x and y in the current frame's window, on which the mouse moves in this order.
          times: number of presses; 0 only moves the mouse to the first point.
          ctrl: the Ctrl key is held meanwhile.

        Raises:
          NoSuchFrameException: the frame is gone.
        """
        self.call(self._mouse, points, times, ctrl)

    def keys(self, press: Callable[..., Any], *args: Any) -> None:
        """Calls the driver to press keys; a tab that closes meanwhile has got them."""
        with contextlib.suppress(TabGoneError):
            self.call(press, *args)

    def _mouse(self, points: Sequence[tuple[float, float]], times: int, ctrl: bool) -> None:
        main = self._devtools.main_frame(self._current)
        outer = [main, *(frame for frame, _ in self._frames)]
        for frame, (_, owner) in reversed(list(zip(outer, self._frames, strict=False))):
            document = self.document if frame is main else None
            (left, top, scale), _ = self._devtools.run(frame, _FRAME_PLACE, [{"node": owner.id}], document)
            points = [(left + scale * x, top + scale * y) for x, y in points]
        self._devtools.mouse(main, [(round(x), round(y)) for x, y in points], times, ctrl)

    @property
    def _frame(self) -> Frame:
        return self._frames[-1][0] if self._frames else self._devtools.main_frame(self._current)

    def _run(self, code: str, args: Sequence[Any], listeners: bool) -> tuple[Any, list[str]]:
        for _ in range(_MAX_ATTEMPTS):
            # The driver waits for a page that loads before any command, here one without effect; while a
            # dialog is open it refuses.
            with contextlib.suppress(UnexpectedAlertPresentException):
                self._driver.execute("executeCdpCommand", {"cmd": "Browser.getVersion", "params": {}})
            with contextlib.suppress(DocumentGoneError):
                if listeners:
                    self._devtools.find_listeners(self._frame)
                document = None if self._frames else self.document
                return self._devtools.run(self._frame, code, args, document)
            with contextlib.suppress(DocumentGoneError):
                self._find_frames_again()
        raise NoSuchFrameException("the document is gone")

    def _find_frames_again(self) -> None:
        """Enters the current frames again: a document of another site has another process."""
        frame, frames = self._devtools.main_frame(self._current), []
        for _, owner in self._frames:
            frame = self._devtools.child_frame(frame, owner.id)
            frames.append((frame, owner))
        self._frames = frames

    def _elements(self, value: Any, found: Sequence[WebElement]) -> Any:
        """Returns a script's value with its elements."""
        if isinstance(value, list):
            return [self._elements(one, found) for one in value]
        if not isinstance(value, dict):
            return value
        if value.keys() == {"node"}:
            return found[value["node"]]
        return {key: self._elements(one, found) for key, one in value.items()}

    def _dialog_opened(self, dialog: Dialog, report: bool) -> bool:
        """Decides about a dialog, in a thread of its own; returns True to accept it."""
        if dialog.kind == "beforeunload":
            return True  # Leaves the page.
        if report:
            texts = self.accepted_dialogs if self.accept_dialogs else self.dialogs
            texts.append(self.redact(dialog.text)[:MAX_DIALOG_CHARS])
        return self.accept_dialogs
