"""Judges on recorded runs, and how far they agree.

    python -m experiments.judge --config=configs/judge.py:demo --config.data=runs/demo/evaluate/sft \
        --workdir=runs/demo/judge
    python -m experiments.judge --config=configs/judge.py:paper --config.data=data/imported \
        --config.actor.base_url=URL --config.actor.model=gpt-4o --config.actor.api_key_env=OPENAI_API_KEY \
        --config.labels=labels.jsonl --workdir=runs/judge

Variants: `demo` (the reward's verdict and the recorded one, no model), `paper` (outcome judge and WebJudge by
one model as well, and what it makes of the outcome judge's failures when it sees all of a run). Tasks with
rubrics: `--config.judges.rubric.kind=actor --config.notes=FILE`. Official judges:
`--config.judges.official_webjudge.kind=actor --config.judges.official_webjudge.official=CHECKOUT`, likewise
`webvoyager`, `browser_use`, `agenttrek` and `universal_verifier` (docs/evaluate.md has the checkouts).
"""

from __future__ import annotations

from ml_collections import ConfigDict

from collection.judges.config import JudgeDataSettings
from rmsweb_jax.settings import variant_config

_BY_ACTOR = {"kind": "actor"}
VARIANTS = {
    "demo": {},
    "paper": {
        "actor": {"kind": "chat"},
        "judges": {"outcome": _BY_ACTOR, "webjudge": _BY_ACTOR},
        "cross_check": _BY_ACTOR,
    },
}


def get_config(variant: str = "demo") -> ConfigDict:
    return variant_config(JudgeDataSettings, VARIANTS, variant)
