"""Our own policy as the actor: starts the chat-completions server as a process of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import httpx

from collection.llm.config import ActorConfig
from rmsweb_jax.errors import UserError
from rmsweb_jax.processes import die_with_parent

_POLL_S = 0.2
_STOP_S = 10.0


class PolicyServer(contextlib.AbstractContextManager[str]):
    """Serves a model folder while the `with` block runs; its value is the endpoint's base URL.

    The server runs in its own process, since the browser side imports no jax, and ends with this
    process however that ends.

    Args:
      model: model folder, or the name of a packaged model.
      workdir: the server's folder: its log and `endpoint.json`.
      config: of `experiments.serve`, FILE:VARIANT.
      start_s: how long loading and compiling may take.

    Raises:
      UserError: the server ended or did not answer in time; its last line is quoted.
    """

    def __init__(self, model: str, workdir: Path, config: str, start_s: float = 1800.0):
        self._command = [
            *(sys.executable, "-m", "experiments.serve"),
            f"--config={config}",
            f"--config.model={model}",
            f"--workdir={workdir}",
        ]
        self._workdir, self._start_s = workdir, start_s
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> str:
        self._workdir.mkdir(parents=True, exist_ok=True)
        endpoint = self._workdir / "endpoint.json"
        endpoint.unlink(missing_ok=True)  # An earlier server's address.
        with open(self._workdir / "log.txt", "wb") as log:
            # A session of its own: Ctrl-C reaches only us, and the server is stopped after its clients.
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        try:
            return self._wait(endpoint)
        except BaseException:
            self._stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _wait(self, endpoint: Path) -> str:
        assert self._process is not None
        deadline = time.monotonic() + self._start_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise UserError(f"policy server: {self._last_line()} (log: {self._workdir / 'log.txt'})")
            if endpoint.exists():
                url = json.loads(endpoint.read_text())["url"].rstrip("/")
                if _is_up(url):
                    return url if url.endswith("/v1") else url + "/v1"
            time.sleep(_POLL_S)
        raise UserError(
            f"policy server: not ready after {self._start_s:.0f} s (log: {self._workdir / 'log.txt'}); "
            "run the same command again on a less busy machine"
        )

    def _last_line(self) -> str:
        lines = (self._workdir / "log.txt").read_text(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("error: ") if lines else "ended without a message"

    def _stop(self) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_up(url: str) -> bool:
    try:
        return httpx.get(url.removesuffix("/v1") + "/health", timeout=5.0).status_code == 200
    except httpx.TransportError:
        return False


@contextlib.contextmanager
def acting(actor: ActorConfig, workdir: Path) -> Iterator[ActorConfig]:
    """The actor, ready to be called: a policy is served while the block runs, others need nothing.

    Args:
      actor: resolved.
      workdir: the server's folder.
    """
    if actor.kind != "policy":
        yield actor
        return
    with PolicyServer(actor.model, workdir, actor.server) as url:
        yield dataclasses.replace(actor, base_url=url)
