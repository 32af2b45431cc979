"""The recipe and its variants on the demo's corpus, three seeds each. An hour after the demo; it resumes."""

from __future__ import annotations

import subprocess
import sys

from tests.proofs.result import ROOT, demo_run


def main() -> None:
    """Starts the study, which writes its own page and figures."""
    demo_run()
    command = [sys.executable, "-m", "experiments.studies.ablations.run"]
    command += ["--config=configs/studies/ablations.py:demo", "--workdir=runs/ablations"]
    subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
