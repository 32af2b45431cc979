"""A browser's tabs by WebDriver and DevTools: commands with their errors, scripts, checks on all windows."""

from __future__ import annotations

import contextlib
import re
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

from collection.browser.chromium import DriverProcess, kill_busy_renderers
from collection.browser.config import (
    BrowserConfig,
    BrowserLostError,
    PageCrashedError,
    PageError,
    TabGoneError,
    first_line,
)
from collection.browser.devtools import DevTools, DocumentGoneError, Fields, Frame, Response
from collection.browser.guard.guard import Guard
from collection.browser.guard.policy import PolicyVerdict
from collection.browser.page import Snapshot, squeeze
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Incident, IncidentKind, Tab

T = TypeVar("T")

# Messages for a lost browser.
_LOST = ("chrome not reachable", "disconnected", "session deleted", "invalid session")
# The driver runs no command while a dialog is open, and a page may open one after the other.
_DIALOG_WAIT_S, _DIALOG_POLL_S = 10.0, 0.002
_FRAME_PLACE = "return rmsweb.placeOf(arguments[0]);"
_DOCUMENT = "return performance.timeOrigin;"
# A navigation may destroy a document between two commands.
_MAX_ATTEMPTS = 3
# Targets of type "page" that belong to the browser's own UI: toolbars, bubbles and panels, and the start page
# of a first tab that appears late. Neither pages nor keys can open them.
_BROWSER_UI = re.compile(r"chrome://[a-z-]+\.top-chrome(?:[/?#]|$)")
_START_PAGE = re.compile(r"chrome://(?:newtab|new-tab-page[a-z-]*)(?:[/?#]|$)")
_EMPTY = {"url": "about:blank", "title": ""}
_PROBE_S = 3.0  # Time for `window.stop()` to answer after a time-out; a page that hangs never answers.
_POLL_S = 0.05
_START_S = 10.0  # Least time for the first page of a browser.
_MAX_SWITCHES = 20  # Tabs that close while the browser switches to them.
_MEMORY_INTERVAL_S = 1.0  # Reading the memory of all processes takes about 1 ms.
MAX_DIALOG_CHARS = 200
_MAX_URL_CHARS, _MAX_TITLE_CHARS, _MAX_DETAIL_CHARS, _SHORT_URL_CHARS = 2000, 300, 500, 300
# A page can cause any number of incidents; the first ones are enough for the record.
_MAX_INCIDENTS = 30


