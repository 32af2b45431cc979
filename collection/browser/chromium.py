"""Chromium with its driver: programs, start, processes and end.

The driver and all processes of its browser are in a session of their own. The driver is killed when this
process dies, and the browser when the driver does, so nothing outlives a killed collector but a folder.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import psutil
import urllib3.exceptions
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.remote_connection import ChromeRemoteConnection
from selenium.webdriver.common.proxy import Proxy, ProxyType
from selenium.webdriver.remote.client_config import ClientConfig
from selenium.webdriver.remote.file_detector import UselessFileDetector
from selenium.webdriver.remote.webdriver import WebDriver

from collection.browser.config import DESKTOP, BrowserConfig, first_line
from collection.browser.guard.chromium_policy import LOCAL_STATE, PREFERENCES, expose_policy
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
TEMPORARY_BYTES = 107 - len("/org.chromium.Chromium.XXXXXX/SingletonSocket")
SHORT_FOLDER, PREFIX = "/tmp", "rmsweb."
PROFILE = "RMSWEB_PROFILE"  # The environment variable of a browser with its folder.
# A page in an endless loop is runnable all the time, whether or not a busy machine gives it a core.
_SAMPLES, _SAMPLE_S, _BUSY_SHARE = 10, 0.03, 0.8
_KILL_S = 5.0
# Room for a window's own bars, in pixels, so that the whole viewport is on the screen.
_BARS_HEIGHT = 200


class DriverProcess:
    """A running driver with its browser.

    Attributes:
      driver: the WebDriver session.
      profile: folder with all files of the browser and its driver.

    Raises:
      UserError: Chromium or its driver is missing or does not start.
    """

    def __init__(self, config: BrowserConfig, guard_flags: Sequence[str]) -> None:
        reap_orphans()
        self._folders: list[str] = []
        self._display: subprocess.Popen[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.driver = self._start(config, _options(config, guard_flags))
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

    @property
    def members(self) -> list[int]:
        """Process ids of the session, its leader, the driver, first."""
        assert self._process is not None
        return session_members(self._process.pid)

    @property
    def memory_mb(self) -> float:
        """Unshared memory of all processes in MB; the exact figure (PSS) would take thirty times as long."""
        total = 0
        for pid in self.members:
            with contextlib.suppress(psutil.Error):
                used = psutil.Process(pid).memory_info()
                total += used.rss - used.shared
        return total / 1e6

    def end(self) -> None:
        """Kills all processes of the browser and removes its files."""
        if self._process is not None:
            kill_session(self._process.pid)
            self._process.wait()
        if self._display is not None:
            self._display.terminate()  # It removes its lock when it is asked to end.
            self._display.wait()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _start(self, config: BrowserConfig, options: webdriver.ChromeOptions) -> WebDriver:
        chromium, chromedriver = find_programs(config)
        options.binary_location = str(_LAUNCHER)
        if config.user_agent == DESKTOP:
            options.add_argument(f"--user-agent={_desktop_agent(chromium)}")
        display = {}
        if config.headed and not os.environ.get("DISPLAY"):
            self._display, display["DISPLAY"] = _open_display(*config.screen_size)
        self.profile = self._make_folder(None)
        temporary = str(pathlib.Path(self.profile, "tmp"))
        if len(os.fsencode(temporary)) <= TEMPORARY_BYTES:
            os.mkdir(temporary)
        else:
            temporary = self._make_folder(SHORT_FOLDER)
        options.add_argument(f"--user-data-dir={self.profile}")
        options.add_argument("--remote-debugging-pipe")
        options.add_argument("--remote-debugging-port=0")
        # Temporary files of both are removed together with this folder.
        environment = {
            **{name: value for name, value in os.environ.items() if name.startswith(_INHERITED)},
            **({"TZ": config.timezone} if config.timezone else {}),
            **display,
            "TMPDIR": temporary,
            "RMSWEB_CHROMIUM": chromium,
            PROFILE: self.profile,
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

    def _make_folder(self, within: str | None) -> str:
        """Creates a folder whose name contains the owner's mark, in the system's temporary one by default."""
        self._folders.append(tempfile.mkdtemp(prefix=f"{PREFIX}{owner_mark()}-", dir=within))
        return self._folders[-1]

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


def find_program(path: str, names: tuple[str, ...]) -> str:
    """Returns the path of a program: `path`, or the first of `names` on PATH. Raises UserError if missing."""
    found = shutil.which(path) if path else next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise UserError(
            f"{path or names[0]} not found; install chromium and chromium-driver "
            "(Debian: apt-get install chromium chromium-driver), or add their folder to PATH"
        )
    return found


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
    bars, mode = (_BARS_HEIGHT, ()) if config.headed else (0, ("--headless=new",))
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


def _open_display(width: int, height: int) -> tuple[subprocess.Popen[str], str]:
    """Starts a virtual screen for browsers with a window, Debian's Xvfb; returns it and the value of DISPLAY.

    Raises:
      UserError: Xvfb is missing or does not start.
    """
    program = shutil.which("Xvfb")
    if program is None:
        raise UserError(
            "config.browser.headed: there is no DISPLAY, and Xvfb is not found; install xvfb (Debian: "
            "apt-get install xvfb), or set DISPLAY"
        )
    screen = f"{width}x{height + _BARS_HEIGHT}x24"
    process = subprocess.Popen(
        [program, "-displayfd", "1", "-screen", "0", screen, "-nolisten", "tcp"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=die_with_parent,
    )
    assert process.stdout is not None
    with process.stdout:
        number = process.stdout.readline().strip()
    if not number.isdigit():  # It has ended.
        process.wait()
        raise UserError(f"config.browser.headed: {program} does not start with a screen of {screen}")
    return process, f":{number}"


def owner_mark() -> str:
    """Returns `PID-STARTED` of this process; the start time is needed because process ids are reused."""
    return f"{os.getpid()}-{_started(os.getpid())}"


def reap_orphans() -> None:
    """Kills what is left of browsers whose owning process is gone, and removes their folders."""
    psutil.process_iter.cache_clear()  # It keeps the names of processes whose numbers have been given again.
    for process in psutil.process_iter(["name"]):
        if (process.info["name"] or "").startswith("chrom"):
            with contextlib.suppress(psutil.Error, OSError):
                if _is_orphan(process.environ().get(PROFILE, "")):
                    kill_session(os.getsid(process.pid))
    for parent in {tempfile.gettempdir(), SHORT_FOLDER}:
        for folder in filter(_is_orphan, glob.glob(f"{glob.escape(parent)}/{PREFIX}*")):
            shutil.rmtree(folder, ignore_errors=True)


def _is_orphan(folder: str) -> bool:
    """Returns True for the folder of a browser whose owner does not run; False for any other folder."""
    found = re.match(rf"{PREFIX}(\d+)-(\d+)-", os.path.basename(folder))
    return found is not None and _started(int(found[1])) != int(found[2])


def _started(pid: int) -> int:
    """Returns the start time of a process in hundredths of a second; -1 if it does not run."""
    try:
        return round(psutil.Process(pid).create_time() * 100)
    except psutil.Error:
        return -1


def kill_busy_renderers(pids: list[int]) -> int:
    """Kills renderer processes that compute without a pause; returns their number."""
    runnable: dict[psutil.Process, int] = {}
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if "--type=renderer" in process.cmdline():
                runnable[process] = 0
    for _ in range(_SAMPLES):
        for process in runnable:
            with contextlib.suppress(psutil.Error):
                runnable[process] += process.status() == psutil.STATUS_RUNNING
        time.sleep(_SAMPLE_S)
    busy = [process for process, samples in runnable.items() if samples >= _BUSY_SHARE * _SAMPLES]
    for process in busy:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return len(busy)


def session_members(leader: int) -> list[int]:
    """Returns the process ids of a session, its leader first."""
    members = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if os.getsid(pid) == leader:
                members.append(pid)
    return sorted(members, key=lambda pid: pid != leader)


def kill_session(leader: int) -> None:
    """Kills all processes of a session until only zombies (children of other processes) are left."""
    deadline = time.monotonic() + _KILL_S
    living = [leader]
    while living and time.monotonic() < deadline:
        living = []
        for pid in session_members(leader):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    process.kill()
                    living.append(process)
        psutil.wait_procs(living, timeout=0.05)
