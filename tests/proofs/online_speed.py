"""Asynchronous against synchronous online RL, and what a batch costs. Half an hour after the demo."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from collection.environments.miniwob import make_task
from collection.fleet.config import CollectSettings, resolved
from collection.fleet.fleet import Fleet
from collection.fleet.policy_server import serve_actor
from collection.fleet.rounds import Job
from collection.llm.config import ActorConfig
from configs.collect import get_config
from configs.rl import ONLINE_PAGES
from configs.serve import DEMO as DEMO_SERVER
from experiments.stages import Chain, Stage, run_stages
from rmsweb_jax.settings import from_config
from rmsweb_jax.training.metrics import METRICS_FILE, read_rows
from tests.proofs.online_cpu import CpuSeconds
from tests.proofs.page import DEMO, Check, demo_run, publish, table
from tests.proofs.recorded_server import RecordedServer

ROOT = Path("runs/proofs/online_speed")
VARIANTS = {"synchronous": "online", "asynchronous": "online,async"}
ITERATIONS = 6
# Of a recorded reply: a server with cores of its own; what this machine took to record one is published.
REPLY_S = 0.1
# Each variant twice, in an order in which neither always comes first.
APART = ("synchronous", "asynchronous", "asynchronous", "synchronous")
# Episodes of a batch, each size several times.
SIZES, TIMES = (2, 4, 8, 16), 5


def training(
    name: str, variant: str, module: str = "experiments.train_rl", **settings: Any
) -> dict[str, Any]:
    """Seconds of an iteration in the middle of a run, and the processor time of the run.

    While programs are compiled in the first one, a batch is played ahead; after the last one none is.
    """
    settings |= {"model": DEMO / "sft/export", "prompts": DEMO / "mine/prompts", "iterations": ITERATIONS}
    # Greedy replies to held-out prompts come first and last, which are not counted.
    settings |= {"eval_every": ITERATIONS}
    given = [f"--config.{key}={value}" for key, value in settings.items()]
    stage = Stage(name, ROOT / name, module, (f"--config=configs/rl.py:{variant}", *given))
    with CpuSeconds() as spent:
        for end in run_stages([Chain(name, (stage,))], DEMO / ".jax_cache"):
            if end.error:
                raise SystemExit(f"error: {end.error}")
        cpu = spent.seconds()
    rows = read_rows(ROOT / name / METRICS_FILE)[1:-1]
    print(name, flush=True)
    return {
        "seconds an iteration": (rows[-1]["time"] - rows[0]["time"]) / (len(rows) - 1),
        "of them waiting for episodes": float(np.mean([row["time/rollout"] for row in rows[1:]])),
        "of them updating": float(np.mean([row["time/update"] for row in rows[1:]])),
        **{f"processor seconds of the run: {kind}": seconds for kind, seconds in cpu.items()},
    }


def apart() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Runs with a core for the training and one for the browsers; another machine seems to draw the replies.

    The first run records them. With a learning rate of 0 each run plays the same episodes.

    Returns:
      The runs, and what the server has seen of them.
    """
    server_settings = {**DEMO_SERVER, "adapters": 3, "adapter_rank": 16, "replies": "free"}
    actor = ActorConfig(kind="policy", model=str(DEMO / "sft/export"), server_settings=server_settings)
    with (
        serve_actor(actor, ROOT / "server") as served,
        RecordedServer(served.base_url.removesuffix("/v1"), REPLY_S) as server,
    ):
        settings = {
            "learning_rate": 0.0,
            "rollout_engine": "endpoint",
            "endpoint.base_url": server.url,
            "endpoint.model": DEMO / "sft/export",
        }

        def run(name: str, variant: str, module: str) -> dict[str, Any]:
            folder = {"endpoint.adapter_folder": ROOT / name / "adapters"}
            found = training(name, VARIANTS[variant], module, **settings, **folder)
            return {"cores": "apart", "run": variant, **found}

        run("recorded", "synchronous", "experiments.train_rl")
        upstream, asked, repeated = float(np.median(server.seconds_upstream)), server.asked, server.repeated
        module = "tests.proofs.online_apart"
        found = [run(f"apart_{number}", variant, module) for number, variant in enumerate(APART)]
        seen = {
            "upstream_seconds": upstream,
            "asked": server.asked - asked,
            "recorded": server.repeated - repeated,
        }
    return found, seen