class Tabs:
    """A driver with its browser; closed by `with` or `close()`.

    Attributes:
      dialogs: "accepted" or "dismissed", and the text, of alerts, confirms and prompts that the agent has not
        seen yet, a few of each document.
      accept_dialogs: accept dialogs that open.
      document: creation time of the document that scripts outside of frames run in alone; None is any.
      guard: restricts the browser; None for no restriction.
      snapshot: the snapshot that the agent was shown last; actions refer to its tab, document and indices,
        also when the browser is at another tab or document since.
      latest: the last snapshot of any kind.
      notices: texts about closed windows that the agent has not seen yet.
      pointer: where the mouse is in the window; None before it was used.

    Raises:
      UserError: Chromium or its driver is missing or does not start.
      BrowserLostError: from every method, once the browser is gone.
    """

    def __init__(self, config: BrowserConfig, guard: Guard | None = None) -> None:
        self.config, self.guard = config, guard
        self.dialogs: list[tuple[str, str]] = []
        self.accept_dialogs = False
        self.document: float | None = None
        self.snapshot: Snapshot | None = None
        self.latest: Snapshot | None = None
        self.notices: list[str] = []
        self.pointer: tuple[float, float] | None = None
        self._incidents: list[Incident] = []
        self._tab_ids: dict[str, str] = {}
        self._prepared: set[str] = set()
        self._pages: dict[str, dict[str, Any]] = {}
        self._closed: set[str] = set()
        self._frames: list[tuple[Frame, WebElement]] = []
        self._page_opened = self._recovering = False
        self._calls, self._swept = 0, -1
        self._born = time.monotonic()
        self._memory_checked = 0.0
        self._process = DriverProcess(config, guard.flags if guard else ())
        self._driver = self._process.driver
        try:
            self._devtools = DevTools(self._process.devtools_url, config.script_seconds, self._dialog_opened)
            if guard is not None:
                guard.protect(*self._process.ports)
                guard.watch(self._process.devtools_url)  # Before any page is opened.
            self._open_first_tab()
        except (TimeoutError, WebDriverException, DocumentGoneError, urllib3.exceptions.HTTPError) as error:
            self._process.end()
            raise BrowserLostError(
                f"the browser does not answer after its start: {first_line(error)}"
            ) from error
        except OSError as error:
            self._process.end()
            raise UserError(f"no DevTools connection to the browser: {error}") from error
        except BaseException:
            self._process.end()
            raise

    def _open_first_tab(self) -> None:
        # The first page waits for the browser's processes to start, which a busy machine delays.
        self._driver.set_page_load_timeout(max(self.config.page_load_seconds, _START_S))
        self._driver.set_script_timeout(self.config.script_seconds)
        # The driver starts on the first target that it sees; on a busy machine that may be a browser UI page.
        self._current = self._driver.current_window_handle
        pages = [info for info in self.call(self._devtools.targets) if info["type"] == "page"]
        tabs = [info["targetId"] for info in pages if not _BROWSER_UI.match(info["url"])]
        if tabs and self._current not in tabs:
            self._current = tabs[0]
            self.call(self._driver.switch_to.window, self._current)
        # A spare window, unknown to all pages, from which a page that hangs can be closed.
        self._spare = self.call(self._devtools.open_tab, True)
        self._closed.add(self._spare)
        # Leaves the start page before any task: it belongs to the browser and makes requests of its own.
        self._driver.get("about:blank")
        self._driver.set_page_load_timeout(self.config.page_load_seconds)
        self._prepare_tab()
        self._tab_id(self._current)

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
        return self._process.members

    @property
    def age_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._born

    def memory_mb(self) -> float:
        """Returns the memory of the browser in MB, all processes together."""
        return self._process.memory_mb

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
                self._recover(self._stop_loading, error)
                raise
            except WebDriverException as error:
                if "tab crashed" in (error.msg or "").lower():
                    self._recover(self._replace_tab, error)
                    raise PageCrashedError from error
                if any(sign in (error.msg or "").lower() for sign in _LOST):
                    raise BrowserLostError(first_line(error)) from error
                raise
        raise PageError("The page keeps opening dialogs")

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

    def _stop_loading(self) -> None:
        """Stops loading after a time-out; replaces a page that does not even respond to that."""
        try:
            self._driver.set_page_load_timeout(_PROBE_S)
            self._driver.execute("executeCdpCommand", {"cmd": "Page.stopLoading", "params": {}})
        except UnexpectedAlertPresentException:
            pass  # It does something.
        except TimeoutException:
            self._replace_tab()
            raise PageError("The page does not respond; it was closed") from None
        finally:
            self._driver.set_page_load_timeout(self.config.page_load_seconds)

    def _replace_tab(self) -> None:
        """Replaces the current tab, which may hang or have crashed, by an empty one."""
        pages: dict[str, dict[str, Any]] = {self._current: {}}
        self._close_page(pages, self._current)
        self.switch_handle(next(iter(pages)))

    def redact(self, text: str) -> str:
        """Returns the text without secrets; to be called before truncation, which could split a secret."""
        return self.guard.redactor.text(text) if self.guard else text

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

    def run(self, name: str, *args: Any) -> Any:
        """Runs a function of actions.js as `script` does."""
        return self.script(f"return rmsweb.actions.{name}(...arguments);", *args)

    def page_script(self, code: str, *args: Any) -> Any:
        """Runs JavaScript in the page's own world, in the driver's current frame, and returns its value.

        Only for code that is the page's own or the agent's: the page can see it and change what it does.
        """
        return self.call(self._driver.execute_script, code, *args)

    def cdp(self, command: str, **params: Any) -> dict[str, Any]:
        """Sends a DevTools command to the current tab; returns its result.

        The driver waits for a page that loads before it sends the command.
        """
        parts = {"cmd": command, "params": params}
        return Fields.of(self.call(self._driver.execute, "executeCdpCommand", parts)["value"])

    def visit(self, url: str, served: Response | None = None, referrer: str = "") -> None:
        """Opens an address in the current tab without waiting for its load, as `DevTools.navigate`."""
        self._page_opened = True
        self._frames.clear()
        self.call(self._devtools.navigate, self._current, url, served, referrer)

    def keep_documents(self, keep: bool = True) -> None:
        """From now on `source` has the pages that are opened, or none."""
        self.call(self._devtools.keep_documents, keep)

    def source(self, status: int) -> Response | None:
        """Returns the response that the current page is made of, as `DevTools.source`."""
        return self.call(self._devtools.source, self._current, status)

    def point(self, at: tuple[float, float]) -> None:
        """Moves the mouse in the window."""
        self._frames.clear()
        self.mouse(at, times=0)

    def ask(self, command: str, **params: Any) -> dict[str, Any]:
        """Sends a DevTools command to the current tab, as `cdp`, but does not wait for a page that loads."""
        return self.call(lambda: self._devtools.ask(self._current, command, **params))

    def enter_frame(self, element: WebElement) -> None:
        """Makes the frame in a frame element the current one; the driver stays where it is.

        Raises:
          NoSuchFrameException: the element has no frame any more.
        """
        self._frames.append((self.call(lambda: self._devtools.child_frame(self._frame, element.id)), element))

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

    def wheel(self, at: tuple[float, float], pixels: float) -> None:
        """Turns the mouse wheel at a point of the window, down if positive."""
        x, y = at
        self.ask("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=pixels)
        self.pointer = at

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
        self.pointer = points[-1]

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
                # A document of another site has another process, so the frames are entered again.
                frame, frames = self._devtools.main_frame(self._current), []
                for _, owner in self._frames:
                    frame = self._devtools.child_frame(frame, owner.id)
                    frames.append((frame, owner))
                self._frames = frames
        raise NoSuchFrameException("the document is gone")

    def _elements(self, value: Any, found: Sequence[WebElement]) -> Any:
        """Returns a script's value with its elements."""
        if isinstance(value, list):
            return [self._elements(one, found) for one in value]
        if not isinstance(value, dict):
            return value
        if value.keys() == {"node"}:
            return found[value["node"]]
        return {key: self._elements(one, found) for key, one in value.items()}

    def _dialog_opened(self, kind: str, text: str, report: bool) -> bool:
        """Decides about a dialog, in a thread of its own; returns True to accept it."""
        if kind == "beforeunload":
            return True  # Leaves the page.
        if report:
            answer = "accepted" if self.accept_dialogs else "dismissed"
            self.dialogs.append((answer, squeeze(self.redact(text)[:MAX_DIALOG_CHARS])))
        return self.accept_dialogs

    def shows(self, snapshot: Snapshot) -> bool:
        """Returns True if the browser is at the tab and the document of a snapshot."""
        return self._current == snapshot.target and self.script(_DOCUMENT) == snapshot.document

    def sweep(self) -> None:
        """Checks the addresses of all windows in one round trip; to be called before and after every action.

        Closes windows at refused addresses (the last one is emptied instead) and windows beyond `max_tabs`.
        Afterwards the current tab exists.
        """
        self._add_notices(self._refused_documents())
        pages = self._list_pages()
        for handle, info in list(pages.items()):
            # A window has no address until its first document arrives.
            verdict = self.guard.check(info["url"]) if self.guard and info["url"] else None
            if verdict is not None and not verdict.allowed:
                # Before any page was opened, this is the browser's start page and no incident.
                if self._page_opened or not info["url"].startswith("chrome:"):
                    self._refused(info["url"], verdict)
                    self.notices.append(f"Window closed: {verdict.detail}")
                self._close_page(pages, handle)
        # Pages are oldest first, so the newest windows are closed.
        extra = list(pages)[self.config.max_tabs :]
        for handle in extra:
            self.add_incident(
                "popup",
                f"{self.short_url(pages[handle]['url'])}: closed, {self.config.max_tabs} tabs are open",
            )
            self._close_page(pages, handle)
        if extra:
            self.notices.append(f"{len(extra)} new windows closed: at most {self.config.max_tabs} tabs")
        self._pages = pages
        if self._current not in pages:
            self._switch_to_newest()
        # Here, because every step sweeps.
        self._check_memory()
        self._swept = self._calls

    def sweep_if_needed(self) -> None:
        """Sweeps, unless the browser has received no command since the last sweep."""
        if self._swept != self._calls:
            self.sweep()

    def tabs(self, snapshot: Snapshot | None = None) -> tuple[Tab, ...]:
        """Returns the open tabs, oldest first. Ids follow the order of appearance, so that runs repeat.

        Args:
          snapshot: what its tab shows.
        """
        self.sweep()
        found = {handle: (info["url"], info["title"]) for handle, info in self._pages.items()}
        # The browser's error page has an address of its own, which says less.
        if snapshot is not None and snapshot.target in found and not snapshot.url.startswith("chrome-error:"):
            found[snapshot.target] = snapshot.url, snapshot.title
        return tuple(
            Tab(
                tab_id=self._tab_id(handle),
                # Redacted first: part of a secret would not be found.
                url=self.redact(url or "about:blank")[:_MAX_URL_CHARS],
                title=self.redact(title)[:_MAX_TITLE_CHARS],
            )
            for handle, (url, title) in found.items()
        )

    def handles(self) -> list[str]:
        """Returns the WebDriver handles of the open tabs, oldest first."""
        self.sweep_if_needed()
        return list(self._pages)

    @property
    def current_tab(self) -> str:
        return self._tab_id(self._current)

    @property
    def known_tabs(self) -> int:
        """Number of tabs that there have been; the next one gets the next id."""
        return len(self._tab_ids)

    @property
    def current_handle(self) -> str:
        """WebDriver handle of the current tab."""
        return self._current

    def target_url(self, target: str) -> str:
        """Returns the address of a tab, or of a frame with a process of its own; "" if there is none."""
        targets = self.call(self._devtools.targets)
        return next((one["url"] for one in targets if one["targetId"] == target), "")

    def switch_tab(self, tab_id: str) -> bool:
        """Switches to a tab; returns False if there is no tab with that id."""
        handle = next((handle for handle in self.handles() if self._tab_id(handle) == tab_id), None)
        if handle is None:
            return False
        return handle == self._current or self.switch_handle(handle)

    def switch_handle(self, handle: str) -> bool:
        """Switches to a tab; returns False if it has closed.

        A tab whose first document does not arrive in time is closed.
        """
        # The driver would wait for the document without a limit.
        if not self._first_document_arrives(handle):
            self._close_page(self._list_pages(), handle)
            self.notices.append(f"Window closed: no answer in {self.config.page_load_seconds:g} s")
            return False
        try:
            self.call(self._driver.switch_to.window, handle)
            self._current = handle
            self._frames.clear()
            if self.config.headed:
                self.cdp("Page.bringToFront")  # A window draws no hidden tab.
            self._prepare_tab()
        except TabGoneError:
            return False
        return True

    def _switch_to_newest(self) -> None:
        """Switches to the newest tab whose first document arrives."""
        for _ in range(_MAX_SWITCHES):
            self._pages = self._list_pages()
            if self.switch_handle(list(self._pages)[-1]):
                return
        raise BrowserLostError("the browser's tabs close as fast as they are opened")

    def _first_document_arrives(self, handle: str) -> bool:
        end = time.monotonic() + self.config.page_load_seconds
        while self._list_pages().get(handle, {}).get("url") == "":
            if time.monotonic() > end:
                return False
            time.sleep(_POLL_S)
        return True

    def open_tab(self) -> None:
        """Opens an empty tab and switches to it. Raises PageError if there are `max_tabs` already."""
        if len(self.handles()) >= self.config.max_tabs:
            raise PageError(f"There are {self.config.max_tabs} tabs already; close one first")
        self.switch_handle(self.call(self._devtools.open_tab))

    def close_tab(self) -> None:
        """Closes the current tab and switches to the newest other one; the last tab is only emptied."""
        self._close_page(self._list_pages(), self._current)
        self._switch_to_newest()

    def add_incident(self, kind: IncidentKind, detail: str) -> None:
        """Records an incident for `take_incidents`."""
        detail = self.redact(" ".join(detail.split()))[:_MAX_DETAIL_CHARS]
        self._incidents.append(Incident(kind=kind, detail=detail))

    def short_url(self, url: str) -> str:
        """Returns an address without secrets, short enough that the text after it is not cut off."""
        return self.redact(url)[:_SHORT_URL_CHARS]

    def take_incidents(self) -> tuple[Incident, ...]:
        """Returns the incidents since the last call: refusals, closed popups, downloads and dialogs."""
        found, self._incidents = self._incidents, []
        if self._live_guard:
            found += self._live_guard.incidents()
        if len(found) > _MAX_INCIDENTS:
            rest = len(found) - _MAX_INCIDENTS
            found = [
                *found[:_MAX_INCIDENTS],
                Incident(kind=found[-1].kind, detail=f"and {rest} more incidents"),
            ]
        return tuple(found)

    def _list_pages(self) -> dict[str, dict[str, Any]]:
        """Returns the targets of all tabs by handle, oldest first; the current one may be gone."""
        pages = {
            info["targetId"]: info
            for info in self.call(self._devtools.targets)
            if info["type"] == "page"
            and not info.get("subtype")
            and info["targetId"] not in self._closed
            and not self._is_browser_ui(info)
        }
        if not pages:  # The last page has closed itself.
            pages[self.call(self._devtools.open_tab)] = dict(_EMPTY)
        return {handle: pages[handle] for handle in sorted(pages, key=self._tab_id)}

    def _is_browser_ui(self, info: dict[str, Any]) -> bool:
        """Returns True for the browser's own UI and for a target without address; known tabs never are."""
        # A window with an opener was opened by a page.
        if info["targetId"] in self._tab_ids or info.get("openerId"):
            return False
        url = info["url"]
        return not url or _BROWSER_UI.match(url) is not None or _START_PAGE.match(url) is not None

    def _close_page(self, pages: dict[str, dict[str, Any]], handle: str) -> None:
        """Closes a tab and removes it from `pages`; replaces the last one by an empty tab."""
        if handle == self._current:
            # The driver runs no command in a tab that has closed.
            self.call(self._driver.switch_to.window, self._spare)
        if list(pages) == [handle]:
            empty = self.call(self._devtools.open_tab)
            pages[empty] = dict(_EMPTY)
            # The empty tab takes over the id, so the agent still has the tab that it knows.
            self._tab_ids[empty] = self._tab_ids.pop(handle, self._tab_id(handle))
        self.call(self._devtools.close_tab, handle)
        pages.pop(handle, None)
        self._closed.add(handle)

    def _add_notices(self, refused: list[tuple[str, str]]) -> None:
        """Adds notices about documents that the guard has refused; their windows have kept their pages."""
        self.notices += [f"Not opened: {self.short_url(url)}: {detail}" for url, detail in refused]

    def _refused_documents(self) -> list[tuple[str, str]]:
        return self._live_guard.refused_documents() if self._live_guard else []

    @property
    def _live_guard(self) -> Guard | None:
        """The guard. Raises BrowserLostError once it lets nothing through any more."""
        if self.guard is not None and not self.guard.alive:
            raise BrowserLostError("the browser's guard has lost its connection to the browser")
        return self.guard

    def _refused(self, url: str, verdict: PolicyVerdict) -> None:
        assert self.guard is not None
        self.guard.record.add("refused", url, verdict.detail, verdict.reason.value)

    def _check_memory(self) -> None:
        """Raises BrowserLostError for a browser that uses too much memory, before the machine runs out."""
        now = time.monotonic()
        if now - self._memory_checked < _MEMORY_INTERVAL_S:
            return
        self._memory_checked = now
        used = self._process.memory_mb
        if used > self.config.memory_mb:
            raise BrowserLostError(f"the browser uses {used:.0f} MB, more than {self.config.memory_mb}")

    def _prepare_tab(self) -> None:
        if self._current in self._prepared:
            return
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            width=self.config.width,
            height=self.config.height,
            # One CSS pixel is one pixel of the screenshot, as boxes and clicks assume.
            deviceScaleFactor=1,
            mobile=False,
            # A window's screen is larger by the browser's own bars.
            screenWidth=self.config.screen_size[0],
            screenHeight=self.config.screen_size[1],
        )
        self._prepared.add(self._current)

    def _tab_id(self, handle: str) -> str:
        if handle not in self._tab_ids:
            self._tab_ids[handle] = f"{len(self._tab_ids) + 1:04d}"
        return self._tab_ids[handle]
