"""Failure-mode mining: pools of runs to RL prompts.

    python -m experiments.mine --config=configs/mine.py:demo \
        --config.pools=runs/demo/collect,runs/demo/collect_policy --workdir=runs/demo/mine

Gates, weights of the total and caps are the paper's in every variant (RMSWeb, section 3.3). `paper` has no
other terms in the scores; `proven` adds those that held against replays (docs/results/mining.md), as the demo
does. In the demo a "domain" is a MiniWoB++ page, and rules label the failures.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from collection.mining.config import MineSettings
from rmsweb_jax.settings import variant_config

_DEMO = {"actor": {"kind": "none"}, "sizes_for": "tiny_base", "max_pixels": 16_384}
# Without the terms that RMSWeb does not have.
_PAPER = {
    "select": {
        "category": {"general": 0.0, "reached": 0.0, "apart": 0.0},
        "last_on_page": False,
    }
}
VARIANTS = {"demo": _DEMO, "smoke": _DEMO, "paper": _PAPER, "proven": {}}


def get_config(variant: str = "demo") -> ConfigDict:
    return variant_config(MineSettings, VARIANTS, variant)
