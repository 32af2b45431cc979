"""Training runs that are killed and resumed, and what is compared of them."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from rmsweb_jax.training.metrics import METRICS_FILE
from tests.loopback import free_port
from tests.virtual_devices import device_environment

ROOT = Path(__file__).parents[2]
# How long things took, by the first part of a metric's name.
TIMING = {"time", "tokens_per_second", "step_seconds", "data_wait"}


class Run:
    """A run of an experiment in a workdir of its own, on one or several processes.

    Args:
      root: the workdir is in it; what the processes print goes to its file `log`.
      name: of the workdir.
      command: what Python is given: the module, the config and settings that all these runs share.
      hosts: virtual devices are split over so many processes, or all are those of one.
    """

    def __init__(self, root: Path, name: str, command: Sequence[str], hosts: int = 1):
        self.root, self.workdir, self._command, self._hosts = root, root / name, command, hosts

    def start(
        self, processes: int = 1, changes: Sequence[str] = (), devices: int = 1
    ) -> list[subprocess.Popen[bytes]]:
        """Begins or continues it.

        Args:
          processes: of jax.distributed; several split the rows of a batch.
          changes: settings of this start alone.
          devices: virtual ones of each process.
        """
        command = [sys.executable, *self._command, f"--workdir={self.workdir}", *changes]
        # As many devices in all, whatever the number of processes: the rows of a batch follow from it.
        environment = device_environment(max(1, devices * self._hosts // processes))
        if processes == 1:
            return [self._popen(command, environment)]
        address = f"127.0.0.1:{free_port()}"
        command += ["--distributed", f"--config.mesh.data={processes}", "--config.mesh.fsdp=1"]
        return [
            self._popen(
                command,
                environment
                | {
                    "JAX_COORDINATOR_ADDRESS": address,
                    "JAX_NUM_PROCESSES": str(processes),
                    "JAX_PROCESS_ID": str(number),
                },
            )
            for number in range(processes)
        ]

    def _popen(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with open(self.root / "log", "ab") as log:
            return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)

    def finish(self, processes: int = 1, changes: Sequence[str] = (), devices: int = 1) -> None:
        codes = [process.wait() for process in self.start(processes, changes, devices)]
        if any(codes):
            raise SystemExit(f"error: exit codes {codes}; log:\n{(self.root / 'log').read_text()[-3000:]}")

    def kill_after(
        self, step: int, processes: int = 1, changes: Sequence[str] = (), file: str = METRICS_FILE
    ) -> int:
        """SIGKILLs the run once `file` has a row of `step`; the last step that it had rows of then."""
        started = self._reach(step, self.start(processes, changes), file)
        for process in started:
            process.send_signal(signal.SIGKILL)
        for process in started:
            process.wait()
        return self.logged(file)

    def stop_after(self, step: int, processes: int = 1, changes: Sequence[str] = ()) -> tuple[int, list[int]]:
        """Sends SIGTERM to the last process once `step` is logged; the last logged step, exit codes."""
        started = self._reach(step, self.start(processes, changes), METRICS_FILE)
        started[-1].send_signal(signal.SIGTERM)
        codes = [process.wait() for process in started]
        return self.logged(), codes

    def _reach(
        self, step: int, started: list[subprocess.Popen[bytes]], file: str
    ) -> list[subprocess.Popen[bytes]]:
        while self.logged(file) < step:
            try:
                code = started[0].wait(timeout=0.01)
            except subprocess.TimeoutExpired:
                continue
            raise SystemExit(f"error: ended with {code} before step {step}; see {self.root / 'log'}")
        return started

    def logged(self, file: str = METRICS_FILE) -> int:
        rows = self.rows(file)
        return rows[-1]["step"] if rows else 0

    def rows(self, file: str = METRICS_FILE) -> list[dict[str, Any]]:
        path = self.workdir / file
        if not path.exists():
            return []
        lines = path.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def curves(self) -> list[dict[str, Any]]:
        """All that was measured but for how long it took."""
        return [untimed(row) for row in self.rows()]

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows()]

    def state(self, step: int) -> dict[str, np.ndarray]:
        """Adapters and optimizer state of a checkpoint, by path."""
        folder = self.workdir / "checkpoints" / str(step) / "state"
        reader = ocp.StandardCheckpointer()
        stored = reader.metadata(folder.resolve()).item_metadata
        assert stored is not None, f"{folder}: no checkpoint"
        here = jax.sharding.SingleDeviceSharding(jax.devices()[0])  # On any device.
        wanted = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), stored.tree)
        tree = reader.restore(folder.resolve(), wanted)
        return {
            jax.tree_util.keystr(path): np.asarray(leaf)
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
        }

    def digests(self, step: int) -> dict[str, str]:
        """SHA-256 of adapters and of optimizer state."""
        digests = {"params": hashlib.sha256(), "opt_state": hashlib.sha256()}
        for path, leaf in sorted(self.state(step).items()):
            part = digests["params" if is_adapter(path) else "opt_state"]
            part.update(path.encode() + str(leaf.dtype).encode() + leaf.tobytes())
        return {name: digest.hexdigest() for name, digest in digests.items()}


def command(module: str, config: str, settings: Mapping[str, Any]) -> list[str]:
    """The command of a `Run`."""
    changes = [f"--config.{name}={value}" for name, value in settings.items()]
    return ["-m", module, f"--config={config}", *changes]


def untimed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics but for how long things took."""
    return {name: value for name, value in row.items() if name.partition("/")[0] not in TIMING}


def is_adapter(path: str) -> bool:
    """True for arrays of a checkpoint's state that are adapter weights."""
    return "'params'" in path.split("]")[0]


def largest_difference(one: Sequence[float], other: Sequence[float]) -> float:
    return float(np.max(np.abs(np.subtract(one, other))))


def furthest_weight(one: Run, other: Run, step: int) -> float:
    """Largest difference of an adapter weight between two runs' checkpoints."""
    ours, theirs = one.state(step), other.state(step)
    apart = [np.abs(ours[path] - theirs[path]) for path in ours if is_adapter(path)]
    return max(float(np.max(part, initial=0)) for part in apart)
