"""Settings of a browser, and the errors that it can raise."""

from __future__ import annotations

import re
import zoneinfo
from typing import Self

import ada_url
from pydantic import Field, model_validator

from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import Settings, internal

DESKTOP = "desktop"


class BrowserLostError(Exception):
    """The browser or its driver is gone; only a new `Browser` helps."""


class PageError(Exception):
    """A page cannot be reached or used; the message is a short reason, for the agent."""


class SnapshotError(Exception):
    """The state of an environment cannot be taken, because it could not be put back; the message says why."""


class RestoreError(Exception):
    """A state could not be put back: what is there now is another one; the message says what differs."""


class TabGoneError(PageError):
    """The current tab has closed."""

    def __init__(self) -> None:
        super().__init__("The tab has closed; look again")


class PageCrashedError(PageError):
    """The process of the current page has crashed; an empty tab has taken its place."""

    def __init__(self) -> None:
        super().__init__("The page has crashed; it was closed")


def first_line(error: BaseException) -> str:
    """Returns the reason of a WebDriver error, without stack and session details."""
    lines = (getattr(error, "msg", None) or str(error) or type(error).__name__).strip().splitlines()
    return lines[0].strip()[:200] if lines else type(error).__name__


def page_problem(text: str) -> str:
    """Returns the reason why a page did not open, from the driver's message or the browser's error page."""
    code = re.search(r"ERR_[A-Z0-9_]+", text)
    if code:
        return code[0]
    return text.strip().splitlines()[0][:200] if text.strip() else "the site shows nothing, or wants a login"


class BrowserConfig(Settings):
    """Settings of a browser.

    Attributes:
      chromium, chromedriver: programs; empty finds them on PATH.
      width, height: exact viewport size in CSS pixels.
      host_rules: Chromium host resolver rules, for example `MAP miniwob.test 127.0.0.1:8000`.
      page_load_seconds: time limit after which loading stops and the page is used as it is.
      script_seconds: time limit for a page's answer, after which it counts as unresponsive and is closed: as
        long as for a load, since real pages compute for 20 s.
      quiet_ms: after an action, the browser waits until the page has not changed for this long, and its
        visible images and fonts have loaded.
      settle_ms: maximum of that wait.
      max_tabs: number of tabs; windows that a page opens beyond it are closed.
      memory_mb: memory limit of a browser, all processes together; beyond it the browser is abandoned.
      download_mb: size limit of a download.
      user_agent: user agent in headers and for scripts. Empty is Chromium's own, which reveals headless mode;
        `desktop` is the same version in a window. Client hints do not change, so another version or system
        would contradict them.
      screen: WIDTHxHEIGHT of the screen that pages see, at least that of the window.
      locale: language of the browser, in headers and for scripts.
      timezone: of scripts, such as `Europe/Vienna`; empty is the machine's.
      headed: a browser with a window, as people use it. Without a DISPLAY it gets a virtual one (Debian's
        package xvfb).
      storage_state: file with cookies and localStorage in Playwright's format. Each episode starts with those
        of its task's registrable domain.
      user_agents: `HOST=AGENT` replaces `user_agent` for tasks that start at HOST or below it; `HOST=` is
        Chromium's own.
    """

    chromium: str = internal("")
    chromedriver: str = internal("")
    width: int = Field(default=1280, ge=1)
    height: int = Field(default=1100, ge=1)
    flags: tuple[str, ...] = internal(())
    host_rules: tuple[str, ...] = internal(())
    page_load_seconds: float = internal(30.0)
    script_seconds: float = internal(30.0)
    quiet_ms: int = Field(default=200, ge=0)
    settle_ms: int = Field(default=2000, ge=0)
    max_tabs: int = internal(10)
    memory_mb: int = internal(3000)
    download_mb: int = internal(50)
    user_agent: str = ""
    user_agents: tuple[str, ...] = ()
    screen: str = "1920x1200"
    locale: str = "en-US"
    timezone: str = ""
    headed: bool = False
    storage_state: str = ""

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        self._check_identity()
        for entry in self.user_agents:
            if not entry.partition("=")[0] or "=" not in entry:
                raise UserError(f"config.browser.user_agents: {entry!r} must be HOST=AGENT, or HOST=")
        return self

    @property
    def screen_size(self) -> tuple[int, int]:
        """Width and height of `screen`."""
        width, _, height = self.screen.partition("x")
        return int(width), int(height)

    def _check_identity(self) -> None:
        size = re.fullmatch(r"(\d+)x(\d+)", self.screen)
        if size is None or int(size[1]) < self.width or int(size[2]) < self.height:
            least = f"{self.width}x{self.height}"
            raise UserError(f"config.browser.screen={self.screen!r}: write WIDTHxHEIGHT, at least {least}")
        if not re.fullmatch(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*", self.locale):
            raise UserError(f"config.browser.locale={self.locale!r}: write it as en-US or de")
        if not self.timezone:
            return
        try:
            zoneinfo.ZoneInfo(self.timezone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise UserError(
                f"config.browser.timezone={self.timezone!r}: unknown; write it as Europe/Vienna"
            ) from error

    def user_agent_for(self, website: str) -> str:
        """Returns the user agent of a task that starts at `website`."""
        host = ada_url.URL(website).hostname if ada_url.check_url(website) else ""
        found = [name for name in self._agents if host == name or host.endswith(f".{name}")]
        return self._agents[max(found, key=len)] if found else self.user_agent

    @property
    def _agents(self) -> dict[str, str]:
        return {host: agent for host, _, agent in (entry.partition("=") for entry in self.user_agents)}
