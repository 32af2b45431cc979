"""One Chromium with its tabs: go, look, and stay where it is allowed to be."""

from __future__ import annotations

import base64
import contextlib
import pathlib

from selenium.common.exceptions import TimeoutException, WebDriverException

from collection.browser.config import BrowserConfig
from collection.browser.downloads import Downloads
from collection.browser.errors import BrowserLostError, PageError, first_line, page_problem
from collection.browser.guard.guard import Guard
from collection.browser.tabs import Tabs

_SETTLE = pathlib.Path(__file__).with_name("settle.js").read_text(encoding="utf-8")

__all__ = ["Browser", "BrowserConfig", "BrowserLostError", "PageError", "first_line"]


class Browser(Tabs):
    """A running browser; closed by `with` or `close()`.

    Attributes:
      downloads: files that arrived.
      dialogs, guard, snapshot, latest, notices: see `Connection` and `Tabs`.

    Raises:
      UserError: Chromium or its driver is missing or does not start.
      BrowserLostError: from every method, once the browser is gone.
    """

    def __init__(self, config: BrowserConfig, guard: Guard | None = None) -> None:
        super().__init__(config, guard)
        self.downloads = Downloads(self._process.downloads, config.download_mb)
        folder = self.downloads.folder
        # It holds for as long as the window lives from which it was set: not one of a page.
        self.call(self._driver.switch_to.window, self._spare)
        if folder is None:
            self.cdp("Browser.setDownloadBehavior", behavior="deny")
        else:
            self.cdp("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
        self.call(self._driver.switch_to.window, self._current)

    def goto(self, url: str) -> None:
        """Opens a page. Raises PageError when it may not or cannot be reached."""
        self.check(url)
        self._used = True
        before = self._pages.get(self._current, {}).get("url")
        slow = False
        try:
            self.call(self._driver.get, url)
        except TimeoutException:
            slow = True  # Loading was stopped; what there is can be used.
        except WebDriverException as error:
            raise PageError(f"Cannot open {self.shown(url)}: {page_problem(first_line(error))}") from error
        # The driver does not tell of every failure: a loop of redirects shows the browser's own page.
        try:
            here, failure = self.script(_FAILURE)
        except TimeoutException:
            raise
        except (WebDriverException, TypeError):
            here, failure = url, None  # A page that breaks scripts is open; the look at it mends them.
        if failure is not None:
            raise PageError(f"Cannot open {self.shown(url)}: {page_problem(failure)}")
        if slow and here == before and here != url:
            raise PageError(
                f"Cannot open {self.shown(url)}: no answer in {self.config.page_load_seconds:g} s"
            )

    def check(self, url: str) -> None:
        """Raises PageError when the guard refuses the address."""
        verdict = self.guard.check(url) if self.guard else None
        if verdict is not None and not verdict.allowed:
            self.note("refused", f"{self.shown(url)}: {verdict.detail}")
            raise PageError(f"Refused to open {self.shown(url)}: {verdict.detail}")

    def settle(self, first_ms: int = 0) -> None:
        """Waits until the page has been unchanged for `quiet_ms` and shows its pictures, at most `settle_ms`.

        Args:
          first_ms: wait at least this long for a first change that is known to come late.
        """
        if self.config.quiet_ms or first_ms:
            self._wait(max(self.config.quiet_ms, first_ms), self.config.quiet_ms)

    def wait_for_pictures(self) -> None:
        """Waits until the page's fonts, and the pictures in its window, are there, at most `settle_ms`."""
        self._wait(0, 0)

    def _wait(self, first_ms: int, quiet_ms: int) -> None:
        # A page that is left while it is watched ends the script: then the next call waits for the load.
        # One that breaks scripts fails it in more ways than one; the look at it mends them.
        with contextlib.suppress(WebDriverException):
            limit = self.config.settle_ms
            self.call(self._driver.execute_async_script, _SETTLE, first_ms, quiet_ms, limit)

    def screenshot(self) -> bytes:
        """The viewport as PNG."""
        return base64.b64decode(
            self.cdp("Page.captureScreenshot", format="png", optimizeForSpeed=True)["data"]
        )

    def reset(self) -> None:
        """Leaves one empty tab, without dialogs, cookies, storage or downloads: where an episode starts."""
        for _ in range(2):
            with contextlib.suppress(PageError, WebDriverException):
                self._empty()
                break
        else:
            raise BrowserLostError("the browser's tabs cannot be emptied")
        self.downloads.clear()
        self.dialogs.clear()
        self.notices.clear()
        self._incidents.clear()
        self._tab_ids.clear()
        self._tab_id(self._current)
        self.snapshot = self.latest = None

    def _empty(self) -> None:
        pages = self._list_pages()
        for handle in list(pages):
            if handle != self._current:
                self._drop(pages, handle)
        self._pages = pages
        if self._current not in pages:
            self.switch_handle(list(pages)[-1])
        self.call(self._driver.switch_to.default_content)
        self.cdp("Page.navigate", url="about:blank")
        self.cdp("Page.resetNavigationHistory")
        self.cdp("Network.clearBrowserCookies")
        self.cdp("Storage.clearDataForOrigin", origin="*", storageTypes="all")


# Where it is and, on the browser's own page for what failed, the text of that.
_FAILURE = """
const failed = location.protocol === 'chrome-error:';
return [location.href, failed ? (document.body ? document.body.innerText : '') : null];
"""
