"""The failure modes of a policy on a development split, counted.

    GEMINI_API_KEY=... python -m experiments.failure_prior --config=configs/failure_prior.py:paper \
        --config.pools=runs/dev/collect_policy,runs/dev/collect \
        --config.benchmarks.webvoyager=WebVoyager_data.jsonl \
        --config.benchmarks.online_mind2web=Online_Mind2Web.json \
        --config.benchmarks.webtailbench=WebTailBench.jsonl --workdir=runs/dev/failure_prior

Variants: `paper` (Gemini names the modes), `rules` (the rules alone, no model). Any chat-completions
endpoint names them as well: `--config.actor.kind=chat --config.actor.base_url=URL`.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from configs import collect

VARIANTS = ("paper", "rules")


def get_config(variant: str = "paper") -> ConfigDict:
    if variant not in VARIANTS:
        raise KeyError(f"unknown variant {variant!r}: one of {', '.join(VARIANTS)}")
    config = ConfigDict()
    # Data set folders of trajectories, separated by commas: the split's runs.
    config.pools = ""
    # The benchmarks' own files; what is empty is not checked against.
    config.benchmarks = ConfigDict({"webvoyager": "", "online_mind2web": "", "webtailbench": ""})
    # As in configs/make_tasks.py.
    config.thresholds = ConfigDict({"jaccard": 0.4, "containment": 0.6, "same_site": 0.6})
    # RMSWeb, appendix: below the first a second pass reviews, below the second the rules decide. Of each run
    # the model reads so many last steps.
    config.judging = ConfigDict({"review_below": 0.70, "rule_below": 0.30, "final_steps": 5})
    # Pairs at once.
    config.workers = 16
    # none (the rules alone), gemini, or chat: as in configs/collect.py.
    config.actor = collect.actor("gemini", model="gemini-3-pro-preview", max_tokens=4096)
    if variant == "rules":
        config.actor.kind = "none"
    return config
