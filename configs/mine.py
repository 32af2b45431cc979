"""Failure-mode mining: pools of runs to RL prompts.

    python -m experiments.mine --config=configs/mine.py:demo \
        --config.pools=runs/demo/collect,runs/demo/collect_policy --workdir=runs/demo/mine

Gates, weights of the total and caps are the paper's in every variant (RMSWeb, section 3.3). In the demo a
"domain" is a MiniWoB++ page.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from collection.mining.config import MineSettings
from rmsweb_jax.settings import variant_config

_DEMO = {"actor": {"kind": "none"}}
VARIANTS = {
    "demo": ("cues label the failures, no model", _DEMO),
    "smoke": ("the same", _DEMO),
    "paper": ("scores of the paper's terms alone", {"terms": "paper"}),
    "proven": ("and of those that held against replays (docs/results/mining.md), as in the demo",),
}


def get_config(variant: str = "demo") -> ConfigDict:
    return variant_config(MineSettings, VARIANTS, variant)
