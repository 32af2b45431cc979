"""Stage 7: a policy on tasks nothing was trained on, in the browser.

    python -m experiments.evaluate --config=configs/evaluate.py:demo --config.label=base \
        --config.model=tiny_base --workdir=runs/demo/evaluate/base
    python -m experiments.evaluate --config=configs/evaluate.py:webvoyager --config.label=sft \
        --config.model=runs/sft/export --config.tasks_file=WebVoyager_data.jsonl \
        --config.excluded_file=excluded.json --config.references_file=reference_answer.json \
        --config.training=data/collect --workdir=runs/webvoyager/sft

The workdir becomes a data set folder of trajectories; `date_refresh.diff` has every prompt that was changed,
`results.json` every task and run, and `report.json` the rates with their intervals. The same command again
resumes, with the same prompts.
"""

from __future__ import annotations

import functools
from datetime import date
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from collection.evaluation.benchmarks.base import Benchmark
from collection.evaluation.benchmarks.registry import load_benchmark
from collection.evaluation.contaminated import contamination_report
from collection.evaluation.dates.asking import ask_bound
from collection.evaluation.dates.benchmark import DateRefresh, refresh_benchmark
from collection.evaluation.results import score, to_json
from collection.evaluation.runs import begin, evaluate
from collection.fleet_config import SAFE_ACTOR_KEYS, SAFE_FLEET_KEYS, fleet_config
from collection.llm.config import ActorConfig, make_model
from collection.llm.ledger import LEDGER
from experiments import cli
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import make_folder, write_atomic

# What was trained on changes what the report says, not what is played.
SAFE_KEYS = (*SAFE_FLEET_KEYS, *SAFE_ACTOR_KEYS, "training")


def main(config: ConfigDict, workdir: Path) -> None:
    """Plays all runs; the report is written last and says that the stage is done."""
    if (workdir / "report.json").exists():
        return
    make_folder(workdir)
    settings = config.to_dict()
    settings["actor"] |= {"label": settings["label"], "model": settings["model"]}
    benchmark = load_benchmark(settings)
    refreshed = None
    if "refresh" in settings:
        benchmark, refreshed = _refresh(benchmark, settings, workdir)
    # Before the first episode: what is wrong with these is not to be told after the last.
    setup = fleet_config(settings, benchmark.notes)
    contamination = contamination_report(benchmark, _paths(settings["training"]))
    about = begin(benchmark, workdir)
    evaluated = evaluate(benchmark, settings["runs"], setup, workdir)
    write_atomic(workdir / "results.json", to_json(evaluated.results.model_dump(mode="json")))
    report = {
        "stage": "evaluate",
        "seconds": round(evaluated.seconds, 1),
        "temperature": settings["actor"]["temperature"],
        **score(evaluated.results, settings["seed"]),
        "benchmark": about,
        "date_refresh": refreshed.summary() if refreshed else None,
        "contamination": contamination,
        "apart": evaluated.apart,
    }
    write_atomic(workdir / "report.json", to_json(report))


def _refresh(benchmark: Benchmark, settings: dict[str, Any], workdir: Path) -> tuple[Benchmark, DateRefresh]:
    section = settings["refresh"]
    try:
        today = date.fromisoformat(section["today"]) if section["today"] else date.today()
    except ValueError as error:
        raise UserError(f"config.refresh.today={section['today']!r}: write YYYY-MM-DD, or nothing") from error
    if section["lead_days"] < 0:
        raise UserError(f"config.refresh.lead_days={section['lead_days']}: use 0 or more")
    ask = None
    if section["ask"]["kind"] != "none":
        ask = functools.partial(
            ask_bound, model=make_model(ActorConfig(**section["ask"]).resolve(), workdir / LEDGER)
        )
    return refresh_benchmark(benchmark, today, section["lead_days"], ask, workdir)


def _paths(text: str) -> list[Path]:
    return [Path(name.strip()) for name in text.split(",") if name.strip()]


if __name__ == "__main__":
    cli.run(main, "configs/evaluate.py:demo", SAFE_KEYS)
