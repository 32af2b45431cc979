"""Tabs of a browser: their order, the checks on them, and the recovery from a page that hangs."""

from __future__ import annotations

import re
import time
from typing import Any

import urllib3
from selenium.common.exceptions import (
    TimeoutException,
    UnexpectedAlertPresentException,
    WebDriverException,
)

from collection.browser.config import BrowserConfig, BrowserLostError, PageError, TabGoneError, first_line
from collection.browser.connection import DriverConnection
from collection.browser.guard.guard import Guard
from collection.browser.guard.policy import PolicyVerdict
from collection.browser.page import Snapshot
from rmsweb_jax.records.schema import Incident, IncidentKind, Tab

# Targets of type "page" that belong to the browser's own UI: toolbars, bubbles and panels, and the start page
# of a first tab that appears late. Neither pages nor keys can open them.
_BROWSER_UI = re.compile(r"chrome://[a-z-]+\.top-chrome(?:[/?#]|$)")
_START_PAGE = re.compile(r"chrome://(?:newtab|new-tab-page[a-z-]*)(?:[/?#]|$)")
_PROBE_S = 3.0  # Time for `window.stop()` to answer after a time-out; a page that hangs never answers.
_POLL_S = 0.05
_START_S = 10.0  # Least time for the first page of a browser.
_DOCUMENT = "return performance.timeOrigin;"
_MAX_SWITCHES = 20  # Tabs that close while the browser switches to them.
_MEMORY_INTERVAL_S = 1.0  # Reading the memory of all processes takes about 1 ms.
_MAX_URL_CHARS, _MAX_TITLE_CHARS, _MAX_DETAIL_CHARS, _SHORT_URL_CHARS = 2000, 300, 500, 300
# A page can cause any number of incidents; the first ones are enough for the record.
_MAX_INCIDENTS = 30


class Tabs(DriverConnection):
    """A driver connection with its tabs.

    Attributes:
      snapshot: the snapshot that the agent was shown last; actions refer to its tab, document and indices,
        also when the browser is at another tab or document since.
      latest: the last snapshot of any kind.
      notices: texts about closed windows that the agent has not seen yet.
    """

    def __init__(self, config: BrowserConfig, guard: Guard | None = None) -> None:
        super().__init__(config, guard)
        self.snapshot: Snapshot | None = None
        self.latest: Snapshot | None = None
        self.notices: list[str] = []
        self._incidents: list[Incident] = []
        self._tab_ids: dict[str, str] = {}
        self._prepared: set[str] = set()
        self._pages: dict[str, dict[str, Any]] = {}
        self._closed: set[str] = set()
        self._page_opened = False
        self._swept = -1
        self._memory_checked = 0.0
        try:
            # The first page waits for the browser's processes to start, which a busy machine delays.
            self._driver.set_page_load_timeout(max(config.page_load_seconds, _START_S))
            self._driver.set_script_timeout(config.script_seconds)
            self._current = self._find_first_tab()
            # A spare window, unknown to all pages, from which a page that hangs can be closed.
            self._spare = self.call(self._devtools.open_tab, True)
            self._closed.add(self._spare)
            # Leaves the start page before any task: it belongs to the browser and makes requests of its own.
            self._driver.get("about:blank")
            self._driver.set_page_load_timeout(config.page_load_seconds)
            self._prepare_tab()
            self._tab_id(self._current)
        except (WebDriverException, urllib3.exceptions.HTTPError) as error:
            self._process.end()
            reason = f"the browser does not answer after its start: {first_line(error)}"
            raise BrowserLostError(reason) from error
        except BaseException:
            self._process.end()
            raise

    def shows(self, snapshot: Snapshot) -> bool:
        """Returns True if the browser is at the tab and the document of a snapshot."""
        return self._current == snapshot.target and self.script(_DOCUMENT) == snapshot.document

    def sweep(self) -> None:
        """Checks the addresses of all windows in one round trip; to be called before and after every action.

        Closes windows at refused addresses (the last one is emptied instead) and windows beyond `max_tabs`.
        Afterwards the current tab exists.
        """
        self._take_refused_documents()
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

    def _find_first_tab(self) -> str:
        """Switches to the browser's first tab and returns its handle.

        The driver starts on the first target that it sees; on a busy machine that may be a browser UI page.
        """
        current = self._driver.current_window_handle
        pages = [info for info in self.call(self._devtools.targets) if info["type"] == "page"]
        tabs = [info["targetId"] for info in pages if not _BROWSER_UI.match(info["url"])]
        if tabs and current not in tabs:
            current = tabs[0]
            self.call(self._driver.switch_to.window, current)
        return current

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
            pages[self.call(self._devtools.open_tab)] = {"url": "about:blank", "title": ""}
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
            pages[empty] = {"url": "about:blank", "title": ""}
            # The empty tab takes over the id, so the agent still has the tab that it knows.
            self._tab_ids[empty] = self._tab_ids.pop(handle, self._tab_id(handle))
        self.call(self._devtools.close_tab, handle)
        pages.pop(handle, None)
        self._closed.add(handle)

    def _timed_out(self) -> None:
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
        pages = {self._current: {}}
        self._close_page(pages, self._current)
        self.switch_handle(next(iter(pages)))

    def _take_refused_documents(self) -> None:
        """Adds notices about documents that the guard has refused; their windows have kept their pages."""
        self._add_notices(self._refused_documents())

    def _add_notices(self, refused: list[tuple[str, str]]) -> None:
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
        used = self.memory_mb()
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
