"""An online run of which a process is killed again and again, against one that is not."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from safetensors.numpy import load_file

from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.training.metrics import METRICS_FILE, read_rows

KILLS = 20
# What is killed, by the module that it runs; "" is the whole run.
PROCESSES = {"learner": "", "player": "collection.fleet.play", "server": "rmsweb_jax.serve"}
# Enough for a kill in each part of an iteration.
ITERATIONS = 6
_MOST_S = 15.0
_GONE_S = 30.0


def measure_kills(root: Path, model: Path, prompts: Path) -> dict[str, Any]:
    """Plays a run, and the same one of which a process is killed `KILLS` times; returns what differs."""
    whole, killed = root / "whole", root / "killed"
    finish(whole, model, prompts)
    draw, done, left = random.Random(0), Counter[str](), 0
    running = None
    while sum(done.values()) < KILLS and not (killed / "report.json").exists():
        running = running or start(killed, model, prompts)
        who = draw.choice(list(PROCESSES))
        while running.poll() is None and not processes(running, PROCESSES[who]):
            time.sleep(0.02)
        wait_for_moment(running, killed, draw)
        family = descendants(running)
        done[who] += kill(running, PROCESSES[who])
        # Without its player or its server a run ends, or goes on with another one.
        if running.poll() is not None or not PROCESSES[who]:
            left += len(still_running(family))
            running = None
    if running:
        running.kill()
        running.wait()
    finish(killed, model, prompts)
    expected, found = episodes(whole), episodes(killed)
    names = [one.trajectory_id for one in found]
    return {
        "kills": dict(done),
        "episodes": len(expected),
        "lost": len({one.trajectory_id for one in expected} - set(names)),
        "doubled": len(names) - len(set(names)),
        "different": sum(_played(one) != _played(other) for one, other in zip(expected, found, strict=False)),
        "log_probs_apart": float(np.max(np.abs(log_probs(expected) - log_probs(found)))),
        "optimizer_steps": sum(row["optimizer_steps"] for row in read_rows(whole / METRICS_FILE)),
        "processes_left": left,
        "weights_equal": _equal(weights(whole), weights(killed)),
        "rewards_equal": rewards(whole) == rewards(killed),
    }


def start(workdir: Path, model: Path, prompts: Path) -> subprocess.Popen[bytes]:
    settings = {"model": model, "prompts": prompts, "iterations": ITERATIONS, "eval_every": ITERATIONS}
    values = [f"--config.{name}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", "experiments.train_rl", "--config=configs/rl.py:smoke,online", *values]
    workdir.parent.mkdir(parents=True, exist_ok=True)
    with open(workdir.with_suffix(".log"), "ab") as log:
        return subprocess.Popen([*command, f"--workdir={workdir}"], stdout=log, stderr=log)


def finish(workdir: Path, model: Path, prompts: Path) -> None:
    if code := start(workdir, model, prompts).wait():
        raise SystemExit(f"error: {workdir.with_suffix('.log')}: exit code {code}")


def wait_for_moment(process: subprocess.Popen[bytes], workdir: Path, draw: random.Random) -> None:
    """Waits for an episode, for an iteration, or for some seconds."""
    what = draw.choice(("episode", "iteration", "any"))
    before, until = _state(workdir), time.monotonic() + draw.uniform(2.0, _MOST_S)
    while process.poll() is None and time.monotonic() < until:
        now = _state(workdir)
        if (what == "episode" and now[0] > before[0]) or (what == "iteration" and now[1] > before[1]):
            return
        time.sleep(0.02)


def processes(run: subprocess.Popen[bytes], module: str) -> list[psutil.Process]:
    """A run, or its child that runs `module`, if it is there."""
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(run.pid)
        if not module:
            return [root]
        return [child for child in root.children(recursive=True) if module in child.cmdline()]
    return []


def kill(run: subprocess.Popen[bytes], module: str) -> bool:
    """Kills it; returns whether it was there. A run that ends for want of its child is waited for."""
    found = processes(run, module) if run.poll() is None else []
    for one in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    if found:
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(_GONE_S)
    return bool(found)


def _state(workdir: Path) -> tuple[int, int]:
    """Lines of journals, and iterations."""
    lines = sum(path.read_bytes().count(b"\n") for path in workdir.glob("episodes/*/episodes.jsonl"))
    metrics = workdir / METRICS_FILE
    return lines, metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def descendants(run: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """All that a run has started: player, server, workers, drivers and browsers."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(run.pid).children(recursive=True)
    return []


def still_running(family: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Those that are there some time after their run was killed."""
    _, alive = psutil.wait_procs(family, timeout=_GONE_S)
    found = []
    for one in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            if one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


def episodes(workdir: Path) -> list[Trajectory]:
    folders = sorted(path.parent for path in workdir.glob("episodes/*/manifest.json"))
    return [one for folder in folders for one in read_dataset(folder, Trajectory)]


def _played(one: Trajectory) -> tuple[Any, ...]:
    """What an episode says, without its times and log-probabilities, which round as their batch does."""
    steps = [(step.messages, step.response, step.sampled and step.sampled.tokens) for step in one.steps]
    return one.trajectory_id, one.success, one.reward, steps


def log_probs(played: Iterable[Trajectory]) -> np.ndarray:
    """Log-probabilities of all tokens of all episodes."""
    steps = [step.sampled for one in played for step in one.steps]
    return np.concatenate([np.asarray(one.log_probs) for one in steps if one is not None])


def weights(workdir: Path) -> Mapping[str, np.ndarray]:
    return load_file(workdir / "export/model.safetensors")


def _equal(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> bool:
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


def rewards(workdir: Path) -> list[float]:
    return [row["reward/mean"] for row in read_rows(workdir / METRICS_FILE)]
