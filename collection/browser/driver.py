"""Start of Chromium with its driver."""

from __future__ import annotations

import functools
import os
import pathlib
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import urllib3.exceptions
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.remote_connection import ChromeRemoteConnection
from selenium.webdriver.common.proxy import Proxy, ProxyType
from selenium.webdriver.remote.client_config import ClientConfig
from selenium.webdriver.remote.file_detector import UselessFileDetector
from selenium.webdriver.remote.webdriver import WebDriver

from collection.browser.config import DESKTOP, BrowserConfig, first_line
from collection.browser.display import BARS_HEIGHT, VirtualDisplay
from collection.browser.guard.chromium_policy import LOCAL_STATE, PREFERENCES, expose_policy
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
    # Permission prompts would wait for a user.
    "--deny-permission-prompts",
    # The address bar's popups are pages with processes of their own.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",
    # The same page must give the same pixels. With partial raster, repainted rounded corners differ by one
    # grey level; with checker imaging, large images are painted some frames after the rest.
    "--disable-partial-raster",
    "--disable-checker-imaging",
)
_PREFERENCES = {
    **PREFERENCES,
    # A PDF is downloaded and read as a file; the viewer's page has no text.
    "plugins.always_open_pdf_externally": True,
    "download.prompt_for_download": False,
    # A print dialog would wait for a user.
    "printing.enabled": False,
    # Links followed in an earlier episode must not have the visited style in a later one.
    "history.saving_disabled": True,
}
# The driver keeps its own time limits; it hangs if it has not answered this long after them.
_DRIVER_GRACE_S = 5.0
# The driver says which port it has. It takes one that is free for IPv6, and ends if IPv4 has that in use.
_PORT = re.compile(r"started successfully on port (\d+)\.")
_PORT_TAKEN = "port not available"
_PORT_TRIES, _PORT_S, _PORT_POLL_S = 10, 60.0, 0.01
_LAUNCHER = pathlib.Path(__file__).with_name("chromium.sh")
# The browser gets no other variables: the collector's environment contains API keys and secrets.
_INHERITED = ("PATH", "HOME", "USER", "LANG", "LC_", "TZ", "LD_", "FONTCONFIG_", "XDG_", "DISPLAY", "DBUS_")
# A socket's path has at most 107 bytes, and a browser that cannot create this one below TMPDIR exits at once.
_SOCKET = "/org.chromium.Chromium.XXXXXX/SingletonSocket"
TEMPORARY_BYTES = 107 - len(_SOCKET)


class DriverProcess:
    """A running driver with its browser.

    Attributes:
      driver: the WebDriver session.
      profile: folder with all files of the browser and its driver.

    Raises:
      UserError: Chromium or its driver is missing or does not start.
    """

    def __init__(self, config: BrowserConfig, guard_flags: Sequence[str]) -> None:
        self.profile = self._temporary = ""
        self._display: VirtualDisplay | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        options = _options(config, guard_flags)
        try:
            self.driver = self._start(config, options)
        except (WebDriverException, urllib3.exceptions.HTTPError, OSError) as error:
            self.end()
            raise UserError(
                f"no browser session from {config.chromedriver or 'chromedriver'}: {first_line(error)}; "
                "check that chromium and chromium-driver have the same version"
            ) from error
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        """Process id of the driver, which leads the session of all processes."""
        assert self._process is not None
        return self._process.pid

    @property
    def downloads(self) -> pathlib.Path:
        """Download folder."""
        return pathlib.Path(self.profile, "incoming")

    @property
    def ports(self) -> tuple[int, int]:
        """Ports of the driver and of the browser's DevTools."""
        return self._port, urlsplit(self.devtools_url).port or 0

    @functools.cached_property
    def devtools_url(self) -> str:
        """WebSocket address of the browser's DevTools."""
        port, path = pathlib.Path(self.profile, "DevToolsActivePort").read_text().split()
        return f"ws://127.0.0.1:{port}{path}"

    def end(self) -> None:
        """Kills all processes of the browser and removes its files."""
        if self._process is not None:
            kill_session(self._process.pid)
            self._process.wait()
        if self._display is not None:
            self._display.close()
            self._display = None
        for folder in filter(None, (self.profile, self._temporary)):
            shutil.rmtree(folder, ignore_errors=True)

    def _start(self, config: BrowserConfig, options: webdriver.ChromeOptions) -> WebDriver:
        chromium, chromedriver = find_programs(config)
        options.binary_location = str(_LAUNCHER)
        if config.user_agent == DESKTOP:
            options.add_argument(f"--user-agent={_desktop_agent(chromium)}")
        if config.headed and not os.environ.get("DISPLAY"):
            self._display = VirtualDisplay(*config.screen_size)
        self.profile = make_profile()
        self._temporary = str(pathlib.Path(self.profile, "tmp"))
        if len(os.fsencode(self._temporary)) <= TEMPORARY_BYTES:
            os.mkdir(self._temporary)
        else:
            self._temporary = make_profile(SHORT_FOLDER)
        options.add_argument(f"--user-data-dir={self.profile}")
        options.add_argument("--remote-debugging-pipe")
        options.add_argument("--remote-debugging-port=0")
        # Temporary files of both are removed together with this folder.
        environment = {
            **{name: value for name, value in os.environ.items() if name.startswith(_INHERITED)},
            **({"TZ": config.timezone} if config.timezone else {}),
            **({"DISPLAY": self._display.name} if self._display else {}),
            "TMPDIR": self._temporary,
            "RMSWEB_CHROMIUM": chromium,
            OWNER: f"{owner_mark()}:{self.profile}",
        }
        self._start_driver(chromedriver, environment)
        # The environment's proxy does not lead back to this machine.
        direct = Proxy(raw={"proxyType": ProxyType.DIRECT})
        client = ClientConfig(f"http://127.0.0.1:{self._port}", proxy=direct)
        connection = ChromeRemoteConnection(client.remote_server_addr, client_config=client)
        driver = webdriver.Remote(connection, options=options)
        driver.file_detector = UselessFileDetector()
        # Without a timeout, a hanging driver would block the episode for ever.
        client.timeout = max(config.page_load_seconds, config.script_seconds) + _DRIVER_GRACE_S
        return driver

    def _start_driver(self, chromedriver: str, environment: Mapping[str, str]) -> None:
        """Starts the driver on a port that it chooses itself.

        A free port that is chosen here could be another driver's by the time that this one starts, and the
        session would be made there.
        """

        def before_exec() -> None:
            # Without permission, preferences and the guard's own checks still apply.
            expose_policy()
            die_with_parent()

        log = pathlib.Path(self.profile, "driver.log")
        deadline = time.monotonic() + _PORT_S
        for _ in range(_PORT_TRIES):
            with log.open("wb") as output:
                # In a session of its own, our signals do not reach the browser, and all its processes can be
                # found.
                self._process = subprocess.Popen(
                    (chromedriver, "--port=0"),
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    preexec_fn=before_exec,
                )
            while self._process.poll() is None and time.monotonic() < deadline:
                text = log.read_text(errors="replace")
                if found := _PORT.search(text):
                    self._port = int(found[1])
                    return
                time.sleep(_PORT_POLL_S)
            text = log.read_text(errors="replace")
            if _PORT_TAKEN not in text:
                break
        raise WebDriverException(f"the driver did not start: {' '.join(text.split())[-150:] or 'no output'}")


