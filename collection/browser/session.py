"""The browser of an episode: navigation within the guard's limits, waiting for pages, state and downloads."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Sequence

import ada_url
from selenium.common.exceptions import TimeoutException, WebDriverException

from collection.browser.config import (
    BrowserConfig,
    BrowserLostError,
    PageError,
    TabGoneError,
    first_line,
    page_problem,
)
from collection.browser.files import Downloads
from collection.browser.guard.egress import place_of
from collection.browser.guard.guard import Guard
from collection.browser.storage_state import StorageState, read_state
from collection.browser.tabs import Tabs
from rmsweb_jax.errors import UserError

_SETTLE = pathlib.Path(__file__).with_name("settle.js").read_text(encoding="utf-8")
# What the browser says where the guard has refused, not reached or ended a connection.
_CONNECTION_PROBLEMS = {"ERR_SOCKS_CONNECTION_FAILED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE"}

__all__ = ["Browser", "BrowserConfig", "BrowserLostError", "PageError", "first_line"]


class Browser(Tabs):
    """A running Chromium; closed by `with` or `close()`.

    Attributes:
      downloads: the download folder.
      dialogs, guard, snapshot, latest, notices: see `Tabs`.

    Raises:
      UserError: Chromium or its driver is missing or does not start.
      BrowserLostError: from every method, once the browser is gone.
    """

    def __init__(self, config: BrowserConfig | None = None, guard: Guard | None = None) -> None:
        config = config or BrowserConfig()
        super().__init__(config, guard)
        self.downloads = Downloads(self._process.downloads, config.download_mb)
        self.call(self._devtools.keep_downloads, str(self.downloads.folder))

    def goto(self, url: str) -> None:
        """Opens a page. Raises PageError if the guard refuses it or it cannot be reached."""
        self.check(url)
        self._page_opened = True
        before = self._pages.get(self._current, {}).get("url")
        slow = False
        self._frames.clear()
        if self.guard is not None:
            self.guard.record.take_problems()  # Those of earlier pages.
        try:
            self.call(self._driver.get, url)
        except TimeoutException:
            slow = True  # Loading was stopped; a partly loaded page can be used.
        except WebDriverException as error:
            raise PageError(self._not_opened(url, first_line(error))) from error
        self._raise_refused(url)
        # The driver does not report every failure: after a redirect loop it shows the browser's error page.
        try:
            here, failure = self.script(_FAILURE)
        except TimeoutException:
            raise
        except (WebDriverException, TypeError):
            here, failure = url, None  # The page is open but breaks scripts; the next snapshot recovers.
        if failure is not None:
            raise PageError(self._not_opened(url, failure))
        # The address has not changed: the site never answered, and the old page is still shown.
        if slow and here == before and here != url:
            raise PageError(
                f"Cannot open {self.short_url(url)}: no answer in {self.config.page_load_seconds:g} s"
            )

    def _not_opened(self, url: str, text: str) -> str:
        """Returns why a page did not open: what the guard says of its connection, or else the browser."""
        problem = page_problem(text)
        problems = self.guard.record.take_problems() if self.guard else {}
        if problem in _CONNECTION_PROBLEMS and problems:
            # A redirect may have led to another place.
            places = place_of(self.target_url(self._current)), place_of(url)
            problem = next((problems[one] for one in places if one in problems), problem)
        return f"Cannot open {self.short_url(url)}: {self.redact(problem)}"

    def _raise_refused(self, url: str) -> None:
        """Raises PageError if the guard has refused this document; its window may show another page still."""
        refused = self._refused_documents()
        # The browser may have made https of http, and sends no fragment.
        place = ada_url.URL(url).href.partition(":")[2].partition("#")[0] if refused else ""
        details = [detail for one, detail in refused if one.partition(":")[2] == place]
        if details:
            raise PageError(f"Refused to open {self.short_url(url)}: {details[0]}")
        self._add_notices(refused)

    def check(self, url: str) -> None:
        """Raises PageError if the guard refuses the address."""
        verdict = self.guard.check(url) if self.guard else None
        if verdict is not None and not verdict.allowed:
            self._refused(url, verdict)
            raise PageError(f"Refused to open {self.short_url(url)}: {verdict.detail}")

    def settle(self, first_ms: int = 0) -> None:
        """Waits until the page is unchanged for `quiet_ms` and its images are loaded, at most `settle_ms`.

        Args:
          first_ms: minimum wait for a first change that is known to be late.
        """
        if self.config.quiet_ms or first_ms:
            self._wait(max(self.config.quiet_ms, first_ms), self.config.quiet_ms)

    def wait_for_images(self) -> None:
        """Waits until the page's fonts and visible images are loaded, at most `settle_ms`."""
        self._wait(0, 0)

    def _wait(self, first_ms: int, quiet_ms: int) -> None:
        # A navigation ends the script; the next call then waits for the load. Pages that break scripts fail
        # here in several ways, and a tab may close.
        with contextlib.suppress(WebDriverException, TabGoneError):
            self.script(_SETTLE, first_ms, quiet_ms, self.config.settle_ms)

    def screenshot(self) -> bytes:
        """Returns the viewport of the current tab as PNG."""
        return self.call(self._devtools.screenshot, self._current)

    def reset(self, keeps_cache: bool = True) -> None:
        """Prepares for an episode: leaves one empty tab without dialogs, cookies, storage or downloads.

        Args:
          keeps_cache: what the browser has loaded before is not loaded again.
        """
        for _ in range(2):  # A page that hangs or crashes meanwhile is replaced by the first attempt.
            with contextlib.suppress(PageError, WebDriverException):
                self.arrange_tabs()
                self.cdp("Page.navigate", url="about:blank")
                self.cdp("Page.resetNavigationHistory")
                self.cdp("Network.clearBrowserCookies")
                self.cdp("Storage.clearDataForOrigin", origin="*", storageTypes="all")
                if not keeps_cache:
                    self.cdp("Network.clearBrowserCache")
                break
        else:
            raise BrowserLostError("the browser's tabs cannot be emptied")
        self.forget()

    def forget(self) -> None:
        """Drops what the last episode has left: downloads, dialogs, notices, incidents."""
        self.downloads.clear()
        self.dialogs.clear()
        self.notices.clear()
        self.forget_incidents()
        self.snapshot = self.latest = None

    def forget_incidents(self) -> None:
        """Drops incidents and refused documents that have not been reported yet."""
        self._refused_documents()
        self.take_incidents()

    def arrange_tabs(self, tab_ids: Sequence[str] = ("0001",), known: int = 1) -> list[str]:
        """Closes all tabs but the current one, and opens empty ones until there is one for each id.

        Args:
          tab_ids: of the current tab and the empty ones.
          known: number of tabs there have been, with those that have closed; the next one gets the next id.

        Returns:
          Their handles, in the order of the ids.
        """
        pages = self._list_pages()
        for handle in list(pages):
            if handle != self._current:
                self._close_page(pages, handle)
        self._pages = pages
        if self._current not in pages:
            self._switch_to_newest()
        self.call(self._driver.switch_to.default_content)
        handles = [self._current, *(self.call(self._devtools.open_tab) for _ in tab_ids[1:])]
        gone = {f"{number:04d}" for number in range(1, known + 1)} - set(tab_ids)
        self._tab_ids = {name: name for name in gone} | dict(zip(handles, tab_ids, strict=True))
        return handles

    def restore_state(self, website: str) -> None:
        """Sets what `config.storage_state` has for a task's site; to be called after `reset`.

        Raises:
          UserError: the state cannot be read, or its localStorage cannot be set without the guard's proxy.
        """
        if not self.config.storage_state:
            return
        state = read_state(self.config.storage_state).of(website)
        for cookie in state.cookies:
            self.cdp("Network.setCookie", **cookie.to_devtools())
        for storage in state.origins:
            if self.guard is None:
                raise UserError("config.browser.storage_state: localStorage needs a guard")
            # An empty page of the origin, which the guard makes: nothing is sent to the site.
            self.guard.serve_empty(f"{storage.origin}/")
            self.call(self._driver.get, f"{storage.origin}/")
            self.script(_SET_STORAGE, [[item.name, item.value] for item in storage.local_storage])
        if state.origins:
            self.cdp("Page.navigate", url="about:blank")
            self.cdp("Page.resetNavigationHistory")

    def storage_state(self) -> StorageState:
        """Returns all cookies, and the localStorage of the page that is open."""
        origin, items = self.script("return [location.origin, Object.entries(localStorage)]")
        storage = [{"name": name, "value": value} for name, value in items]
        return StorageState.model_validate(
            {
                "cookies": self.cdp("Storage.getCookies")["cookies"],
                "origins": [{"origin": origin, "localStorage": storage}] if storage else [],
            }
        )


_SET_STORAGE = "for (const [name, value] of arguments[0]) localStorage.setItem(name, value);"
# Returns the current address and, on the browser's error page, its text.
_FAILURE = """
const failed = location.protocol === 'chrome-error:';
return [location.href, failed ? (document.body ? document.body.innerText : '') : null];
"""
