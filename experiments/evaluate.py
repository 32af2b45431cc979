"""Stage 7: a policy on tasks nothing was trained on, in the browser.

    python -m experiments.evaluate --config=configs/evaluate.py:demo --config.label=base \
        --config.model=tiny_base --workdir=runs/demo/evaluate/base
    python -m experiments.evaluate --config=configs/evaluate.py:webvoyager --config.label=sft \
        --config.model=runs/sft/export --config.tasks_file=WebVoyager_data.jsonl \
        --config.excluded_file=excluded.json --config.judge.official=WebVoyager \
        --config.training=data/collect --workdir=runs/webvoyager/sft
"""

from __future__ import annotations

from pathlib import Path

from collection.evaluation.config import EvaluateSettings, benchmark_settings
from experiments import cli
from rmsweb_jax.records.bucket import REPORT


def main(settings: EvaluateSettings, workdir: Path) -> None:
    # They start browsers and draw figures, whose packages take a second to import.
    from collection.evaluation.results import missing_runs
    from collection.evaluation.runs import evaluate
    from collection.report.paper_tables import percent

    report = evaluate(settings, workdir)
    print(
        f"{report['label']}: pass@1 {percent(report['pass_at_1'])} %, {report['tasks']} tasks, "
        f"{report['runs']} runs each; {workdir / REPORT}"
    )
    if report.get("missing"):
        print(
            f"runs without a result: {missing_runs(report)}; they are in no rate (in brackets: that of all "
            "runs, if these had failed and if they had been solved); to play them again, delete "
            f"{workdir / REPORT} and run the same command"
        )


if __name__ == "__main__":
    cli.run(main, "configs/evaluate.py:demo", benchmark_settings)
