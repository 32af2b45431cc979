"""Replays of mined decisions.

    python -m experiments.verify_mined --config=configs/verify_mined.py:demo \
        --config.mined=runs/demo/mine --workdir=runs/demo/verify_mined
"""

from __future__ import annotations

from ml_collections import ConfigDict

from collection.mining.config import VerifySettings
from configs.collect import DEMO_EPISODES
from rmsweb_jax.settings import variant_config

_DEMO = {**{name: DEMO_EPISODES[name] for name in ("browser", "prompt", "limits")}, "sample": 0.25}
VARIANTS = {
    "demo": ("the demo's pages; the scripted teacher without mistakes goes on", _DEMO),
    "smoke": ("the same", _DEMO, {"sample": 0.5}),
    "policy": (
        "a served policy goes on, eight times from each decision: give actor.base_url and actor.model",
        *(_DEMO, {"trials": 8, "actor": {"kind": "chat", "max_tokens": 128}}),
    ),
}


def get_config(variant: str = "demo") -> ConfigDict:
    return variant_config(VerifySettings, VARIANTS, variant)
