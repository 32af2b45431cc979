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

from configs import collect

VARIANTS = ("paper",)


def get_config(variant: str = "paper") -> ConfigDict:
    if variant not in VARIANTS:
        raise KeyError(f"unknown variant {variant!r}: one of {', '.join(VARIANTS)}")
    config = ConfigDict()
    # One query a line; a .jsonl file has objects with `query` and perhaps `locale`.
    config.queries = ""
    # The benchmarks' own files; what is empty is not checked against.
    config.benchmarks = ConfigDict({"webvoyager": "", "online_mind2web": "", "webtailbench": ""})
    # RMSWeb, appendix: shared 3-grams of words; both times `same_site` for tasks on one domain.
    config.thresholds = ConfigDict({"jaccard": 0.4, "containment": 0.6, "same_site": 0.6})
    # Calls at once.
    config.workers = 16
    # gemini, or chat: as in configs/collect.py.
    config.actor = collect.actor("gemini", model="gemini-3-pro-preview", max_tokens=4096)
    return config
