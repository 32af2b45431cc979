"""The full recipe and its variants on a demo's corpus, each with several seeds.

    python -m experiments.studies.ablations.run --config=configs/studies/ablations.py:demo \
        --workdir=runs/ablations

It needs a demo run that has come as far as mining. Running the same command again goes on where it
stopped; seeds and variants may be added: `--config.seeds="(42, 43, 44, 45)"`. `smoke` goes the same way
with two trainings, in a few minutes.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from experiments.studies.ablations.settings import AblationSettings
from rmsweb_jax.settings import variant_config

_SMOKE = {
    "run": "runs/smoke",
    "size": "smoke",
    "variants": ("full", "dapo"),
    "seeds": (42,),
    "iterations": 2,
    "eval_seeds": 1,
    "output": "",
}
VARIANTS = {"demo": {}, "smoke": _SMOKE}


def get_config(variant: str = "demo") -> ConfigDict:
    return variant_config(AblationSettings, VARIANTS, variant)
