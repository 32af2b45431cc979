"""How to run a browser."""

from __future__ import annotations

import dataclasses


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
      quiet_ms: after an action, wait until the page has not changed for this long.
      settle_ms: ... but at most this long.
      max_tabs: windows that a page opens beyond these are closed.
      memory_mb: a local browser that uses more, all its processes together, is given up.
      download_mb: a longer download is broken off.
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
