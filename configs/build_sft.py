"""Quality filter and flattening: trajectories to supervised samples.

    python -m experiments.build_sft --config=configs/build_sft.py:demo \
        --config.trajectories=runs/demo/collect --workdir=runs/demo/sft_corpus

"""

from __future__ import annotations

from ml_collections import ConfigDict

from collection.config import BuildSftSettings
from rmsweb_jax.settings import variant_config

_DEMO = {"quality": {"min_effective_steps": 1}}
VARIANTS = {
    "demo": ("episodes of MiniWoB++, which are shorter than the paper's minimum of three steps", _DEMO),
    "smoke": ("the same", _DEMO),
    "screenshot": (
        "runs of agents that act on points, imported from public sets, for policies that see no page text",
        {"prompts": "screenshot", **_DEMO},
    ),
    "paper": ("the paper's figures", {"quality": {"drop_duplicates": False}}),
}


def get_config(variant: str = "demo") -> ConfigDict:
    return variant_config(BuildSftSettings, VARIANTS, variant)
