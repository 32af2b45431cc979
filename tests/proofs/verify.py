"""`experiments.verify` on this machine, on random weights in the shape of the 2B model; an idle machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from experiments.studies.benchmark.random_checkpoint import write_random_checkpoint
from rmsweb_jax.qwen3_vl.config import SIZES
from tests.proofs.result import ROOT, Claim, Figures, Proof, main, table

FOLDER = ROOT / "build/verify"
# What the command promises, and the memory that smaller machines have.
SECONDS, MEMORY_GB = 600, 16


def measure() -> Figures:
    """Makes the weights and their golden logits once, and checks them."""
    model, golden = FOLDER / "2b", FOLDER / "golden.safetensors"
    if not (model / "config.json").exists() or not any(model.glob("*.safetensors")):
        write_random_checkpoint(SIZES["2b"], model)
    written = _run(f"--model={model}", f"--write_golden={golden}")
    checked = _run(f"--model={model}", f"--golden={golden}", f"--output={FOLDER / 'out'}")
    return {
        "golden": {**written, "megabytes": round(golden.stat().st_size / 1e6, 1)},
        "verify": checked,
        "report": json.loads((FOLDER / "out/verify.json").read_bytes()),
    }


def _run(*arguments: str) -> dict[str, float]:
    """Runs the command; its exit code, seconds, seconds of all cores, and highest memory in GB."""
    begin = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "experiments.verify", *arguments], cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "exit_code": process.returncode,
        "seconds": round(time.monotonic() - begin, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_gb": round(usage.ru_maxrss * 1024 / 1e9, 1),
    }


def claims(figures: Figures) -> list[Claim]:
    rows, run = figures["report"]["checks"], figures["verify"]
    judged = [row for row in rows if row["ok"] is not None]
    good = sum(row["ok"] for row in judged)
    return [
        Claim(
            "each check of the 2B-shaped model is ok",
            f"{good} of {len(judged)}; exit code {run['exit_code']}",
            good == len(judged) and run["exit_code"] == 0,
        ),
        Claim(
            f"it takes at most {SECONDS / 60:.0f} minutes",
            f"{run['seconds'] / 60:.1f}; {run['cpu_seconds'] / 60:.1f} minutes of processor time",
            run["seconds"] <= SECONDS,
        ),
        Claim(
            f"it needs less than {MEMORY_GB} GB of memory",
            f"{run['peak_gb']} GB; golden logits {figures['golden']['peak_gb']} GB",
            max(run["peak_gb"], figures["golden"]["peak_gb"]) < MEMORY_GB,
        ),
    ]


def tables(figures: Figures) -> str:
    words = {True: "ok", False: "NO", None: ""}

    def cell(value: float | str) -> str:
        return value if isinstance(value, str) else f"{value:.4g}"

    rows = [
        (row["name"], cell(row["measured"]), row["limit"], words[row["ok"]], row["note"])
        for row in figures["report"]["checks"]
    ]
    golden = figures["golden"]
    return (
        f"Golden logits: {golden['megabytes']} MB, written in {golden['seconds']:.0f} s.\n\n"
        f"{table(('check', 'measured', 'limit', '', 'note'), rows)}"
    )


ABOUT = """\
`experiments.verify` with golden logits that transformers computed in float32 from the same folder: random
weights in the shape of Qwen3-VL-2B, stored in bfloat16. On a CPU the model computes in float32 and with few
tokens. For the rollout its weights stay in bfloat16, so that there is memory for the sampler's own. The
decoding kernel runs in the Pallas interpreter.

**No accelerator and no released weights have been checked yet.** On a TPU or GPU the same command takes
longer rows, runs the kernels of that device, and compares its speed with the peak rates:

    python -m experiments.verify --model=/models/Qwen3-VL-8B-Instruct --output=runs/verify
"""
PROOF = Proof(
    "A model and its devices checked with one command",
    ABOUT,
    measure,
    claims,
    tables,
    packages=("jax", "flax", "torch", "transformers"),
)

if __name__ == "__main__":
    main(PROOF)
