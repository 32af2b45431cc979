"""Starting Chromium under a driver: on this machine, or on a Selenium Grid."""

from __future__ import annotations

import functools
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Sequence

import urllib3.exceptions
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.remote_connection import ChromeRemoteConnection
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.client_config import ClientConfig
from selenium.webdriver.remote.file_detector import LocalFileDetector
from selenium.webdriver.remote.webdriver import WebDriver

from collection.browser.config import DESKTOP, BrowserConfig
from collection.browser.errors import first_line
from collection.browser.guard.flags import LOCAL_STATE, PREFERENCES
from collection.browser.guard.managed import show_policy
from collection.browser.processes import (
    OWNER,
    SHORT_FOLDER,
    find_program,
    kill_session,
    make_profile,
    owner_mark,
)
from rmsweb_jax.errors import UserError
from rmsweb_jax.processes import die_with_parent

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
    # Questions nobody is there to answer: may this page use the camera, where to print to.
    "--deny-permission-prompts",
    "--disable-print-preview",
    # The address bar's lists, which are pages with processes of their own that nobody sees.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",
    # The same page has to give the same pixels. Otherwise what of it was painted anew has other rounded
    # corners by one grey level, and large pictures are painted some frames after the rest.
    "--disable-partial-raster",
    "--disable-checker-imaging",
)
_PREFERENCES = {
    **PREFERENCES,
    # A PDF is a file to read, not a page: the viewer's page has no text of its own.
    "plugins.always_open_pdf_externally": True,
    "download.prompt_for_download": False,
    # Links that an earlier episode has followed must not look it in a later one.
    "history.saving_disabled": True,
}
# The driver answers within its own limits, or not at all: it is waited for so much longer than for a page.
_DRIVER_GRACE_S = 5.0
# Keys and secrets of the collector are no business of a browser's.
_INHERITED = ("PATH", "HOME", "USER", "LANG", "LC_", "TZ", "LD_", "FONTCONFIG_", "XDG_", "DISPLAY", "DBUS_")
# A socket's path has at most 107 bytes, and a browser that cannot make this one below TMPDIR ends at once.
_SOCKET = "/org.chromium.Chromium.XXXXXX/SingletonSocket"
TEMPORARY_BYTES = 107 - len(_SOCKET)


