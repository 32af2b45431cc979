"""The windows of one browser: which there are, which may stay, and what to do with one that hangs."""

from __future__ import annotations

import contextlib
import pathlib
import re
import time
from typing import Any

from selenium.common.exceptions import TimeoutException, WebDriverException

from collection.browser.config import BrowserConfig
from collection.browser.connection import Connection
from collection.browser.errors import BrowserLostError, PageError
from collection.browser.guard.guard import Guard
from collection.browser.guard.proxy import ProxyLostError
from collection.browser.page import Snapshot
from collection.browser.refusals import merge_refusals
from rmsweb_jax.records.schema import Incident, IncidentKind, Tab

_PRELOAD = "".join(
    pathlib.Path(__file__).with_name(name).read_text(encoding="utf-8")
    for name in ("dialogs.js", "preload.js")
)
# What belongs to the browser and is a page nevertheless: its bars, bubbles and panels, and the page of a
# first tab that comes late. No page and no key opens these.
_BAR = re.compile(r"chrome://[a-z-]+\.top-chrome(?:[/?#]|$)")
_START_PAGE = re.compile(r"chrome://(?:newtab|new-tab-page[a-z-]*)(?:[/?#]|$)")
_PROBE_S = 3.0
_WEIGH_EVERY_S = 1.0
_URL_CHARS, _TITLE_CHARS, _DETAIL_CHARS, _SHOWN_CHARS = 2000, 300, 500, 300
# A storm of the same thing is told by its first ones.
_INCIDENTS = 30


