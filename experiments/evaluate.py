"""Stage 7: a policy on tasks nothing was trained on, in the browser.

    python -m experiments.evaluate --config=configs/evaluate.py:demo --config.label=base \
        --config.model=tiny_base --workdir=runs/demo/evaluate/base

The workdir becomes a data set folder of trajectories; `results.json` has every task and run, and
`report.json` the rates with their intervals.
"""

from __future__ import annotations

from pathlib import Path

from ml_collections import ConfigDict

from collection.evaluation.results import score, to_json
from collection.evaluation.runs import evaluate, held_out_tasks
from collection.fleet_config import SAFE_ACTOR_KEYS, SAFE_FLEET_KEYS, fleet_config
from experiments import cli
from rmsweb_jax.records.files import write_atomic

SAFE_KEYS = (*SAFE_FLEET_KEYS, *SAFE_ACTOR_KEYS)


def main(config: ConfigDict, workdir: Path) -> None:
    """Plays all runs; the report is written last and says that the stage is done."""
    if (workdir / "report.json").exists():
        return
    settings = config.to_dict()
    settings["actor"] |= {"label": settings["label"], "model": settings["model"]}
    tasks = held_out_tasks(settings["pages"], settings["first_seed"], settings["seeds"])
    setup = fleet_config(settings)
    evaluated = evaluate(tasks, settings["runs"], setup, workdir)
    write_atomic(workdir / "results.json", to_json(evaluated.results.model_dump(mode="json")))
    report = {
        "stage": "evaluate",
        "seconds": round(evaluated.seconds, 1),
        "temperature": settings["actor"]["temperature"],
        **score(evaluated.results, settings["seed"]),
    }
    write_atomic(workdir / "report.json", to_json(report))


if __name__ == "__main__":
    cli.run(main, "configs/evaluate.py:demo", SAFE_KEYS)
