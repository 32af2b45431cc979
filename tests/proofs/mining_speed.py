"""How long the miner takes for pools of three sizes, and how much memory.

python -m tests.proofs.mining_speed --output=docs/results/mining_speed.md
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from rmsweb_jax.records.dataset import iter_shard, load_manifest
from rmsweb_jax.records.files import write_atomic
from tests.mining.planted import write_pool

ROOT = Path(__file__).parents[2]
SIZES = (500, 1_500, 5_000)
GOAL_S, GOAL_MB = 300, 2_000
PAGE = """\
# The miner's speed

    make proof-mining-speed

runs `{command}`, which writes this page (python {python}, {cores} cores, load average {load} at the end).
`experiments.mine` mines generated pools (`tests/mining/planted`): {runs} runs a task, half of them failed,
about {steps} steps a run and {elements} visible elements a page, with prompts and page texts as a collecting
run writes them. The rules name the failures; no model is asked. Reading, checking the checksums, mining,
balancing and writing are counted. Memory is the proportional set size of the script and its processes
together, looked at five times a second. Generated pages compress and repeat better than real ones.

| tasks | runs | pairs | records, GB | disk, MB | seconds | seconds / 1,000 pairs | memory, MB | prompts |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{rows}

{verdict}
"""


@dataclasses.dataclass(frozen=True)
class Mining:
    """One run of the miner."""

    tasks: int
    runs: int
    pairs: int
    record_bytes: int
    disk_bytes: int
    seconds: float
    peak_bytes: int
    prompts: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("docs/results/mining_speed.md"))
    parser.add_argument("--tasks", type=int, nargs="+", default=SIZES)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--elements", type=int, default=300)
    given = parser.parse_args()
    found = []
    for tasks in given.tasks:
        with tempfile.TemporaryDirectory(prefix="rmsweb-mining-") as folder:
            found.append(_mine(Path(folder), tasks, given.runs, given.steps, given.elements))
        print(found[-1], flush=True)
    rows = "\n".join(map(_row, found))
    page = PAGE.format(
        command="python -m " + " ".join(["tests.proofs.mining_speed", *sys.argv[1:]]),
        python=platform.python_version(),
        cores=os.cpu_count(),
        load=", ".join(f"{load:.1f}" for load in os.getloadavg()),
        runs=given.runs,
        steps=given.steps,
        elements=given.elements,
        rows=rows,
        verdict=_verdict(found),
    )
    write_atomic(given.output, page.encode())


def _mine(folder: Path, tasks: int, runs: int, steps: int, elements: int) -> Mining:
    pool, workdir = folder / "pool", folder / "mine"
    write_pool(pool, tasks, runs, steps, elements, seed=0)
    workdir.mkdir()
    disk = sum(path.stat().st_size for path in pool.glob("*.array_record"))
    command = [
        *(sys.executable, "-m", "experiments.mine", "--config=configs/mine.py:demo"),
        *(f"--config.pools={pool}", f"--workdir={workdir}"),
    ]
    started = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _memory(process.pid))
        try:
            process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            continue
    seconds = time.monotonic() - started
    if process.returncode:
        raise SystemExit(f"the miner ended with {process.returncode}")
    report = json.loads((workdir / "report.json").read_text())
    shutil.rmtree(workdir)
    return Mining(
        tasks=tasks,
        runs=load_manifest(pool).records,
        pairs=report["pairs"],
        record_bytes=_record_bytes(pool),
        disk_bytes=disk,
        seconds=seconds,
        peak_bytes=peak,
        prompts=report["prompts"],
    )


def _memory(pid: int) -> int:
    """Of a process and its children, bytes."""
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
    """What all records have unpacked, by the mean of a shard's."""
    manifest = load_manifest(pool)
    sizes = [len(entry) for entry in iter_shard(pool, manifest.shards[0])]
    return round(manifest.records * sum(sizes) / len(sizes))


def _row(one: Mining) -> str:
    cells = (
        f"{one.tasks:,}",
        f"{one.runs:,}",
        f"{one.pairs:,}",
        f"{one.record_bytes / 1e9:.1f}",
        f"{one.disk_bytes / 1e6:.0f}",
        f"{one.seconds:.0f}",
        f"{1000 * one.seconds / one.pairs:.2f}",
        f"{one.peak_bytes / 1e6:.0f}",
        f"{one.prompts:,}",
    )
    return f"| {' | '.join(cells)} |"


def _verdict(found: list[Mining]) -> str:
    largest = max(found, key=lambda one: one.tasks)
    rates = [one.seconds / one.pairs for one in found]
    return (
        f"The largest pool: {largest.seconds:.0f} s (the goal is below {GOAL_S}) and "
        f"{largest.peak_bytes / 1e6:.0f} MB (below {GOAL_MB}). Time a pair differs by "
        f"{100 * (max(rates) / min(rates) - 1):.0f} % between the sizes."
    )


if __name__ == "__main__":
    main()
