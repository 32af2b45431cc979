"""Host memory while a checkpoint in the shape of Qwen3-VL-2B is loaded. A few minutes, 5 GB of disk."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

from tests.proofs.result import ROOT, Claim, Figures, Proof, main, table

FOLDER = ROOT / "build/loading"
# Memory beyond the parameters: interpreter, libraries and the parts of files that are on their way.
MOST_EXTRA_GB = 0.5


def measure() -> Figures:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    # Processes of their own: writing the checkpoint must not count, nor what this process holds.
    _run("experiments.studies.benchmark.random_checkpoint", "--size=2b", f"--folder={FOLDER / '2b'}")
    output = _run("tests.qwen3_vl.load_and_save", str(FOLDER / "2b"), str(FOLDER / "again"))
    shutil.rmtree(FOLDER)
    found = json.loads(output.splitlines()[-1])
    sizes = {f"{name}_gb": round(found[name] / 1e9, 3) for name in ("params", "read", "before")}
    peak = found["before"] + found["peak"]
    extra = peak - found["params"]
    return {**sizes, "peak_gb": round(peak / 1e9, 3), "extra_gb": round(extra / 1e9, 3)}


def _run(module: str, *arguments: str) -> str:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def claims(figures: Figures) -> list[Claim]:
    return [
        Claim(
            f"loading a checkpoint takes at most {MOST_EXTRA_GB} GB beyond its parameters",
            f"{figures['extra_gb']} GB beyond {figures['params_gb']} GB",
            figures["extra_gb"] <= MOST_EXTRA_GB,
        )
    ]


def tables(figures: Figures) -> str:
    names = {
        "params_gb": "parameters",
        "read_gb": "read from files",
        "before_gb": "resident before loading: interpreter and libraries",
        "peak_gb": "peak resident while loading, all included",
        "extra_gb": "of that beyond the parameters",
    }
    return table(("", "GB"), [(words, f"{figures[name]:.3f}") for name, words in names.items()])


ABOUT = """\
`load_model` loads a random checkpoint in the shape of Qwen3-VL-2B, in bfloat16, in a fresh process on one
CPU device (`tests/qwen3_vl/load_and_save.py`).
"""
PROOF = Proof("Host memory while a checkpoint is loaded", ABOUT, measure, claims, tables, packages=("jax",))

if __name__ == "__main__":
    main(PROOF)
