"""Episodes that other projects' harnesses play at our OpenEnv server. Needs Python 3.12; 15 minutes.

Each harness is installed into an environment of its own in build/, and so is OpenEnv's server.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.gym.openenv_calls import OTHER, TASK
from tests.gym.oracle_endpoint import OracleHandler
from tests.proofs import openenv
from tests.proofs.result import ROOT, Claim, Figures, Proof, main, table

VERIFIERS, UV, TRL = "verifiers[openenv]==0.4.0", "uv==0.13.9", "trl==1.16.0"
PYTHON = "python3.12"
EPISODES, TRL_EPISODES = 10, 4


def install(name: str, python: str, packages: Sequence[str]) -> Path:
    """Returns the folder of programs of an environment with these packages."""
    folder = ROOT / "build" / name
    stamp, wanted = folder / "installed", " ".join(packages)
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        if not shutil.which(python):
            raise SystemExit(f"error: {python} not found: {name} needs it")
        for command in (
            (python, "-m", "venv", "--clear", folder),
            (folder / "bin/python", "-m", "pip", "install", "--quiet", *packages),
        ):
            subprocess.run([str(part) for part in command], check=True)
        stamp.write_text(wanted, encoding="utf-8")
    return folder / "bin"


@contextlib.contextmanager
def oracle() -> Iterator[str]:
    """Serves the endpoint that solves the tasks."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), OracleHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def verifiers(url: str, endpoint: str, folder: Path) -> dict[str, Any]:
    """Plays episodes by verifiers' evaluation; returns their rewards and errors."""
    programs = install("verifiers", PYTHON, [VERIFIERS, UV])
    seeds = range(EPISODES // 2)
    resets = ", ".join(f'{{seed = {seed}, task = "{(TASK, OTHER)[seed % 2]}"}}' for seed in seeds)
    settings = f"""\
model = "oracle"
num_rollouts = 2
max_concurrent = 4
push = false
output_dir = "{folder}"
[run]
name = "run"
[client]
base_url = "{endpoint}"
api_key_var = "ORACLE_KEY"
[env.taskset]
id = "openenv"
base_url = "{url}"
resets = [{resets}]
[env.player.runtime]
type = "subprocess"
[env.player.harness]
id = "null"
"""
    (folder / "eval.toml").write_text(settings, encoding="utf-8")
    command = [str(programs / "vf-eval"), "@", str(folder / "eval.toml"), "--no-rich"]
    start = time.monotonic()
    # Its log names its rollouts; it may use no account.
    environment = {**os.environ, "ORACLE_KEY": "none", "PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run(command, cwd=folder, env=environment, check=True)
    seconds = time.monotonic() - start
    (traces,) = folder.rglob("traces.jsonl")
    rows = [json.loads(line) for line in traces.read_text(encoding="utf-8").splitlines()]
    return {
        "episodes": len(rows),
        "solved": sum(_rewards(row) == [1.0] for row in rows),
        "errors": sum(bool(row["errors"]) for row in rows),
        "seconds": seconds,
    }


def _rewards(row: dict[str, Any]) -> list[float]:
    return [one["score"] for trace in row["traces"] for one in trace["rewards"].values()]


def trl(url: str, folder: Path) -> dict[str, Any]:
    """Plays episodes by TRL's trainer."""
    packages = [TRL, "torch==2.13.0", f"openenv=={openenv.VERSION}", "datasets"]
    programs = install("trl", sys.executable, packages)
    command = [programs / "python", "-m", "tests.gym.trl_run", url, folder, str(TRL_EPISODES)]
    start = time.monotonic()
    environment = {**os.environ, "TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1"}
    words = [str(part) for part in command]
    printed = subprocess.run(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True).stdout
    return {**json.loads(printed.splitlines()[-1]), "seconds": time.monotonic() - start}


def measure() -> Figures:
    server = openenv.install()
    with (
        tempfile.TemporaryDirectory(prefix="rmsweb-harnesses-") as folder,
        openenv.serving(server, "--text_only") as (url, _),
        oracle() as endpoint,
    ):
        make = functools.partial(tempfile.mkdtemp, dir=folder)
        played = verifiers(url, endpoint, Path(make()))
        trained = trl(url, Path(make()))
    return {"verifiers": played, "trl": trained}


def claims(figures: Figures) -> list[Claim]:
    played, trained = figures["verifiers"], figures["trl"]
    seeds = {row["seed"] for row in trained["episodes"]}
    return [
        Claim(
            f"verifiers plays {EPISODES} episodes, each solved and paid 1",
            f"{played['solved']} of {played['episodes']}, {played['errors']} errors",
            played["solved"] == played["episodes"] == EPISODES and not played["errors"],
        ),
        Claim(
            f"TRL's trainer plays {TRL_EPISODES} episodes and takes their rewards",
            f"{len(trained['episodes'])} episodes of {len(seeds)} seeds, rewards {trained['rewards']}",
            len(trained["episodes"]) >= TRL_EPISODES and len(trained["rewards"]) == TRL_EPISODES // 2,
        ),
    ]


def tables(figures: Figures) -> str:
    rows = [
        (VERIFIERS, figures["verifiers"]["episodes"], f"{figures['verifiers']['seconds']:.0f}"),
        (TRL, len(figures["trl"]["episodes"]), f"{figures['trl']['seconds']:.0f}"),
    ]
    return table(("harness", "episodes", "seconds"), rows)


ABOUT = """\
`collection.gym.openenv_server --text_only` serves two MiniWoB++ tasks. verifiers evaluates on them by its own
`openenv` task set; the model is an endpoint that solves the tasks, with calls that it reads off the
observations. TRL's GRPO trainer plays them by `environment_factory`, with a policy of random weights: it
calls no tool, so that its rewards are 0.
"""
PROOF = Proof("Other harnesses", ABOUT, measure, claims, tables, browser=True)

if __name__ == "__main__":
    main(PROOF)
