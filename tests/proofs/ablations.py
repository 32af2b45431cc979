"""The recipe and its variants on the demo's corpus, three seeds each. An hour after the demo; it resumes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from experiments.studies.ablations.figures import NOTES, PANELS, findings
from experiments.studies.ablations.figures import tables as study_tables
from tests.proofs.result import RESULTS, ROOT, Claim, Figures, Proof, demo_run, filled, main, table

PLOTS = RESULTS / "ablations"


def measure() -> Figures:
    """Runs the study, which continues from the results in docs/results/ablations."""
    demo_run()
    workdir = Path("runs/ablations")
    command = [sys.executable, "-m", "experiments.studies.ablations.run"]
    command += ["--config=configs/studies/ablations.py:demo", f"--workdir={workdir}"]
    subprocess.run(command, cwd=ROOT, check=True)
    for path in sorted((ROOT / workdir).glob("*.svg")):
        shutil.copyfile(path, PLOTS / path.name)
    return json.loads((ROOT / workdir / "figures.json").read_bytes())


def claims(figures: Figures) -> list[Claim]:
    return [
        Claim(f"{title}: the 95% interval excludes zero", found, None)
        for title, found in findings(figures).items()
    ]


def tables(figures: Figures) -> str:
    parts = [f"Not run yet: {', '.join(figures['missing'])}."] if figures["missing"] else []
    for one in study_tables(figures):
        rows = [row.cells for row in one.rows]
        parts += [
            f"## {one.title}",
            filled(one.caption),
            table([column.title for column in one.columns], rows),
        ]
    parts += ["## Training dynamics", filled(PANELS)]
    parts += [f"![{row['variant']}](ablations/{row['variant']}.svg)" for row in figures["variants"]]
    return "\n\n".join([*parts, "## Intervals", "\n".join(f"- {note}" for note in NOTES)])


ABOUT = """\
Each variant trains one SFT policy with seeds {seeds} on the corpus of `make demo` ({corpus}; `parameters`
counts those of the policy). The trained policy plays {tasks} tasks of {page_types} MiniWoB++ page types, on
seeds that no training uses ({config}). The scripted teacher is simulated, with seeded mistakes.

The figures show how the code behaves and how far a corpus of this size separates the variants. They do not
predict the paper's size. The results of each run are in `ablations/*.json`.
"""
PROOF = Proof("Ablations", ABOUT, measure, claims, tables, packages=("jax", "numpy"), browser=True)

if __name__ == "__main__":
    main(PROOF)
