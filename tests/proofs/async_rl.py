"""RL with a generator in another process, in turns and at once. Twenty minutes after the demo."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from collection.evaluation.statistics import crossed_bootstrap
from experiments.demo import stages
from experiments.stages import Chain, run_stages
from rmsweb_jax.processes import ChildProcess
from rmsweb_jax.training.metrics import METRICS_FILE, REPLIES_FILE, read_rows
from tests.proofs.result import Claim, Figures, Proof, main, table

DEMO = Path("runs/demo")
SEEDS, STALENESS = (1, 2, 3), (0, 1, 2)
ITERATIONS, WARM = 8, 2
# The largest responses and prompts of the demo.
RESPONSE, PROMPT, SAMPLES, RANK = 112, 1024, 8, 16
SERVER = {
    "model": DEMO / "sft/export",
    "served_names": "('policy',)",
    "allow_adapters": True,
    # Those that draw, and those that are loaded next.
    "adapters": 4,
    "adapter_rank": RANK,
    "lanes": 32,
    "samples": SAMPLES,
    "prompt_tokens": PROMPT,
    "max_new_tokens": RESPONSE,
}
TRAINER = {
    "prompts": DEMO / "mine/prompts",
    "model": DEMO / "sft/export",
    # More than a run would hold out: enough prompts to compare the policies on.
    "held_out": 0.3,
    # Fewer groups pass than with the demo's 0.1, so that drawing takes a larger share of the time.
    "min_std": 0.45,
    "max_gen_batches": 4,
    "iterations": ITERATIONS,
    "eval_every": ITERATIONS,
    "rollout_engine": "endpoint",
    "endpoint.model": "policy",
}


def prepare() -> None:
    """Makes the demo's policy and prompts: its stages up to mining."""
    first = [
        stage for stage in stages("demo", DEMO) if stage.name.split("/")[0] not in ("evaluate", "report")
    ]
    chain = Chain("demo", tuple(stage for stage in first if stage.name != "rl"))
    with contextlib.closing(run_stages([chain], DEMO / ".jax_cache")) as ends:
        for end in ends:
            if end.error:
                raise SystemExit(f"error: {end.error}")


def command(module: str, config: str, settings: Mapping[str, Any], workdir: Path) -> list[str]:
    values = [f"--config.{name}={value}" for name, value in settings.items()]
    return [sys.executable, "-m", module, f"--config={config}", *values, f"--workdir={workdir}"]


@contextlib.contextmanager
def server(folder: Path, core: int) -> Iterator[str]:
    """Serves the policy from one core while the block runs; gives its URL."""
    start = command("experiments.serve", "configs/serve.py:demo", SERVER, folder)
    with ChildProcess("server", start, folder / "log.txt", cores={core}) as child:
        endpoint = folder / "endpoint.json"
        while not endpoint.exists():
            if child.wait(0.2) is not None:
                raise child.failure()
        yield json.loads(endpoint.read_bytes())["url"]


def train(folder: Path, url: str, staleness: int, seed: int, core: int) -> None:
    settings = TRAINER | {
        "endpoint.base_url": url,
        "endpoint.adapter_folder": folder / "adapters",
        "max_staleness": staleness,
        "seed": seed,
    }
    start = command("experiments.train_rl", "configs/rl.py:demo", settings, folder)
    with ChildProcess("trainer", start, folder / "log.txt", cores={core}) as child:
        if child.wait():
            raise child.failure()


def summary(folder: Path) -> dict[str, Any]:
    """Speed in the steady state, and what was learned."""
    rows = read_rows(folder / METRICS_FILE)
    steady = rows[WARM:]
    seconds = steady[-1]["time"] - rows[WARM - 1]["time"]
    generated = sum(row["time/rollout"] for row in steady)
    replies = read_rows(folder / REPLIES_FILE)
    held_out = {
        when: [row["reward"] for row in replies if row["step"] == step]
        for when, step in (("before", 1), ("after", ITERATIONS + 1))
    }
    stale = [sum(row.get(f"staleness/{age}", 0) for row in steady) for age in (0, 1, 2)]
    return {
        "iterations_an_hour": len(steady) / seconds * 3600,
        "waits_share": generated / seconds,
        "seconds_rollout": generated / len(steady),
        "seconds_other": (seconds - generated) / len(steady),
        "stale_share": sum(stale[1:]) / sum(stale),
        "dropped": rows[-1]["dynamic_sampling/dropped"],
        "accepted": float(np.mean([row["gates/accepted"] for row in steady])),
        "drawn": float(np.mean([sum(row.get(f"staleness/{age}", 0) for age in (0, 1, 2)) for row in steady])),
        "importance": float(np.mean([row["importance/mean"] for row in steady])),
        "reward_last": float(np.mean([row["reward/mean"] for row in rows[-4:]])),
        "held_out": held_out,
    }


def measure() -> Figures:
    prepare()
    cores = sorted(os.sched_getaffinity(0))[:2]
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="rmsweb-jax-async-") as name:
        root = Path(name)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str((DEMO / ".jax_cache").resolve())
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
        # The generator keeps one core, the trainer the other.
        with server(root / "serve", cores[0]) as url:
            for seed in SEEDS:
                for staleness in STALENESS:
                    run = f"{staleness}/{seed}"
                    train(root / run, url, staleness, seed, cores[1])
                    found[run] = summary(root / run)
                    print(
                        run,
                        {key: value for key, value in found[run].items() if key != "held_out"},
                        flush=True,
                    )
    return figures(found)