def batch_seconds() -> list[tuple[int, float]]:
    """Sizes of batches and their seconds, by one fleet whose browser is there."""
    config = get_config("demo")
    config.actor.kind, config.fleet.workers = "scripted", 1
    settings = resolved(from_config(CollectSettings, config))
    found, seed = [], 0
    with tempfile.TemporaryDirectory() as folder, Fleet(settings) as fleet:
        for time_of in range(-1, TIMES):
            for size in SIZES:
                jobs = [Job(make_task(ONLINE_PAGES[0], seed + number), 1) for number in range(size)]
                seed += size
                start = time.monotonic()
                with fleet.begin(jobs, Path(folder) / str(seed), "play") as run:
                    run.play()
                if time_of >= 0:  # The first ones start the browser.
                    found.append((size, time.monotonic() - start))
    return found


ABOUT = f"""\
**Baseline:** the synchronous run with the same seed; no positive control. Apart, replies must be recorded
ones, so that both runs play the same episodes.

The demo's online run, `configs/rl.py:online` and `online,async`, {ITERATIONS} iterations with the same seed.
Seconds of an iteration are those between the second and the last but one: programs are compiled in the first,
and after the last nothing is played. An asynchronous iteration trains on episodes of the policy before it.

*Shared*: all processes share two cores. *Apart*: the training has one core, browsers and workers have the
other, and the policy's server is on another machine: it gives replies that an earlier run has recorded, after
{REPLY_S:g} s, without work. The learning rate is 0 there, so that all runs play the same episodes. Each
variant runs twice apart, and the ratio is that of the means.

**A batch.** One fleet of one browser plays batches of {", ".join(map(str, SIZES))} episodes, {TIMES} times
each, with the scripted teacher. Their seconds are fitted by a line: its value at 0 is what a batch costs in
itself, given with its standard error.
"""


def main() -> None:
    demo_run()
    # A run that was done before has no times.
    shutil.rmtree(ROOT, ignore_errors=True)
    batches = batch_seconds()
    sizes, seconds = zip(*batches, strict=True)
    (each, fixed), errors = np.polyfit(sizes, seconds, 1, cov=True)
    error = float(np.sqrt(errors[1, 1]))
    batch = f"{fixed:.2f} s (standard error {error:.2f}), and {each:.2f} s an episode"
    print(f"batch: {batch}", flush=True)
    runs = [
        {"cores": "shared", "run": one, **training(f"shared_{one}", variant)}
        for one, variant in VARIANTS.items()
    ]
    alone, seen = apart()
    runs += alone
    kinds = dict.fromkeys(name for one in runs for name in one)
    runs = [{name: one.get(name) for name in kinds} for one in runs]

    def seconds_of(cores: str, variant: str) -> float:
        chosen = [one for one in runs if (one["cores"], one["run"]) == (cores, variant)]
        return float(np.mean([one["seconds an iteration"] for one in chosen]))

    ratio = {
        cores: seconds_of(cores, "synchronous") / seconds_of(cores, "asynchronous")
        for cores in ("shared", "apart")
    }
    checks: list[Check] = [
        (
            "training and playing on cores of their own: at least 1.5",
            f"{ratio['apart']:.2f}",
            ratio["apart"] >= 1.5,
        ),
        ("on two cores that they share", f"{ratio['shared']:.2f}", None),
        (
            "apart: at least 99 % of the replies are recorded ones",
            f"{seen['recorded']:,} of {seen['asked']:,}",
            seen["recorded"] >= 0.99 * seen["asked"],
        ),
        ("a recorded reply takes", f"{REPLY_S:g} s; when recorded {seen['upstream_seconds']:.2f} s", None),
        ("a batch costs less than 1 s in itself", batch, bool(fixed < 1)),
    ]
    figures = {
        "async_over_sync": ratio["apart"],
        "async_over_sync_shared": ratio["shared"],
        "batch_fixed_seconds": float(fixed),
        "batch_fixed_error": error,
        "runs": runs,
        "server": seen,
        "batches": batches,
    }
    publish("online_speed", "Online RL: asynchronous and synchronous", ABOUT, figures, checks, table(runs))


if __name__ == "__main__":
    main()
