"""One Chromium under WebDriver: start, look, and leave no process behind.

Local browsers run in a session (process group family) of their own and speak to their driver
through a pipe, so they end with the driver even when this process is killed.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import os
import pathlib
import shutil
from collections.abc import Callable
from typing import Any, TypeVar

import urllib3.exceptions
from selenium import webdriver
from selenium.common.exceptions import (
    InvalidSessionIdException,
    JavascriptException,
    NoSuchWindowException,
    SessionNotCreatedException,
    TimeoutException,
    UnexpectedAlertPresentException,
    WebDriverException,
)
from selenium.webdriver.chrome.remote_connection import ChromeRemoteConnection
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webdriver import WebDriver

from collection.browser.page import Snapshot
from collection.browser.processes import (
    OWNER,
    find_program,
    kill_session,
    make_profile,
    reap_orphans,
    session_members,
)
from rmsweb_jax.errors import UserError
from rmsweb_jax.processes import die_with_parent
from rmsweb_jax.records.schema import Tab

T = TypeVar("T")

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--mute-audio",
    "--hide-scrollbars",
)
# What a lost browser looks like; a node killed behind a grid gives only generic messages.
_LOST = (
    "chrome not reachable",
    "disconnected",
    "tab crashed",
    "existing session",
    "session deleted",
    "invalid session",
)
_PRELOAD = pathlib.Path(__file__).with_name("preload.js").read_text(encoding="utf-8")


class BrowserLostError(Exception):
    """The browser or its driver is gone; only a new `Browser` helps."""


class PageError(Exception):
    """A page could not be reached; the message is the browser's own short reason."""


@dataclasses.dataclass(frozen=True)
class BrowserConfig:
    """How to run a browser.

    Attributes:
      chromium, chromedriver: programs; empty finds them on PATH. Not used with `grid_url`.
      width, height: viewport in CSS pixels, exact.
      host_rules: Chromium host resolver rules, for example `MAP miniwob.test 127.0.0.1:8000`.
      grid_url: a Selenium Grid's URL; empty starts a local browser.
      page_load_seconds: after that long, loading stops and the page is used as it is.
      quiet_ms: after an action, wait until the page has not changed for this long.
      settle_ms: ... but at most this long.
    """

    chromium: str = ""
    chromedriver: str = ""
    width: int = 1280
    height: int = 1100
    flags: tuple[str, ...] = ()
    host_rules: tuple[str, ...] = ()
    grid_url: str = ""
    page_load_seconds: float = 30.0
    script_seconds: float = 15.0
    quiet_ms: int = 200
    settle_ms: int = 2000


