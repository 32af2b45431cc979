"""How to run a browser."""

from __future__ import annotations

import dataclasses

import ada_url

from rmsweb_jax.errors import UserError

DESKTOP = "desktop"


@dataclasses.dataclass(frozen=True)
class BrowserConfig:
    """How to run a browser.

    Attributes:
      chromium, chromedriver: programs; empty finds them on PATH. Not used with `grid_url`.
      width, height: viewport in CSS pixels, exact.
      host_rules: Chromium host resolver rules, for example `MAP miniwob.test 127.0.0.1:8000`.
      grid_url: a Selenium Grid's URL; empty starts a local browser. Its browsers download nothing: what
        arrives on a node is not seen from here.
      page_load_seconds: after that long, loading stops and the page is used as it is.
      script_seconds: a page that has not answered a script after that long does not respond.
      quiet_ms: after an action, wait until the page has not changed for this long, and the pictures and
        fonts that it shows have come.
      settle_ms: ... but at most this long.
      max_tabs: windows that a page opens beyond these are closed.
      memory_mb: a local browser that uses more, all its processes together, is given up.
      download_mb: a longer download is broken off.
      user_agent: what it calls itself, in headers and to scripts; empty: its own name, which tells that
        nobody sits before it; `desktop`: as the same version on a desktop. Not `desktop` with `grid_url`.
        Another text changes no client hints: one of another version or system contradicts them.
      user_agents: `HOST=AGENT`, in place of `user_agent` for tasks that start at HOST or below it; `HOST=`
        for the browser's own.
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
    max_tabs: int = 10
    memory_mb: int = 3000
    download_mb: int = 50
    user_agent: str = ""
    user_agents: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for entry in self.user_agents:
            if not entry.partition("=")[0] or "=" not in entry:
                raise UserError(f"config.browser.user_agents: {entry!r} has to be HOST=AGENT, or HOST=")
        if self.grid_url and DESKTOP in (self.user_agent, *self._agents.values()):
            reason = "a grid's browsers are not known here; give the whole string"
            raise UserError(f"config.browser.user_agent=desktop: {reason}")

    def user_agent_for(self, website: str) -> str:
        """The user agent of a task that starts there."""
        host = ada_url.URL(website).hostname if ada_url.check_url(website) else ""
        found = [name for name in self._agents if host == name or host.endswith(f".{name}")]
        return self._agents[max(found, key=len)] if found else self.user_agent

    @property
    def _agents(self) -> dict[str, str]:
        return {host: agent for host, _, agent in (entry.partition("=") for entry in self.user_agents)}
