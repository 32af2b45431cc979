"""Stage 7: a policy on tasks nothing was trained on, in the browser.

    python -m experiments.evaluate --config=configs/evaluate.py:demo --config.label=base \
        --config.model=tiny_base --workdir=runs/demo/evaluate/base
    python -m experiments.evaluate --config=configs/evaluate.py:webvoyager --config.label=sft \
        --config.model=runs/sft/export --config.tasks_file=WebVoyager_data.jsonl \
        --config.excluded_file=excluded.json \
        --config.training=data/collect --workdir=runs/webvoyager/sft
"""

from __future__ import annotations

from collection.evaluation.config import EvaluateSettings
from collection.evaluation.runs import evaluate
from experiments import cli
from rmsweb_jax.settings import safe_keys

if __name__ == "__main__":
    cli.run(evaluate, "configs/evaluate.py:demo", safe_keys(EvaluateSettings))
