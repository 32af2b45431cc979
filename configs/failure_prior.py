"""The failure modes of a policy on a development split, counted.

    GEMINI_API_KEY=... python -m experiments.failure_prior --config=configs/failure_prior.py:paper \
        --config.pools=runs/dev/collect_policy,runs/dev/collect \
        --config.benchmarks.webvoyager=WebVoyager_data.jsonl \
        --config.benchmarks.online_mind2web=Online_Mind2Web.json \
        --config.benchmarks.webtailbench=WebTailBench.jsonl --workdir=runs/dev/failure_prior

Any chat-completions endpoint names the modes as well: `--config.actor.kind=chat --config.actor.base_url=URL`.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from collection.mining.config import FailurePriorSettings
from rmsweb_jax.settings import variant_config

VARIANTS = {
    "paper": ("Gemini names the modes",),
    "rules": ("the cues alone, no model", {"actor": {"kind": "none"}}),
}


def get_config(variant: str = "paper") -> ConfigDict:
    return variant_config(FailurePriorSettings, VARIANTS, variant)
