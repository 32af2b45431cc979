"""The hosts of a run: they find each other, begin with the same code, data and settings, and end together.

All goes through the coordination service of `jax.distributed`, which the first process serves.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import os
import secrets
import socket
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from importlib import metadata, resources
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import jax
from jax._src import distributed as jax_distributed  # The key-value store has no public name.
from ml_collections import ConfigDict

from rmsweb_jax.errors import UserError, user_message
from rmsweb_jax.signals import end_at_once, exit_process, leave_process
from rmsweb_jax.storage import AnyPath
from rmsweb_jax.workdir import flatten_settings, make_folder

# Seconds without a sign of life after which JAX's service takes a process for lost, and aborts the others.
_HEARTBEAT_S = 30
# Seconds in which the first process uploads a model, while the others have ended.
_SHUTDOWN_S = 7200
# Seconds in which a process that hears of another's end may reach its own, for example after SIGTERM to all.
_GRACE_S = 10.0
# Milliseconds in which all others hear of a process's end.
_HEARD_MS = 20_000
# Longest wait for what another host computes at the start.
_ANSWER_MS = 120_000
# Differences that a message lists.
_LISTED = 5

_VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
_BY_HAND = (
    f"set {_VARIABLES[0]} (HOST:PORT of the first process), {_VARIABLES[1]} and {_VARIABLES[2]} (0, 1, ...) "
    "for each process, or leave the flag out on a single host"
)


def join_processes() -> None:
    """Connects to the other processes of a run; must be called before anything else asks JAX for devices.

    JAX recognises Cloud TPU, GKE, Slurm and Open MPI (`jax._src.clusters`). Elsewhere `_VARIABLES` are set.

    Raises:
      UserError: the variables are incomplete, no cluster is recognised, or a process does not come.
    """
    given = {name: os.environ[name] for name in _VARIABLES if os.environ.get(name)}
    missing = [name for name in _VARIABLES if name not in given]
    if given and missing:
        raise UserError(f"--distributed: {', '.join(missing)} not set, but {', '.join(given)}: set all three")
    arguments: dict[str, Any] = {}
    if given:
        address, count, number = (given[name] for name in _VARIABLES)
        if not (count.isdecimal() and number.isdecimal() and int(number) < int(count) and ":" in address):
            values = ", ".join(f"{name}={value}" for name, value in given.items())
            raise UserError(f"--distributed: {values}: {_BY_HAND}")
        arguments = {
            "coordinator_address": address,
            "num_processes": int(count),
            "process_id": int(number),
            "cluster_detection_method": "deactivate",
        }
    # JAX's own handler would swallow SIGTERM, which rmsweb_jax.signals.StopRequest needs.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            **arguments, heartbeat_timeout_seconds=_HEARTBEAT_S, shutdown_timeout_seconds=_SHUTDOWN_S
        )
    except (ValueError, RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        if "coordinator_address" in reason:
            raise UserError(
                "--distributed: no cluster found: looked for Cloud TPU (its metadata server), GKE "
                "(TPU_WORKER_HOSTNAMES, or KUBERNETES_SERVICE_HOST and the package kubernetes), Slurm (the "
                f"variables of srun) and Open MPI (OMPI_MCA_orte_hnp_uri of mpirun). By hand {_BY_HAND}"
            ) from error
        raise UserError(f"--distributed: the processes could not join ({reason}): {_BY_HAND}") from error


class Hosts(contextlib.AbstractContextManager["Hosts"]):
    """Joins the processes of a run; inside, they end together.

    A process that ends with an error ends all others with its code, and a line that names it. If one is lost,
    JAX's service aborts the others. An error never leaves the context: it ends this process, because JAX's
    shutdown would wait for the others.

    Attributes:
      number: of this process, from 0.

    Raises:
      UserError: see `join_processes`.
    """

    def __init__(self) -> None:
        join_processes()
        state = jax_distributed.global_state
        assert state.client is not None
        self._client = state.client
        self.number, self._count = state.process_id, state.num_processes
        self._done, self._leaving = threading.Event(), threading.Lock()
        self._watcher = threading.Thread(target=self._watch, name="watch-hosts", daemon=True)
        self._name = f"{socket.gethostname()} (process {self.number})"

    def __enter__(self) -> Hosts:
        self._watcher.start()
        end_at_once(self._leave)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            jax.distributed.shutdown()  # Waits for all.
            end_at_once(leave_process)
            # A thread inside the client would abort the interpreter when that ends.
            self._done.set()
            self._watcher.join()
            return
        if (known := user_message(error)) is not None:
            self._leave(known[1], known[0])
        if isinstance(error, SystemExit):
            self._leave(error.code if isinstance(error.code, int) else 1, "")
        # Collectives and checkpoints also fail, with errors of many types, when another process is lost. That
        # must not look like an error of this one: JAX aborts it meanwhile.
        time.sleep(_HEARTBEAT_S + 5)
        traceback.print_exception(error)
        self._leave(1, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")

    def agree(self, config: ConfigDict, workdir: AnyPath) -> None:
        """Compares what all hosts are about to run; all must call this.

        Data sets and models are compared when they are opened, see `training.identity`.

        Raises:
          UserError: they differ, on all hosts alike; the message names the host, and what differs.
        """
        facts = _settings(config) | _versions()
        mark = f".hosts-{secrets.token_hex(8)}"
        if self.number == 0:
            if isinstance(workdir, Path):
                make_folder(workdir)
                (workdir / mark).touch()
            self._client.key_value_set("rmsweb/workdir", json.dumps([str(workdir), mark]))
        name, shared = json.loads(self._client.blocking_key_value_get("rmsweb/workdir", _ANSWER_MS))
        facts["--workdir"] = str(workdir)
        if isinstance(workdir, Path):
            seen = (workdir / shared).exists()
            facts["--workdir"] = name if seen else f"{workdir}, a folder of that host alone"
        self._client.key_value_set(f"rmsweb/facts/{self.number}", json.dumps([self._name, facts]))
        if self.number == 0:
            try:
                answers = [json.loads(self._answer(number)) for number in range(self._count)]
            finally:
                if isinstance(workdir, Path):
                    (workdir / mark).unlink(missing_ok=True)
            names, every = zip(*answers, strict=True)
            self._client.key_value_set("rmsweb/verdict", differences(names, every))
        if verdict := self._client.blocking_key_value_get("rmsweb/verdict", 2 * _ANSWER_MS):
            raise UserError(verdict)

    def meet(self, place: str) -> None:
        """Returns when all processes have called it with this name."""
        self._client.wait_at_barrier(f"rmsweb/{place}", _ANSWER_MS)

    def _answer(self, number: int) -> str:
        try:
            return self._client.blocking_key_value_get(f"rmsweb/facts/{number}", _ANSWER_MS)
        except RuntimeError as error:
            raise UserError(
                f"process {number} did not say in {_ANSWER_MS // 1000} s what it runs: look at its log"
            ) from error

    def _watch(self) -> None:
        """Ends this process once another one has ended with an error."""
        while not self._done.wait(1.0):
            # Without the service, JAX aborts this process.
            with contextlib.suppress(RuntimeError, ValueError):
                for key, ended in self._client.key_value_dir_get("rmsweb/ended/"):
                    if not key.endswith(f"/{self.number}") and not self._done.wait(_GRACE_S):
                        self._leave(*json.loads(ended))

    def _leave(self, code: int, line: str) -> NoReturn:
        """Ends this process once the others know why; of several threads the first one does."""
        why = f"{self._name} ended: {line or f'exit code {code}'}"
        with self._leaving:
            with contextlib.suppress(RuntimeError, ValueError):
                self._client.key_value_set(f"rmsweb/ended/{self.number}", json.dumps([code, why]))
                # The first process serves the others; it must not go before they have heard.
                self._client.wait_at_barrier("rmsweb/end", _HEARD_MS)
            exit_process(code, line)


def differences(names: Sequence[str], facts: Sequence[Mapping[str, str]]) -> str:
    """Says in one line which hosts differ from most of them, and in what; "" if none does.

    Args:
      names: of the hosts; of two equal halves the one with the first host counts as most.
      facts: of each host what it runs, by name.
    """
    found = []
    for what in dict.fromkeys(name for one in facts for name in one):
        values = [one.get(what, "not there") for one in facts]
        most = collections.Counter(values).most_common(1)[0][0]
        like = names[values.index(most)]
        found += [
            f"{name} has {what} = {value}, but {like} has {most}"
            for name, value in zip(names, values, strict=True)
            if value != most
        ]
    if not found:
        return ""
    more = f"; and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return (
        f"the hosts of this run differ: {'; '.join(found[:_LISTED])}{more}: start the same command with the "
        "same code, data and workdir on all"
    )


def _settings(config: ConfigDict) -> dict[str, str]:
    flat = flatten_settings(json.loads(config.to_json_best_effort()))
    return {f"config.{name}": json.dumps(value) for name, value in flat.items()}


def _versions() -> dict[str, str]:
    """Versions of what computes, and a digest of each source file of this package."""
    versions = {name: metadata.version(name) for name in ("rmsweb-jax", "jax", "jaxlib")}
    root = Path(str(resources.files("rmsweb_jax")))
    files = {f"{path.relative_to(root.parent)}": _digest(path.read_bytes()) for path in root.rglob("*.py")}
    return {f"version of {name}": version for name, version in versions.items()} | dict(sorted(files.items()))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
