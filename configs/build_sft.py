"""Quality filter and flattening: trajectories to supervised samples.

    python -m experiments.build_sft --config=configs/build_sft.py:demo \
        --config.trajectories=runs/demo/collect --workdir=runs/demo/sft_corpus

`paper` holds the paper's figures. MiniWoB++ episodes are shorter than the paper's minimum of three
effective steps, so `demo` and `smoke` lower it; the report says so.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from collection.corpus.filter import BuildSftSettings
from rmsweb_jax.settings import variant_config

_DEMO = {"quality": {"min_effective_steps": 1}, "sizes_for": "tiny_base", "max_pixels": 16_384}
VARIANTS = {"demo": _DEMO, "smoke": _DEMO, "paper": {"quality": {"drop_duplicates": False}}}


def get_config(variant: str = "demo") -> ConfigDict:
    return variant_config(BuildSftSettings, VARIANTS, variant)