class Browser(contextlib.AbstractContextManager["Browser"]):
    """A running browser; closed by `with` or `close()`.

    Attributes:
      snapshot: what the agent was shown last; indices in actions refer to it.
      latest: the last look of any kind, the agent's or one in between.
      dialogs: texts of alerts, confirms and prompts dismissed and not yet told to the agent.

    Raises:
      UserError: Chromium or its driver is missing or does not start.
      BrowserLostError: from every method, once the browser is gone.
    """

    def __init__(self, config: BrowserConfig) -> None:
        self.config = config
        self.snapshot: Snapshot | None = None
        self.latest: Snapshot | None = None
        self.dialogs: list[str] = []
        self._profile = ""
        self._service: Service | None = None
        self._tab_ids: dict[str, str] = {}
        self._prepared: set[str] = set()
        reap_orphans()
        try:
            self._driver = self._start()
            self._driver.set_page_load_timeout(config.page_load_seconds)
            self._driver.set_script_timeout(config.script_seconds)
            self._prepare_tab()
            self._tab_id(self._current)
        except BaseException:
            self._reap()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the browser, its driver and every process they started, and removes the profile."""
        if hasattr(self, "_driver") and (self._service is None or self._service.is_connectable()):
            with contextlib.suppress(WebDriverException, urllib3.exceptions.HTTPError, OSError):
                self._driver.quit()
        self._reap()

    @property
    def driver(self) -> WebDriver:
        return self._driver

    @property
    def process_ids(self) -> list[int]:
        """Every process of a local browser, its driver first."""
        return [] if self._service is None else session_members(self._service.process.pid)

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Calls WebDriver; a dialog in the way is dismissed, kept in `dialogs`, and the call repeated."""
        for _ in range(4):
            try:
                return function(*args)
            except UnexpectedAlertPresentException as error:
                self.dialogs.append(error.alert_text or "")
            except (InvalidSessionIdException, SessionNotCreatedException, NoSuchWindowException) as error:
                raise BrowserLostError(first_line(error)) from error
            except (urllib3.exceptions.HTTPError, ConnectionError) as error:
                raise BrowserLostError(f"the browser's driver is gone ({type(error).__name__})") from error
            except WebDriverException as error:
                if any(sign in (error.msg or "").lower() for sign in _LOST):
                    raise BrowserLostError(first_line(error)) from error
                raise
        raise PageError("the page keeps opening dialogs")

    def script(self, code: str, *args: Any) -> Any:
        """Runs JavaScript in the current frame and returns its value."""
        return self.call(self._driver.execute_script, code, *args)

    def cdp(self, command: str, **params: Any) -> dict[str, Any]:
        """One DevTools command to the current tab."""
        return self.call(self._driver.execute, "executeCdpCommand", {"cmd": command, "params": params})[
            "value"
        ]

    def goto(self, url: str) -> None:
        """Opens a page. Raises PageError when it cannot be reached."""
        try:
            self.call(self._driver.get, url)
        except TimeoutException:
            self.script("window.stop()")
        except WebDriverException as error:
            raise PageError(first_line(error)) from error

    def settle(self, first_ms: int = 0) -> None:
        """Waits until the page has been unchanged for `quiet_ms`, at most `settle_ms`.

        Args:
          first_ms: wait at least this long for a first change that is known to come late.
        """
        if self.config.quiet_ms or first_ms:
            # A page that is left while it is watched ends the script: then the next call waits for the load.
            with contextlib.suppress(JavascriptException, TimeoutException):
                quiet, limit = self.config.quiet_ms, self.config.settle_ms
                self.call(self._driver.execute_async_script, _SETTLE, max(quiet, first_ms), quiet, limit)

    def screenshot(self) -> bytes:
        """The viewport as PNG."""
        return base64.b64decode(
            self.cdp("Page.captureScreenshot", format="png", optimizeForSpeed=True)["data"]
        )

    def tabs(self) -> tuple[Tab, ...]:
        """Open tabs, oldest first. Ids are given in order of appearance, so that runs can be repeated."""
        targets = self.cdp("Target.getTargets")["targetInfos"]
        pages = {info["targetId"]: info for info in targets if info["type"] == "page"}
        handles = self.call(lambda: self._driver.window_handles)
        tabs = []
        for handle in sorted(handles, key=self._tab_id):
            info = pages.get(handle, {})
            tabs.append(
                Tab(tab_id=self._tab_id(handle), url=info.get("url", ""), title=info.get("title", ""))
            )
        return tuple(tabs)

    def handles(self) -> list[str]:
        return self.call(lambda: self._driver.window_handles)

    @property
    def current_tab(self) -> str:
        return self._tab_id(self._current)

    def switch_tab(self, tab_id: str) -> bool:
        """Goes to a tab; False when there is none of that id."""
        handle = next((handle for handle in self.handles() if self._tab_id(handle) == tab_id), None)
        if handle is None:
            return False
        self.switch_handle(handle)
        return True

    def switch_handle(self, handle: str) -> None:
        self.call(self._driver.switch_to.window, handle)
        self._current = handle
        self.snapshot = self.latest = None
        self._prepare_tab()

    def close_tab(self) -> None:
        """Closes the current tab and goes to the newest other one; the last tab is only emptied."""
        others = [handle for handle in self.handles() if handle != self._current]
        if not others:
            self.goto("about:blank")
            return
        self.call(self._driver.close)
        self.switch_handle(max(others, key=self._tab_id))

    def recover_tab(self) -> None:
        """Goes to another tab when the page has closed the current one itself."""
        handles = self.handles()
        if self._current not in handles:
            self.switch_handle(handles[-1])

    def reset(self) -> None:
        """Leaves one empty tab, without dialogs: where an episode starts."""
        for handle in self.handles()[1:]:
            self.switch_handle(handle)
            self.call(self._driver.close)
        self.switch_handle(self.handles()[0])
        self.call(self._driver.delete_all_cookies)
        self.dialogs.clear()
        self._tab_ids.clear()
        self._tab_id(self._current)

    def _start(self) -> WebDriver:
        config = self.config
        options = webdriver.ChromeOptions()
        for flag in (*FLAGS, f"--window-size={config.width},{config.height}", *config.flags):
            options.add_argument(flag)
        if config.host_rules:
            options.add_argument(f"--host-resolver-rules={', '.join(config.host_rules)}")
        # Dismissed, never accepted; "and notify" is what gives us the text.
        options.set_capability("unhandledPromptBehavior", "dismiss and notify")
        try:
            if config.grid_url:
                driver = webdriver.Remote(ChromeRemoteConnection(config.grid_url), options=options)
            else:
                driver = self._start_local(options)
        except (WebDriverException, urllib3.exceptions.HTTPError, OSError) as error:
            where = config.grid_url or config.chromedriver or "chromedriver"
            raise UserError(
                f"no browser session from {where}: {first_line(error)}; check that chromium and "
                "chromium-driver have the same version, or the grid's address"
            ) from error
        self._current = driver.current_window_handle
        return driver

    def _start_local(self, options: webdriver.ChromeOptions) -> WebDriver:
        options.binary_location = find_program(
            self.config.chromium, ("chromium", "chromium-browser", "google-chrome")
        )
        chromedriver = find_program(self.config.chromedriver, ("chromedriver",))
        self._profile = make_profile()
        options.add_argument(f"--user-data-dir={self._profile}")
        # Through a pipe the browser notices at once that its driver has died, and ends.
        options.add_argument("--remote-debugging-pipe")
        environment = {**os.environ, OWNER: f"{os.getpid()}:{self._profile}"}
        # A session of its own: signals to us do not reach it, and all its processes can be found.
        start = {"start_new_session": True, "preexec_fn": die_with_parent}
        self._service = Service(chromedriver, env=environment, popen_kw=start)
        return webdriver.Chrome(options=options, service=self._service)

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

    def _reap(self) -> None:
        process = getattr(self._service, "process", None)
        if process is not None:
            kill_session(process.pid)
            process.wait()
        if self._profile:
            shutil.rmtree(self._profile, ignore_errors=True)


def first_line(error: BaseException) -> str:
    """A WebDriver error's own reason, without stack and session details."""
    lines = (getattr(error, "msg", None) or str(error) or type(error).__name__).strip().splitlines()
    return lines[0].strip()[:200] if lines else type(error).__name__


_SETTLE = """
const [first, quiet, limit, done] = arguments;
const start = performance.now();
let timer;
const finish = () => { observer.disconnect(); done(null); };
const arm = (wait) => {
  clearTimeout(timer);
  timer = setTimeout(finish, Math.max(0, Math.min(wait, start + limit - performance.now())));
};
// What is waited for is something new: an attribute that follows the last key is not it.
const observer = new MutationObserver((records) => {
  if (first <= quiet || records.some((record) => record.addedNodes.length)) arm(quiet);
});
observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
arm(first);
"""
