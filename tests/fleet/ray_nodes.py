"""Ray on this machine as a head and several nodes, which share no folder with each other or with the driver.

Each node has an address of its own on loopback and runs in a mount namespace of its own, in which `/tmp` is
empty and the driver's folder is covered by an empty one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil

from rmsweb_jax.processes import die_with_parent

ROOT = Path(__file__).parents[2]
_STARTS = 5
_RAY = (sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats")
_HIDE = (
    'mount -t tmpfs none /tmp && mkdir -p "$1" "$2" && mount -t tmpfs none "$1" && cd "$2" '
    '&& shift 2 && exec "$@"'
)


class RayNodes:
    """The head, on which no actor fits, and `nodes`; used with `with`.

    Args:
      folder: for logs.
      packages: folder with Ray.
      hidden: folder that the nodes do not see.
      variables: of the nodes' environment.
    """

    def __init__(self, folder: Path, packages: Path, hidden: Path, nodes: int, variables: dict[str, str]):
        folder.mkdir(parents=True)
        self._folder, self._hidden, self._count = folder, hidden, nodes
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{sock.getsockname()[1]}"
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, packages))),
            "RAY_DISABLE_IMPORT_WARNING": "1",
        }
        self._variables = variables
        self.nodes: list[subprocess.Popen[bytes]] = []
        self._head: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RayNodes:
        port = self.address.partition(":")[2]
        head = [*_RAY, "--head", f"--port={port}", "--num-cpus=0", "--node-ip-address=127.0.0.1"]
        # Short: a socket's path has 107 bytes at most.
        head += ["--include-dashboard=false", f"--temp-dir={self._folder / 'h'}"]
        self._head = self._start("head", head, self._environment)
        for number in range(self._count):
            # A resource by which the run asks for these nodes.
            node = [*_RAY, f"--address={self.address}", f"--node-ip-address=127.0.0.{number + 2}"]
            node += ["--num-cpus=1", '--resources={"browser": 1}']
            hide = ["unshare", "--mount", "--propagation=private", "sh", "-c", _HIDE, "hide"]
            if os.geteuid():
                hide[1:1] = ["--user", "--map-root-user"]
            command = [*hide, str(self._hidden), f"/tmp/node{number}", *node]
            self.nodes.append(self._start(f"node{number}", command, self._environment | self._variables))
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.nodes, self._head):
            if process is not None:
                self._kill(process)

    def kill(self, number: int) -> None:
        """Ends a node with all its processes at once, as if its machine had gone."""
        self._kill(self.nodes[number])

    def seeing(self) -> int:
        """The number of the nodes' processes to which the driver's folder is there."""
        family = [one for node in self.nodes if node.poll() is None for one in _family(node.pid)]
        marks = [Path(f"/proc/{one.pid}/root{self._hidden}").joinpath("run") for one in family]
        return sum(mark.exists() for mark in marks)

    def busy(self) -> list[int]:
        """The nodes on which a browser runs."""
        return [
            number
            for number, node in enumerate(self.nodes)
            if node.poll() is None and any(_name(one).startswith("chrom") for one in _family(node.pid))
        ]

    def _start(self, name: str, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        """Starts a node and waits until it has joined; again if Ray gave up, as it does on a busy machine."""
        path = self._folder / f"{name}.log"
        for _ in range(_STARTS):
            with open(path, "wb") as log:
                process = subprocess.Popen(
                    command,
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    env=environment,
                    cwd=self._folder,
                    preexec_fn=die_with_parent,
                )
            while process.poll() is None:
                if b"will now block" in path.read_bytes():
                    return process
                time.sleep(0.2)
            self._kill(process)
        raise RuntimeError(f"{name} did not start: {path.read_text()[-2000:]}")

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        family = _family(process.pid)
        for one in family:
            with contextlib.suppress(psutil.Error):
                one.kill()
        process.wait()
        psutil.wait_procs(family, timeout=30)


def _family(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    return []


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return process.name()
    return ""
