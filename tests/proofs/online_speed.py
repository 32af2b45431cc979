"""Asynchronous against synchronous online RL, and what a batch costs. An hour after the demo."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
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
WHOLE, PARTS = "seconds an iteration", ("of them waiting for episodes", "of them updating")
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
        WHOLE: (rows[-1]["time"] - rows[0]["time"]) / (len(rows) - 1),
        PARTS[0]: float(np.mean([row["time/rollout"] for row in rows[1:]])),
        PARTS[1]: float(np.mean([row["time/update"] for row in rows[1:]])),
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
**Baseline:** the synchronous run with the same seed; no positive control. Replies must be recorded ones where
cores are apart, so that all runs play the same episodes there.

The demo's online run, `configs/rl.py:online` and `online,async`, {ITERATIONS} iterations with the same seed.
Seconds of an iteration are those between the second and the last but one: programs are compiled in the first,
and after the last nothing is played. An asynchronous iteration trains on episodes of the policy before it.

*Shared*: all processes share two cores. *Apart*: the training has one core, browsers and workers have the
other, and the policy's server is on another machine: it gives replies that an earlier run has recorded,
after {REPLY_S:g} s, almost without work: a time that is assumed, and matters little, since browsers and
workers keep their core busy. The learning rate is 0 there, so that all runs play the same episodes. Each
variant runs twice apart, and the ratio is that of the means. Where an asynchronous iteration lasts as long
as playing alone, the update is hidden whole: more than a synchronous iteration over its playing is not to be
had. *Shared* runs are one each and learn: they differ in episodes, and the asynchronous one has made more
optimizer steps.

**A batch.** One fleet of one browser plays batches of {", ".join(map(str, SIZES))} episodes, {TIMES} times
each, with the scripted teacher. Their seconds are fitted by a line: its value at 0 is what a batch costs in
itself, given with its standard error, and once more without the largest batches.
"""


def measure() -> dict[str, Any]:
    demo_run()
    # A run that was done before has no times.
    shutil.rmtree(ROOT, ignore_errors=True)
    batches = batch_seconds()
    print("batches", flush=True)
    runs = [
        {"cores": "shared", "run": one, **training(f"shared_{one}", variant)}
        for one, variant in VARIANTS.items()
    ]
    alone, seen = apart()
    return {"runs": [*runs, *alone], "server": seen, "batches": batches}


def figures(measured: Mapping[str, Any]) -> dict[str, Any]:
    """Computes what is published from what was measured."""
    sizes, seconds = zip(*measured["batches"], strict=True)
    (each, fixed), errors = np.polyfit(sizes, seconds, 1, cov=True)
    small = [one for one in measured["batches"] if one[0] < SIZES[-1]]
    found: dict[str, Any] = {
        "batch_fixed_seconds": float(fixed),
        "batch_fixed_error": float(np.sqrt(errors[1, 1])),
        "batch_fixed_seconds_small": float(np.polyfit(*zip(*small, strict=True), 1)[1]),
        "episode_seconds": float(each),
    }
    for cores, name in (("apart", ""), ("shared", "_shared")):
        means = {}
        for variant in VARIANTS:
            chosen = [one for one in measured["runs"] if (one["cores"], one["run"]) == (cores, variant)]
            means[variant] = {part: float(np.mean([one[part] for one in chosen])) for part in (WHOLE, *PARTS)}
        sync = means["synchronous"]
        found |= {
            f"async_over_sync{name}": sync[WHOLE] / means["asynchronous"][WHOLE],
            f"at_best{name}": sync[WHOLE] / max(sync[part] for part in PARTS),
            f"environment_share{name}": sync[PARTS[0]] / sync[WHOLE],
        }
    apart = {
        variant: [one[WHOLE] for one in measured["runs"] if (one["cores"], one["run"]) == ("apart", variant)]
        for variant in VARIANTS
    }
    pairs = [one / other for one in apart["synchronous"] for other in apart["asynchronous"]]
    return {**found, "async_over_sync_range": [min(pairs), max(pairs)], **measured}


def checks(found: Mapping[str, Any]) -> list[Check]:
    seen, ratio = found["server"], found["async_over_sync"]
    low, high = found["async_over_sync_range"]
    batch = (
        f"{found['batch_fixed_seconds']:.2f} s (standard error {found['batch_fixed_error']:.2f}), "
        f"and {found['episode_seconds']:.2f} s an episode; by batches of less than {SIZES[-1]} "
        f"{found['batch_fixed_seconds_small']:.2f} s"
    )
    return [
        (
            "training and playing on cores of their own: at least 1.5",
            f"{ratio:.2f}; single runs {low:.2f} to {high:.2f}",
            ratio >= 1.5,
        ),
        ("on two cores that they share", f"{found['async_over_sync_shared']:.2f}", None),
        (
            "a synchronous iteration over its playing alone",
            f"{found['at_best']:.2f}",
            None,
        ),
        (
            "playing takes of a synchronous iteration, apart and shared",
            f"{found['environment_share']:.0%}, {found['environment_share_shared']:.0%}",
            None,
        ),
        (
            "apart: at least 99 % of the replies are recorded ones",
            f"{seen['recorded']:,} of {seen['asked']:,}",
            seen["recorded"] >= 0.99 * seen["asked"],
        ),
        ("a recorded reply takes", f"{REPLY_S:g} s; when recorded {seen['upstream_seconds']:.2f} s", None),
        ("a batch costs less than 1 s in itself", batch, found["batch_fixed_seconds"] < 1),
    ]


def rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = dict.fromkeys(name for one in found["runs"] for name in one)
    return [{name: one.get(name) for name in names} for one in found["runs"]]


if __name__ == "__main__":
    found = figures(measure())
    title = "Online RL: asynchronous and synchronous"
    publish("online_speed", title, ABOUT, found, checks(found), table(rows(found)))
