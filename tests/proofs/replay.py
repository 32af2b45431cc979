"""Mined decisions, replayed twice in a browser: verdicts, agreement, seconds. A quarter of an hour."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.schema import ReplayVerdict
from tests.proofs.result import ROOT, Claim, Figures, Proof, main, table

# Neither the demo's seeds nor those of any other proof.
FIRST_SEED, SEEDS = 3000, 28
LEAST, AGREEMENT = 200, 0.98


def measure() -> Figures:
    with tempfile.TemporaryDirectory(prefix="rmsweb-replay-") as name:
        root = Path(name)
        seeds = (f"--config.first_seed={FIRST_SEED}", f"--config.seeds={SEEDS}")
        _run("collect", root / "collect", "collect.py:demo", *seeds)
        _run("mine", root / "mine", "mine.py:demo", f"--config.pools={root / 'collect'}")
        reports, verdicts = [], []
        for repetition in ("first", "second"):
            folder = root / repetition
            mined = f"--config.mined={root / 'mine'}"
            _run("verify_mined", folder, "verify_mined.py:demo", mined, "--config.sample=0.0")
            reports.append(json.loads((folder / "report.json").read_bytes()))
            verdicts.append([one.verdict for one in read_dataset(folder / "verdicts", ReplayVerdict)])
    pairs = list(zip(*verdicts, strict=True))
    seconds = sum(report["seconds"] for report in reports)
    return {
        "seeds": SEEDS,
        "decisions": len(pairs),
        "equal": sum(one == other for one, other in pairs),
        "seconds_per_decision": round(seconds / (2 * len(pairs)), 2),
        "verdicts": [
            {"first": one, "second": other, "decisions": count}
            for (one, other), count in Counter(pairs).most_common()
        ],
    }


def _run(script: str, workdir: Path, config: str, *overrides: str) -> None:
    command = [sys.executable, "-m", f"experiments.{script}", f"--config=configs/{config}", *overrides]
    subprocess.run([*command, f"--workdir={workdir}"], cwd=ROOT, check=True)


def claims(figures: Figures) -> list[Claim]:
    equal, decisions = figures["equal"], figures["decisions"]
    return [
        Claim(
            f"at least {AGREEMENT:.0%} of {LEAST} decisions or more get the same verdict again",
            f"{equal} of {decisions}",
            decisions >= LEAST and equal >= AGREEMENT * decisions,
        )
    ]


def tables(figures: Figures) -> str:
    rows = [list(row.values()) for row in figures["verdicts"]]
    return table(("first verdict", "second verdict", "decisions"), rows)


ABOUT = """\
The scripted teacher plays the demo's pages on {seeds} fresh seeds, its runs are mined, and each decision is
replayed in real Chromium, all of them twice: the failed run up to the decision, then the success's action,
and from there the teacher without mistakes; likewise with the failed run's own action. It takes
{seconds_per_decision} s a decision with two browsers.
"""
PROOF = Proof("Mined decisions, replayed twice", ABOUT, measure, claims, tables, browser=True)

if __name__ == "__main__":
    main(PROOF)
