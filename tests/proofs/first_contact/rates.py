"""A blocked site and an outage: what runs without a result do to rates and differences."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from collection.config import ReportSettings
from collection.evaluation.results import Results, compare, load_results, score
from collection.report.paper_tables import p_value, percent, points
from configs.report import get_config
from experiments import report
from rmsweb_jax.settings import from_config
from tests.evaluation.made import results
from tests.proofs.page import table
from tests.report.evaluated import read_json, write_evaluation

# WebVoyager's size; its site of 43 tasks is the one that is blocked.
TASKS, RUNS, BLOCKED_TASKS, LOST = 588, 3, 43, 0.091
CHANCE = 0.78


def main() -> str:
    """Makes evaluation folders and reads them as a user does; prints and returns the page."""
    rng = np.random.default_rng(0)
    level = rng.beta(CHANCE * 2, (1 - CHANCE) * 2, (TASKS, 1))
    won, other_won = rng.random((2, TASKS, RUNS)) < level
    site = np.repeat(np.arange(TASKS)[:, None] < BLOCKED_TASKS, RUNS, axis=1)
    outage = rng.random((TASKS, RUNS)) < LOST
    nothing = np.zeros((TASKS, RUNS), bool)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        whole = _evaluated(root / "whole", won, nothing, "")
        blocked = _evaluated(root / "blocked", won, site, "captcha")
        hurt = _evaluated(root / "hurt", won, outage, "crashed")
        equal = _evaluated(root / "equal", other_won, nothing, "")
        tables = _headline(root, "blocked", "hurt")
    rest = whole.select(whole.tasks[BLOCKED_TASKS:])
    rates = {
        "all runs": whole,
        "the other sites alone": rest,
        f"one site of {BLOCKED_TASKS} tasks blocked": blocked,
        f"{LOST:.1%} of the runs lost at random": hurt,
    }
    pairs = {
        "blocked site − the same runs": (blocked, whole),
        "outage − the same runs": (hurt, whole),
        "blocked site − outage, of the same runs": (blocked, hurt),
        "an equal policy − all runs": (equal, whole),
        "an equal policy − outage": (equal, hurt),
    }
    scores = {name: score(one) for name, one in rates.items()}
    found = {name: compare(*pair) for name, pair in pairs.items()}
    rows = [
        {"evaluation": name, "runs without a result": one["missing"]}
        | {f"pass@{k}, %": percent(one[f"pass_at_{k}"]) for k in (1, 3)}
        for name, one in scores.items()
    ]
    differences = [
        {
            "difference": name,
            "missing": " / ".join(map(str, one["missing"])),
            "pass@1 (points)": points(one["pass_at_1"]),
            "permutation p": p_value(one["permutation_p"]),
            "McNemar p (pass@3)": p_value(one["mcnemar_p"]),
            "sign test of missing runs, p": f"{p_value(one['missing_p'])}{' ≠' if one['uneven'] else ''}",
        }
        for name, one in found.items()
    ]
    page = "\n\n".join(
        [
            "# Runs without a result",
            f"{TASKS} tasks, {RUNS} runs each, made evaluation folders. In brackets: the bounds, if all runs "
            "without a result had failed and if all had been solved. ¶ marks missing runs, ≠ uneven ones.",
            table(rows),
            table(differences),
            f"The headline table of `experiments.report` has the mark: {tables}.\n",
        ]
    )
    print(page)
    _check(scores, found, won, site, outage)
    return page


def _check(scores: dict, found: dict, won: np.ndarray, site: np.ndarray, outage: np.ndarray) -> None:
    whole, rest, blocked, hurt = (one["pass_at_1"] for one in scores.values())
    assert blocked["mean"] == rest["mean"], "the rate of the other sites has changed"
    assert math.isclose(rest["mean"], won[~site].mean())
    assert (blocked["low"], blocked["high"]) == (rest["low"], rest["high"])
    assert abs(hurt["mean"] - whole["mean"]) < 0.01, "an outage at random moved the rate"
    for one, hit in ((blocked, site), (hurt, outage)):
        assert math.isclose(one["least"], (won & ~hit).mean())
        assert math.isclose(one["most"], (won | hit).mean())
        assert one["least"] <= whole["mean"] <= one["most"]
    for one in list(found.values())[:3]:
        assert one["pass_at_1"]["mean"] == one["pass_at_3"]["mean"] == 0.0
        assert one["permutation_p"] == one["mcnemar_p"] == 1.0 and one["uneven"]
    for one in list(found.values())[3:]:
        assert one["permutation_p"] > 0.05, "equal policies differ"


def _evaluated(folder: Path, won: np.ndarray, hit: np.ndarray, outcome: str) -> Results:
    """Writes and reads an evaluation whose runs in `hit` [T, runs] ended with that outcome."""

    def field(task: int, run: int) -> dict[str, Any]:
        ended = outcome if hit[task, run] else "done" if won[task, run] else "max_steps"
        return {"site": f"site-{task // BLOCKED_TASKS}", "outcome": ended}

    made = results(folder.name, (won & ~hit).tolist(), field, "webvoyager")
    return load_results(write_evaluation(folder, made))


def _headline(root: Path, *labels: str) -> str:
    """Draws the paper's table of evaluations; returns the formats whose rates have bounds and a mark."""
    config = get_config("demo")
    config.update({"table": "main", "results": ",".join(f"{name}={root / name}" for name in labels)})
    (root / "table").mkdir()
    report.main(from_config(ReportSettings, config), root / "table")
    marked = []
    for file, mark in (("table.md", "] ¶"), ("main.tex", r"] \P{}")):
        text = (root / "table" / file).read_text().replace("\\]", "]")
        assert text.count(mark) >= len(labels), f"{file} has no mark"
        marked.append(file)
    measured = read_json(root / "table/table.json")["measured"]
    assert all(measured[name]["webvoyager"]["missing"] for name in labels)
    return ", ".join(marked)


if __name__ == "__main__":
    main()
