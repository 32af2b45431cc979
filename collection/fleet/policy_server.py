"""Our own policy as the actor: starts the chat-completions server as a process of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from collection.llm.config import ActorConfig
from rmsweb_jax.errors import UserError
from rmsweb_jax.processes import ChildProcess, StallClock
from rmsweb_jax.progress import read_progress

_POLL_S = 0.2
# Time without growth of log, progress or CPU time. Loading and compiling may take an hour on a busy machine.
_STALL_S = 600.0


@contextlib.contextmanager
def serve_policy(model: str, workdir: Path, settings: Mapping[str, Any]) -> Iterator[str]:
    """Serves a model folder while the block runs; gives the endpoint's base URL.

    The server is a process of its own, since the browser side imports no jax.

    Args:
      model: model folder, or the name of a packaged model.
      workdir: the server's folder: its log and `endpoint.json`.
      settings: of the server, where they differ from `rmsweb_jax.serve.config.ServeSettings`.

    Raises:
      UserError: the server ended, or got stuck, before it answered; its last line is quoted.
    """
    command = [
        *(sys.executable, "-m", "rmsweb_jax.serve"),
        f"--settings={json.dumps(dict(settings))}",
        f"--model={model}",
        f"--workdir={workdir}",
    ]
    endpoint = workdir / "endpoint.json"
    endpoint.unlink(missing_ok=True)  # An earlier server's address.
    with ChildProcess("policy server", command, workdir / "log.txt", grace_s=10.0) as server:
        stall = StallClock()
        while (url := _ready_url(endpoint)) is None:
            if server.wait(_POLL_S) is not None:
                raise server.failure()
            if stall.seconds((server.activity(), read_progress(workdir))) > _STALL_S:
                raise UserError(f"{server.failure()}; stuck for {_STALL_S / 60:.0f} min before it was ready")
        yield url


def _ready_url(endpoint: Path) -> str | None:
    """Returns the server's base URL once it answers, else None."""
    try:
        url = json.loads(endpoint.read_bytes())["url"].rstrip("/").removesuffix("/v1")
        healthy = httpx.get(url + "/health", timeout=5.0).status_code == 200
    except (FileNotFoundError, httpx.TransportError):
        return None
    return url + "/v1" if healthy else None


@contextlib.contextmanager
def serve_actor(actor: ActorConfig, workdir: Path) -> Iterator[ActorConfig]:
    """Makes the actor ready: serves a policy while the block runs; other actors need nothing.

    Args:
      actor: resolved.
      workdir: the server's folder.
    """
    if actor.kind != "policy":
        yield actor
        return
    with serve_policy(actor.model, workdir, actor.server) as url:
        yield dataclasses.replace(actor, base_url=url)
