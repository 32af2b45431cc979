"""A policy as the actor: starts our chat-completions server, vLLM's or SGLang's, as a process of its own."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx

from collection.llm.calls import own_address
from collection.llm.config import ActorConfig
from rmsweb_jax.errors import UserError
from rmsweb_jax.processes import ChildProcess, StallClock
from rmsweb_jax.progress import read_progress
from rmsweb_jax.storage import local_path

logging.getLogger("httpx").setLevel(logging.WARNING)  # It logs every look at the server's health.

_POLL_S = 0.2
_KEY = "RMSWEB_POLICY_KEY"  # Variable with the key of a server that other machines reach.
# Time without growth of log, progress or CPU time. Loading and compiling may take an hour on a busy machine.
_STALL_S = 600.0
# Modules that start the others' servers, and flags in addition to name and address. Their defaults
# for sampling come from the folder's generation_config.json, which would change what a request leaves out.
_PEERS = {
    "vllm": (
        "vllm.entrypoints.openai.api_server",
        ("--model={model}", "--generation-config=vllm", "--logprobs-mode=processed_logprobs"),
    ),
    "sglang": ("sglang.launch_server", ("--model-path={model}", "--sampling-defaults=openai")),
}


@contextlib.contextmanager
def serve_actor(actor: ActorConfig, workdir: Path, reachable: bool = False) -> Iterator[ActorConfig]:
    """Makes the actor ready: serves a policy while the block runs; other actors need nothing.

    The server is a process of its own, since the browser side imports no jax.

    Args:
      actor: resolved.
      workdir: the server's folder, for its log.
      reachable: workers on other machines call the server, with a key.

    Raises:
      UserError: the server is not installed, or ended or got stuck before it answered; see its last line.
    """
    if actor.kind != "policy":
        yield actor
        return
    endpoint = workdir / "endpoint.json"
    endpoint.unlink(missing_ok=True)  # An earlier server's address.
    if reachable and not actor.api_key_env:
        os.environ.setdefault(_KEY, secrets.token_hex(32))
        actor = actor.model_copy(update={"api_key_env": _KEY})
    host = "0.0.0.0" if reachable else "127.0.0.1"
    if actor.server == "own":
        network = {"host": host, "api_key_env": actor.api_key_env} if reachable else {}
        settings = json.dumps(network | dict(actor.server_settings))
        command = [sys.executable, "-m", "rmsweb_jax.serve", f"--settings={settings}"]
        command += [f"--model={actor.model}", f"--workdir={workdir}"]
    else:
        port = _free_port()
        command = peer_command(actor, port, host)
        workdir.mkdir(parents=True, exist_ok=True)
        endpoint.write_text(json.dumps({"url": f"http://{host}:{port}/v1"}))
    with ChildProcess("policy server", command, workdir / "log.txt", grace_s=10.0) as server:
        stall = StallClock()
        while (url := _ready_url(endpoint)) is None:
            if server.wait(_POLL_S) is not None:
                raise server.failure()
            if stall.seconds((server.activity(), read_progress(workdir))) > _STALL_S:
                raise UserError(f"{server.failure()}; stuck for {_STALL_S / 60:.0f} min before it was ready")
        yield actor.model_copy(update={"base_url": url.replace("//0.0.0.0:", f"//{own_address()}:")})


def peer_command(actor: ActorConfig, port: int, host: str = "127.0.0.1") -> list[str]:
    """Makes the command of vLLM's or SGLang's server, which listens on loopback or at `host`.

    Raises:
      UserError: it is not installed, or the model is no folder.
    """
    python, package = actor.server_python or sys.executable, actor.server
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{package}') is None)"
    try:
        installed = subprocess.run([python, "-c", look], capture_output=True).returncode == 0
    except OSError:
        installed = False
    if not installed:
        raise UserError(
            f"config.actor.server={package}: {python} has no package {package}; install it, or name the "
            "interpreter that has it in config.actor.server_python"
        )
    if not local_path(actor.model, "config.actor.model").is_dir():
        raise UserError(f"config.actor.model={actor.model}: no folder, which {package} needs")
    module, flags = _PEERS[package]
    command = [python, "-m", module, *(flag.format(model=actor.model) for flag in flags)]
    command += [f"--served-model-name={actor.model}", f"--host={host}", f"--port={port}"]
    if actor.api_key_env:
        command += [f"--api-key={os.environ[actor.api_key_env]}"]
    for name, value in actor.server_flags.items():
        # A flag without a value is on if it is there.
        text = value if isinstance(value, str) else json.dumps(value)
        command += [f"--{name}"] if value is True else [f"--{name}={text}"]
    return command


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def _ready_url(endpoint: Path) -> str | None:
    """Returns the server's base URL once it answers, else None."""
    try:
        url = json.loads(endpoint.read_bytes())["url"]
        healthy = httpx.get(url.removesuffix("/v1") + "/health", timeout=5.0).status_code == 200
    except (FileNotFoundError, httpx.TransportError):
        return None
    return url if healthy else None