class DriverProcess:
    """A running driver with its browser.

    Attributes:
      driver: the WebDriver session.
      pid: the local driver's process, which leads the session of all processes; 0 on a grid.
      profile: folder of a local browser, with everything that it and its driver write; "" on a grid.

    Raises:
      UserError: Chromium, its driver or the grid is missing or does not start.
    """

    def __init__(self, config: BrowserConfig, guard_flags: Sequence[str]) -> None:
        self.profile = self._temporary = ""
        self._service: Service | None = None
        options = _options(config, guard_flags)
        try:
            if config.grid_url:
                self.driver = self._start_on_grid(config, options)
            else:
                self.driver = self._start_here(config, options)
        except (WebDriverException, urllib3.exceptions.HTTPError, OSError) as error:
            self.end()
            where = config.grid_url or config.chromedriver or "chromedriver"
            raise UserError(
                f"no browser session from {where}: {first_line(error)}; check that chromium and "
                "chromium-driver have the same version, or the grid's address"
            ) from error
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        process = getattr(self._service, "process", None)
        return 0 if process is None else process.pid

    @property
    def downloads(self) -> pathlib.Path | None:
        """Where downloads arrive; None on a grid, whose nodes keep them."""
        return pathlib.Path(self.profile, "incoming") if self.profile else None

    @property
    def port(self) -> int:
        """Where the local driver listens; 0 on a grid."""
        return 0 if self._service is None else self._service.port

    def end(self) -> None:
        """Kills whatever is left of a local browser and removes its files."""
        process = getattr(self._service, "process", None)
        if process is not None:
            kill_session(process.pid)
            process.wait()
        for folder in filter(None, (self.profile, self._temporary)):
            shutil.rmtree(folder, ignore_errors=True)

    def _start_on_grid(self, config: BrowserConfig, options: webdriver.ChromeOptions) -> WebDriver:
        client = ClientConfig(config.grid_url, timeout=_patience(config))  # type: ignore[arg-type]
        connection = ChromeRemoteConnection(config.grid_url, client_config=client)
        driver = webdriver.Remote(connection, options=options)
        # Files to upload are here, the browser is not.
        driver.file_detector = LocalFileDetector()
        return driver

    def _start_here(self, config: BrowserConfig, options: webdriver.ChromeOptions) -> WebDriver:
        options.binary_location = find_program(
            config.chromium, ("chromium", "chromium-browser", "google-chrome")
        )
        if config.user_agent == DESKTOP:
            options.add_argument(f"--user-agent={_desktop_agent(options.binary_location)}")
        chromedriver = find_program(config.chromedriver, ("chromedriver",))
        self.profile = make_profile()
        self._temporary = str(pathlib.Path(self.profile, "tmp"))
        if len(os.fsencode(self._temporary)) <= TEMPORARY_BYTES:
            os.mkdir(self._temporary)
        else:
            self._temporary = make_profile(SHORT_FOLDER)
        options.add_argument(f"--user-data-dir={self.profile}")
        # Through a pipe the browser notices at once that its driver has died, and ends.
        options.add_argument("--remote-debugging-pipe")
        # What both would leave in the system's temporary folder goes away with theirs.
        environment = {
            **{name: value for name, value in os.environ.items() if name.startswith(_INHERITED)},
            "TMPDIR": self._temporary,
            OWNER: f"{owner_mark()}:{self.profile}",
        }
        # A session of its own: signals to us do not reach it, and all its processes can be found.

        def begin() -> None:
            # Where it is not permitted, preferences and the guard's own checks do without.
            show_policy()
            die_with_parent()

        start = {"start_new_session": True, "preexec_fn": begin}
        self._service = Service(chromedriver, env=environment, popen_kw=start)
        driver = webdriver.Chrome(options=options, service=self._service)
        # A driver that hangs is noticed here, not by whoever waits for the episode.
        driver.command_executor.client_config.timeout = _patience(config)  # type: ignore[union-attr]
        return driver


@functools.cache
def _desktop_agent(chromium: str) -> str:
    """As this version calls itself in a window; its client hints tell the same already."""
    told = subprocess.run((chromium, "--version"), capture_output=True, text=True, timeout=30, check=False)
    version = re.search(r"(\d+)\.\d+\.\d+\.\d+", told.stdout)
    if version is None:
        raise UserError(f"{chromium} --version: no version; give config.browser.user_agent as a whole string")
    # Beyond the first number a browser tells zeros.
    return (
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) "
        f"Chrome/{version[1]}.0.0.0 Safari/537.36"
    )


def _patience(config: BrowserConfig) -> float:
    return max(config.page_load_seconds, config.script_seconds) + _DRIVER_GRACE_S


def _options(config: BrowserConfig, guard_flags: Sequence[str]) -> webdriver.ChromeOptions:
    options = webdriver.ChromeOptions()
    rules = [f"--host-resolver-rules={', '.join(config.host_rules)}"] if config.host_rules else []
    size = f"--window-size={config.width},{config.height}"
    # A flag reaches what pages open and their workers, from the first request on; a tab's setting does not.
    agent = [f"--user-agent={config.user_agent}"] if config.user_agent not in ("", DESKTOP) else []
    # Of a flag given twice the last one counts: that is the guard's.
    for flag in (*FLAGS, size, *rules, *agent, *config.flags, *guard_flags):
        options.add_argument(flag)
    options.add_experimental_option("prefs", _PREFERENCES)
    options.add_experimental_option("localState", LOCAL_STATE)
    # As for people: one window a click, none unasked for.
    options.add_experimental_option("excludeSwitches", ["disable-popup-blocking"])
    # Dismissed, never accepted; "and notify" is what gives us the text.
    options.set_capability("unhandledPromptBehavior", "dismiss and notify")
    return options
