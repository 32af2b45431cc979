"""Seed tasks: search queries turned into tasks by a model.

    GEMINI_API_KEY=... python -m experiments.make_tasks --config=configs/make_tasks.py:paper \
        --config.queries=queries.txt --config.benchmarks.webvoyager=WebVoyager_data.jsonl \
        --config.benchmarks.online_mind2web=Online_Mind2Web.json \
        --config.benchmarks.webtailbench=WebTailBench.jsonl --workdir=runs/tasks

Then `--config.tasks_file=runs/tasks/tasks.jsonl` gives the tasks to experiments.collect. Any
chat-completions endpoint writes them as well: `--config.actor.kind=chat --config.actor.base_url=URL`.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from collection.config import MakeTasksSettings
from rmsweb_jax.settings import variant_config

VARIANTS = {"paper": ("Gemini writes the tasks",)}


def get_config(variant: str = "paper") -> ConfigDict:
    return variant_config(MakeTasksSettings, VARIANTS, variant)