class Tabs(Connection):
    """A connection with its windows.

    Attributes:
      snapshot: what the agent was shown last; indices in actions refer to it.
      latest: the last look of any kind, the agent's or one in between.
      notices: what was done to windows and not yet told to the agent.
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
        self._used = False  # Whether a page was opened.
        self._swept = -1
        self._weighed = 0.0
        try:
            self._driver.set_page_load_timeout(config.page_load_seconds)
            self._driver.set_script_timeout(config.script_seconds)
            self._current = self._find_first_tab()
            # From a window of our own a page that hangs can be closed; no page knows of it.
            self._spare = self.cdp("Target.createTarget", url="about:blank", background=True)["targetId"]
            self._closed.add(self._spare)
            self._driver.get("about:blank")
            self._prepare_tab()
            self._tab_id(self._current)
        except BaseException:
            self._process.end()
            raise

    def sweep(self) -> None:
        """Judges the addresses of all windows, in one round trip; to be called after every step.

        A window at a refused address is closed, the last one emptied; so are windows beyond `max_tabs`.
        Afterwards the current tab is one that is there.
        """
        pages = self._list_pages()
        for handle, info in list(pages.items()):
            verdict = self.guard.check(info["url"]) if self.guard else None
            if verdict is not None and not verdict.allowed:
                # Before any page was opened it is the browser's start page, and nobody's doing.
                if self._used or not info["url"].startswith("chrome:"):
                    self.note("refused", f"{self.shown(info['url'])}: {verdict.detail}")
                    self.notices.append(f"Window closed: {verdict.detail}")
                self._drop(pages, handle)
        extra = list(pages)[self.config.max_tabs :]
        for handle in extra:
            self.note(
                "popup", f"{self.shown(pages[handle]['url'])}: closed, {self.config.max_tabs} tabs are open"
            )
            self._drop(pages, handle)
        if extra:
            self.notices.append(f"{len(extra)} new windows closed: at most {self.config.max_tabs} tabs")
        self._pages = pages
        if self._current not in pages:
            self.switch_handle(list(pages)[-1])
        self._weigh()
        self._swept = self._calls

    def recover_tab(self) -> None:
        """Sweeps, unless nothing was asked of the browser since the last time."""
        if self._swept != self._calls:
            self.sweep()

    def tabs(self) -> tuple[Tab, ...]:
        """Open tabs, oldest first. Ids are given in order of appearance, so that runs can be repeated."""
        self.sweep()
        return tuple(
            Tab(
                tab_id=self._tab_id(handle),
                # Half a secret would not be found any more.
                url=self.redact(info["url"])[:_URL_CHARS],
                title=self.redact(info["title"])[:_TITLE_CHARS],
            )
            for handle, info in self._pages.items()
        )

    def handles(self) -> list[str]:
        """WebDriver's names of the open tabs, oldest first."""
        self.recover_tab()
        return list(self._pages)

    @property
    def current_tab(self) -> str:
        return self._tab_id(self._current)

    @property
    def current_handle(self) -> str:
        """WebDriver's name of the current tab."""
        return self._current

    def switch_tab(self, tab_id: str) -> bool:
        """Goes to a tab; False when there is none of that id."""
        handle = next((handle for handle in self.handles() if self._tab_id(handle) == tab_id), None)
        if handle is None:
            return False
        if handle != self._current:
            self.switch_handle(handle)
        return True

    def switch_handle(self, handle: str) -> None:
        self.call(self._driver.switch_to.window, handle)
        self._current = handle
        self.snapshot = self.latest = None
        self._prepare_tab()

    def open_tab(self) -> None:
        """Opens an empty tab and goes there. Raises PageError when there are `max_tabs`."""
        if len(self.handles()) >= self.config.max_tabs:
            raise PageError(f"There are {self.config.max_tabs} tabs already; close one first")
        handle = self.cdp("Target.createTarget", url="about:blank")["targetId"]
        self.switch_handle(handle)

    def close_tab(self) -> None:
        """Closes the current tab and goes to the newest other one; the last tab is only emptied."""
        pages = self._list_pages()
        self._drop(pages, self._current)
        self._pages = pages
        self.switch_handle(list(pages)[-1])

    def note(self, kind: IncidentKind, detail: str) -> None:
        """Keeps an incident for `take_incidents`."""
        # Cut afterwards: half a secret would not be recognised.
        detail = self.redact(" ".join(detail.split()))[:_DETAIL_CHARS]
        self._incidents.append(Incident(kind=kind, detail=detail))

    def shown(self, url: str) -> str:
        """An address to tell, without secrets, so short that what is told about it is read, too."""
        return self.redact(url)[:_SHOWN_CHARS]

    def redact(self, text: str) -> str:
        """The text without secrets."""
        return self.guard.redactor.text(text) if self.guard else text

    def take_incidents(self) -> tuple[Incident, ...]:
        """What happened since last asked: refused, pop-ups closed, downloads, dialogs."""
        found, self._incidents = self._incidents, []
        if self.guard:
            try:
                found += self.guard.incidents()
            except ProxyLostError as error:
                raise BrowserLostError(f"the browser's proxy is gone: {error}") from error
        found = merge_refusals(found)
        if len(found) > _INCIDENTS:
            rest = len(found) - _INCIDENTS
            found = [*found[:_INCIDENTS], Incident(kind=found[-1].kind, detail=f"and {rest} more incidents")]
        return tuple(found)

    # Private

    def _find_first_tab(self) -> str:
        """The browser's first tab, made the current one.

        The driver takes the first page that it sees; on a busy machine that may be one of the bars.
        """
        current = self._driver.current_window_handle
        pages = [info for info in self.cdp("Target.getTargets")["targetInfos"] if info["type"] == "page"]
        tabs = [info["targetId"] for info in pages if not _BAR.match(info["url"])]
        if tabs and current not in tabs:
            current = tabs[0]
            self.call(self._driver.switch_to.window, current)
        return current

    def _list_pages(self) -> dict[str, dict[str, Any]]:
        """Targets of all tabs by handle, oldest first; the current one may be gone."""
        try:
            targets = self.cdp("Target.getTargets")["targetInfos"]
        except PageError:
            self.call(self._driver.switch_to.window, self._spare)
            targets = self.cdp("Target.getTargets")["targetInfos"]
        pages = {
            info["targetId"]: info
            for info in targets
            if info["type"] == "page"
            and not info.get("subtype")
            and info["targetId"] not in self._closed
            and not self._is_own_surface(info)
        }
        if not pages:  # The last one has closed itself.
            handle = self.cdp("Target.createTarget", url="about:blank")["targetId"]
            pages[handle] = {"url": "about:blank", "title": ""}
        return {handle: pages[handle] for handle in sorted(pages, key=self._tab_id)}

    def _is_own_surface(self, info: dict[str, Any]) -> bool:
        """Whether a target belongs to the browser itself, or is not yet anywhere; a tab stays one."""
        if info["targetId"] in self._tab_ids or info.get("openerId"):
            return False
        url = info["url"]
        return not url or _BAR.match(url) is not None or _START_PAGE.match(url) is not None

    def _drop(self, pages: dict[str, dict[str, Any]], handle: str) -> None:
        """Closes a tab and removes it from `pages`; the last one is replaced by an empty one."""
        if handle == self._current:
            self.call(self._driver.switch_to.window, self._spare)
        if len(pages) == 1:
            empty = self.cdp("Target.createTarget", url="about:blank")
            pages[empty["targetId"]] = {"url": "about:blank", "title": ""}
            self._tab_ids[empty["targetId"]] = self._tab_ids.pop(handle, self._tab_id(handle))
        with contextlib.suppress(WebDriverException):
            self.cdp("Target.closeTarget", targetId=handle)
        del pages[handle]
        self._closed.add(handle)

    def _timed_out(self) -> None:
        """After a time-out: stops what loads; a page that does not even answer that is replaced."""
        try:
            self._driver.set_page_load_timeout(_PROBE_S)
            self._driver.execute_script("window.stop()")
        except TimeoutException:
            self._replace_tab()
            raise PageError("The page does not respond; it was closed") from None
        finally:
            self._driver.set_page_load_timeout(self.config.page_load_seconds)

    def _replace_tab(self) -> None:
        """Puts an empty tab in the place of the current one, which may hang or have crashed."""
        pages = {self._current: {}}
        self._drop(pages, self._current)
        self.switch_handle(next(iter(pages)))

    def _weigh(self) -> None:
        """Gives up a browser that uses too much memory, before the machine has none left."""
        now = time.monotonic()
        if now - self._weighed < _WEIGH_EVERY_S:
            return
        self._weighed = now
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
            deviceScaleFactor=1,
            mobile=False,
        )
        self.cdp("Page.addScriptToEvaluateOnNewDocument", source=_PRELOAD)
        self._prepared.add(self._current)

    def _tab_id(self, handle: str) -> str:
        if handle not in self._tab_ids:
            self._tab_ids[handle] = f"{len(self._tab_ids) + 1:04d}"
        return self._tab_ids[handle]