def figures(found: Mapping[str, Mapping[str, Any]]) -> Figures:
    def column(staleness: int, key: str) -> list[float]:
        return [found[f"{staleness}/{seed}"][key] for seed in SEEDS]

    def rewards(staleness: int, when: str) -> np.ndarray:
        """[seeds, prompts]"""
        return np.asarray([found[f"{staleness}/{seed}"]["held_out"][when] for seed in SEEDS])

    # By seed; prompts of other seeds are the same, since the split is by task.
    after, before = ({mode: rewards(mode, when) for mode in STALENESS} for when in ("after", "before"))
    speeds = {mode: np.asarray(column(mode, "iterations_an_hour")) for mode in STALENESS}

    def interval(values: np.ndarray) -> dict[str, float]:
        bounds = crossed_bootstrap(values)
        assert bounds is not None
        return {"mean": float(values.mean()), "low": bounds.low, "high": bounds.high}

    rows = [
        {
            "max_staleness": mode,
            **{
                key: float(np.mean(column(mode, key)))
                for key in found[f"{mode}/{SEEDS[0]}"]
                if key != "held_out"
            },
            "reward_gain": interval(after[mode] - before[mode]),
            "exact_gain": interval((after[mode] == 1) * 1.0 - (before[mode] == 1)),
            "reward_after": float(after[mode].mean()),
            "exact_after": float((after[mode] == 1).mean()),
        }
        for mode in STALENESS
    ]
    return {
        "seeds": list(SEEDS),
        "iterations": ITERATIONS,
        "warm": WARM,
        "held_out_prompts": after[0].shape[1],
        "reward_before": float(before[0].mean()),
        "exact_before": float((before[0] == 1).mean()),
        "modes": rows,
        "accepted": rows[0]["accepted"],
        "generation_to_rest": rows[0]["seconds_rollout"] / rows[0]["seconds_other"],
        "against_synchronous": [
            {
                "max_staleness": mode,
                "speed": (speeds[mode] / speeds[0]).tolist(),
                "reward": interval(after[mode] - after[0]),
                "exact": interval((after[mode] == 1) * 1.0 - (after[0] == 1)),
            }
            for mode in STALENESS[1:]
        ],
    }


def claims(figures: Figures) -> list[Claim]:
    found = []
    for one in figures["against_synchronous"]:
        mode, ratios = f"max_staleness={one['max_staleness']}", one["speed"]
        found += [
            Claim(
                f"{mode}: at least 1.5 times the iterations an hour of max_staleness=0",
                f"{np.mean(ratios):.2f} (by seed {', '.join(f'{ratio:.2f}' for ratio in ratios)})",
                bool(np.mean(ratios) >= 1.5),
            ),
            Claim(
                f"{mode}: held-out reward, minus that of max_staleness=0: the 95% interval is not below 0",
                _words(one["reward"]),
                one["reward"]["high"] >= 0,
            ),
            Claim(
                f"{mode}: held-out share of exact replies, likewise",
                _words(one["exact"]),
                one["exact"]["high"] >= 0,
            ),
        ]
    return found


def _words(interval: Mapping[str, float]) -> str:
    return f"{interval['mean']:+.3f} ({interval['low']:+.3f} to {interval['high']:+.3f})"


def tables(figures: Figures) -> str:
    head = ("max_staleness", "iterations an hour", "s waiting for groups", "s of update and the rest")
    head += ("groups an iteration", "of earlier policies", "mean weight", "sampled reward, last 4")
    head += ("held-out reward", "gain", "exact", "gain")
    rows = [
        (
            row["max_staleness"],
            f"{row['iterations_an_hour']:.0f}",
            f"{row['seconds_rollout']:.2f}",
            f"{row['seconds_other']:.2f}",
            f"{row['drawn']:.1f}",
            f"{row['stale_share']:.0%}",
            f"{row['importance']:.3f}",
            f"{row['reward_last']:.3f}",
            f"{row['reward_after']:.3f}",
            _words(row["reward_gain"]),
            f"{row['exact_after']:.3f}",
            _words(row["exact_gain"]),
        )
        for row in figures["modes"]
    ]
    return table(head, rows)


ABOUT = """\
Our server draws from one core, the trainer updates on the other; prompts and policy are those of `make demo`,
the settings those of `demo` in `configs/rl.py` but for 30 % of the tasks held out ({held_out_prompts}
prompts) and a std gate of 0.45, which {accepted:.0%} of the groups pass; in the paper's run 35 % did.
With `max_staleness=0` the trainer draws, then updates; otherwise the server goes on with the next groups
while the trainer updates, and tokens of earlier policies weigh min(exp(old - behaviour), 2). Seeds {seeds},
{iterations} iterations each; speed is that after the first {warm}. In the synchronous run the trainer waits
{generation_to_rest:.2f} s for groups to each second of the rest, which bounds the gain: at 1.0 a ratio of 2
would be the most.

Rewards are of greedy replies to held-out prompts. Intervals resample trainings and prompts; differences are
paired by both. Before training the reward is {reward_before:.3f}, and {exact_before:.3f} of the replies are
exact.
"""
PROOF = Proof(
    "Asynchronous reinforcement learning", ABOUT, measure, claims, tables, packages=("jax",), browser=True
)

if __name__ == "__main__":
    main(PROOF)
