"""Prompts of the ablations, drawn by fate.

    python -m experiments.studies.ablations.prompts --config=configs/studies/ablation_prompts.py:demo \
        --config.prompts=MINED --config.eval_prompts=CORPUS --config.model=DIR --workdir=DIR

The limits and gates are those of `configs/rl.py`, so that a prompt has the fate that training would give it.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from configs import rl
from experiments.studies.ablations.settings import PromptSettings
from rmsweb_jax.settings import variant_config

VARIANTS = {"demo": rl.VARIANTS["demo"], "smoke": rl.VARIANTS["smoke"]}


def get_config(variant: str = "demo") -> ConfigDict:
    return variant_config(PromptSettings, VARIANTS, variant)
