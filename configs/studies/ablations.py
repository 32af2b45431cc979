"""The full recipe and its variants, with several seeds each, on prompts drawn by fate.

    python -m experiments.studies.ablations.run --config=configs/studies/ablations.py:demo \
        --workdir=runs/ablations

It needs a demo run with an SFT corpus. The same command again resumes, and accepts more seeds and variants:
`--config.seeds="(42, 43, 44, 45)"`. `smoke` runs two trainings in a few minutes.
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
    "sft_epochs": 1,
    "task_seeds": 4,
    "per_class": 8,
    "browser_seeds": 1,
    "eval_seeds": 1,
    "output": "",
}
VARIANTS = {"demo": ("the study",), "smoke": ("a minute of it", _SMOKE)}


def get_config(variant: str = "demo") -> ConfigDict:
    return variant_config(AblationSettings, VARIANTS, variant)
