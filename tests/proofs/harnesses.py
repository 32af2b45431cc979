"""Episodes that other projects' harnesses play at our OpenEnv server. 15 minutes, after the demo.

Needs Python 3.12; harnesses and OpenEnv's server are installed into environments of their own in build/.
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

from collection.fleet.policy_server import serve_actor
from collection.llm.config import ActorConfig
from configs.serve import DEMO as SERVED
from tests.gym.openenv_calls import OTHER, TASK
from tests.gym.oracle_endpoint import OracleHandler
from tests.proofs import openenv
from tests.proofs.async_rl import DEMO
from tests.proofs.result import ROOT, Claim, Figures, Proof, main, table

VERIFIERS, UV, TRL = "verifiers[openenv]==0.4.0", "uv==0.13.9", "trl==1.16.0"
PYTHON = "python3.12"
EPISODES, TRL_EPISODES = 10, 4
POLICY = str(DEMO / "sft/export")
# A harness gives the whole conversation, which grows by an observation with each step.
PROMPT_TOKENS = 16_384


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
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()


@contextlib.contextmanager
def policy(folder: Path) -> Iterator[str]:
    """Serves the demo's SFT policy."""
    settings = {**SERVED, "prompt_tokens": PROMPT_TOKENS, "max_images": 0}
    actor = ActorConfig(kind="policy", model=POLICY, server_settings=settings).resolve()
    with serve_actor(actor, folder) as served:
        yield served.base_url


def verifiers(url: str, endpoint: str, model: str, folder: Path) -> dict[str, Any]:
    """Plays episodes by verifiers' evaluation; returns how many were solved or ended with an error."""
    programs = install("verifiers", PYTHON, [VERIFIERS, UV])
    seeds = range(EPISODES // 2)
    resets = ", ".join(f'{{seed = {seed}, task = "{(TASK, OTHER)[seed % 2]}"}}' for seed in seeds)
    settings = f"""\
model = "{model}"
num_rollouts = 2
max_concurrent = 4
push = false
output_dir = "{folder}"
[run]
name = "run"
[client]
base_url = "{endpoint}"
api_key_var = "ENDPOINT_KEY"
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
    environment = {**os.environ, "ENDPOINT_KEY": "none", "PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run(command, cwd=folder, env=environment, check=True)
    seconds = time.monotonic() - start
    (traces,) = folder.rglob("traces.jsonl")
    rows = [json.loads(line) for line in traces.read_text(encoding="utf-8").splitlines()]
    return {
        "episodes": len(rows),
        "solved": sum(_rewards(row) == [1.0] for row in rows),
        "unsolved": sum(_rewards(row) == [0.0] for row in rows),
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
    ):
        make = functools.partial(tempfile.mkdtemp, dir=folder)
        with oracle() as endpoint:
            played = verifiers(url, endpoint, "oracle", Path(make()))
        with policy(Path(make())) as endpoint:
            ours = verifiers(url, endpoint, POLICY, Path(make()))
        trained = trl(url, Path(make()))
    return {"verifiers": played, "policy": ours, "trl": trained}


def claims(figures: Figures) -> list[Claim]:
    played, ours, trained = figures["verifiers"], figures["policy"], figures["trl"]
    rewarded = ours["solved"] + ours["unsolved"]
    seeds = {row["seed"] for row in trained["episodes"]}
    return [
        Claim(
            f"verifiers plays {EPISODES} episodes, each solved and paid 1",
            f"{played['solved']} of {played['episodes']}, {played['errors']} errors",
            played["solved"] == played["episodes"] == EPISODES and not played["errors"],
        ),
        Claim(
            f"verifiers plays {EPISODES} episodes with the demo's SFT policy, behind our server",
            f"{rewarded} of {ours['episodes']} with a reward, {ours['solved']} solved, "
            f"{ours['errors']} errors",
            rewarded == ours["episodes"] == EPISODES and not ours["errors"],
        ),
        Claim(
            f"TRL's trainer plays {TRL_EPISODES} episodes and takes their rewards",
            f"{len(trained['episodes'])} episodes of {len(seeds)} seeds, rewards {trained['rewards']}",
            len(trained["episodes"]) >= TRL_EPISODES and len(trained["rewards"]) == TRL_EPISODES // 2,
        ),
    ]


def tables(figures: Figures) -> str:
    rows = [
        (VERIFIERS, "an endpoint that solves", figures["verifiers"]),
        (VERIFIERS, "the demo's SFT policy", figures["policy"]),
        (TRL, "random weights", {**figures["trl"], "episodes": len(figures["trl"]["episodes"])}),
    ]
    return table(
        ("harness", "model", "episodes", "seconds"),
        [(harness, model, one["episodes"], f"{one['seconds']:.0f}") for harness, model, one in rows],
    )


ABOUT = """\
`collection.gym.openenv_server --text_only` serves two MiniWoB++ tasks. verifiers evaluates on them by its own
`openenv` task set. The model is an endpoint that solves the tasks, with calls that it reads off the
observations, and then the demo's SFT policy behind our own server. That policy has learned another prompt and
another format of replies: what is shown is that none of them ends a session, not that it can play. TRL's GRPO
trainer plays the tasks by `environment_factory`, with a policy of random weights: it calls no tool, so that
its rewards are 0.
"""
PROOF = Proof("Other harnesses", ABOUT, measure, claims, tables, browser=True)

if __name__ == "__main__":
    main(PROOF)
