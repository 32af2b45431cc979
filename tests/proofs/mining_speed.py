"""Time and memory of the miner for pools of three sizes. Ten minutes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from rmsweb_jax.records.dataset import iter_shard, load_manifest
from tests.mining.planted import write_pool
from tests.proofs.result import ROOT, Claim, Figures, Proof, main, table

TASKS, RUNS, STEPS, ELEMENTS = (500, 1_500, 5_000), 6, 20, 300
MAX_SECONDS, MAX_MB = 300, 2_000


def measure() -> Figures:
    pools = []
    for tasks in TASKS:
        with tempfile.TemporaryDirectory(prefix="rmsweb-mining-") as folder:
            pools.append(_mine(Path(folder), tasks))
        print(pools[-1], flush=True)
    return {"runs_per_task": RUNS, "steps": STEPS, "elements": ELEMENTS, "pools": pools}


def _mine(folder: Path, tasks: int) -> dict[str, Any]:
    """Mines a generated pool in a process of its own and samples its memory."""
    pool, workdir = folder / "pool", folder / "mine"
    write_pool(pool, tasks, RUNS, STEPS, ELEMENTS, seed=0)
    workdir.mkdir()
    command = [
        *(sys.executable, "-m", "experiments.mine", "--config=configs/mine.py:demo"),
        *(f"--config.pools={pool}", f"--workdir={workdir}"),
    ]
    start = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _memory(process.pid))
        try:
            process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            continue
    seconds = time.monotonic() - start
    if process.returncode:
        raise SystemExit(f"error: the miner ended with {process.returncode}")
    report = json.loads((workdir / "report.json").read_bytes())
    shutil.rmtree(workdir)
    return {
        "tasks": tasks,
        "runs": load_manifest(pool).records,
        "pairs": report["pairs"],
        "record_gb": round(_record_bytes(pool) / 1e9, 1),
        "disk_mb": round(sum(path.stat().st_size for path in pool.glob("*.array_record")) / 1e6),
        "seconds": round(seconds),
        "seconds_per_1000_pairs": round(1000 * seconds / report["pairs"], 2),
        "memory_mb": round(peak / 1e6),
        "prompts": report["prompts"],
    }


def _memory(pid: int) -> int:
    """Proportional set size of a process and its children, bytes."""
    total = 0
    try:
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            try:
                total += one.memory_full_info().pss
            except psutil.NoSuchProcess:
                continue
    except psutil.NoSuchProcess:
        pass
    return total


def _record_bytes(pool: Path) -> int:
    """Uncompressed size of all records, extrapolated from one shard."""
    manifest = load_manifest(pool)
    sizes = [len(entry) for entry in iter_shard(pool, manifest.shards[0])]
    return round(manifest.records * sum(sizes) / len(sizes))


def claims(figures: Figures) -> list[Claim]:
    largest = max(figures["pools"], key=lambda pool: pool["tasks"])
    rates = [pool["seconds_per_1000_pairs"] for pool in figures["pools"]]
    runs, seconds, memory = (largest[name] for name in ("runs", "seconds", "memory_mb"))
    return [
        Claim(f"{runs:,} runs are mined within {MAX_SECONDS} s", f"{seconds} s", seconds < MAX_SECONDS),
        Claim(f"with less than {MAX_MB:,} MB of memory", f"{memory:,} MB", memory < MAX_MB),
        Claim(
            "seconds per pair hardly depend on the pool's size",
            f"{max(rates) / min(rates) - 1:.0%} between the sizes",
            None,
        ),
    ]


def tables(figures: Figures) -> str:
    head = (
        "tasks",
        "runs",
        "pairs",
        "records, GB",
        "disk, MB",
        "s",
        "s / 1,000 pairs",
        "memory, MB",
        "prompts",
    )
    rows = [
        (
            *(f"{pool[name]:,}" for name in ("tasks", "runs", "pairs")),
            *(pool["record_gb"], pool["disk_mb"], pool["seconds"], f"{pool['seconds_per_1000_pairs']:.2f}"),
            *(f"{pool[name]:,}" for name in ("memory_mb", "prompts")),
        )
        for pool in figures["pools"]
    ]
    return table(head, rows)


ABOUT = """\
`experiments.mine` mines generated pools (`tests/mining/planted`): {runs_per_task} runs per task, half of them
failed, about {steps} steps per run and {elements} visible elements per page, with prompts and page texts as
collection writes them. Rules name the failures; no model is called. The time includes reading, checksums,
mining, balancing and writing. Memory is the proportional set size of the script and its processes together,
sampled five times a second. Generated pages compress and repeat better than real ones.
"""
PROOF = Proof("The miner's speed", ABOUT, measure, claims, tables, packages=("numpy", "rapidfuzz"))

if __name__ == "__main__":
    main(PROOF)