def find_programs(config: BrowserConfig) -> tuple[str, str]:
    """Returns the paths of Chromium and its driver. Raises UserError if one is not installed."""
    chromium = find_program(config.chromium, ("chromium", "chromium-browser", "google-chrome"))
    chromedriver = find_program(config.chromedriver, ("chromedriver",))
    if shutil.which("setpriv") is None:
        raise UserError("setpriv, which starts the browser, is not found; install util-linux")
    return chromium, chromedriver


@functools.cache
def _desktop_agent(chromium: str) -> str:
    """Returns the user agent of this version in a window; its client hints are the same already."""
    output = subprocess.run((chromium, "--version"), capture_output=True, text=True, timeout=30, check=False)
    version = re.search(r"(\d+)\.\d+\.\d+\.\d+", output.stdout)
    if version is None:
        raise UserError(f"{chromium} --version: no version; give config.browser.user_agent as a whole string")
    # Browsers reduce their version to the major number in the user agent.
    return (
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) "
        f"Chrome/{version[1]}.0.0.0 Safari/537.36"
    )


def _options(config: BrowserConfig, guard_flags: Sequence[str]) -> webdriver.ChromeOptions:
    options = webdriver.ChromeOptions()
    rules = [f"--host-resolver-rules={', '.join(config.host_rules)}"] if config.host_rules else []
    # A window has bars.
    bars, mode = (BARS_HEIGHT, ()) if config.headed else (0, ("--headless=new",))
    size = f"--window-size={config.width},{config.height + bars}"
    languages = ",".join(dict.fromkeys((config.locale, config.locale.partition("-")[0])))
    # Headless mode has a screen of 800x600 of its own.
    place = (f"--screen-info={{{config.screen}}}", f"--lang={config.locale}", f"--accept-lang={languages}")
    # A flag also covers new windows and workers from their first request; a setting of a tab does not.
    agent = [f"--user-agent={config.user_agent}"] if config.user_agent not in ("", DESKTOP) else []
    # The last of several equal flags counts, so the guard's come last.
    for flag in (*FLAGS, *mode, size, *place, *rules, *agent, *config.flags, *guard_flags):
        options.add_argument(flag)
    options.add_experimental_option("prefs", _PREFERENCES)
    options.add_experimental_option("localState", LOCAL_STATE)
    # Keeps Chromium's popup blocker: one window per click, none without a click.
    options.add_experimental_option("excludeSwitches", ["disable-popup-blocking"])
    # `DevTools` answers dialogs.
    options.set_capability("unhandledPromptBehavior", "ignore")
    return options
