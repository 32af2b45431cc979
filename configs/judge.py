"""Judges on recorded runs, and how far they agree.

    python -m experiments.judge --config=configs/judge.py:demo --config.data=runs/demo/evaluate/sft \
        --workdir=runs/demo/judge
    python -m experiments.judge --config=configs/judge.py:own --config.data=data/imported \
        --config.actor.base_url=URL --config.actor.model=gpt-4o --config.actor.api_key_env=OPENAI_API_KEY \
        --config.labels=labels.jsonl --workdir=runs/judge

Tasks with rubrics: `--config.judges="('own_rubric',)" --config.notes=FILE`. Official judges:
`--config.judges="('webvoyager',)" --config.official.webvoyager=CHECKOUT`, likewise `browser_use`,
`webjudge`, `agenttrek` and `universal_verifier` (docs/evaluate.md has the checkouts).
"""

from __future__ import annotations

from ml_collections import ConfigDict

from collection.judges.config import JudgeDataSettings
from rmsweb_jax.settings import variant_config

_OWN = {
    "actor": {"kind": "chat"},
    "judges": ("reward", "recorded", "own_outcome"),
    "cross_check": "own_outcome",
}
# RMSWeb, appendix: the failures of WebTailBench's own verifier are examined again.
_PAPER = {
    **_OWN,
    "judges": ("recorded", "universal_verifier"),
    "cross_check": "universal_verifier",
}
VARIANTS = {
    "demo": ("the reward's verdict and the recorded one, no model",),
    "own": ("and those of a model by our prompt, which examines failures again", _OWN),
    "paper": ("WebTailBench's verifier, of which official has a checkout, and its failures again", _PAPER),
}


def get_config(variant: str = "demo") -> ConfigDict:
    return variant_config(JudgeDataSettings, VARIANTS, variant)
