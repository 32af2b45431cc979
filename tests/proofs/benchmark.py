"""Speed and memory against transformers + PEFT; an idle machine. BENCHMARKS=8b runs on a GPU of 80 GB."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.proofs.result import RESULTS, ROOT


def main() -> None:
    """Starts the study, which writes its own page and figures."""
    for variant in os.environ.get("BENCHMARKS", "tiny 2b").split():
        command = [sys.executable, "-m", "experiments.studies.benchmark.run"]
        command += [f"--config=configs/studies/benchmark.py:{variant}"]
        command += [f"--output={RESULTS / 'benchmark' / variant}.json", f"--table={RESULTS / 'benchmark.md'}"]
        subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
