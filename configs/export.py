"""A finished training as a folder that is ready for a hub.

    python -m experiments.export --config=configs/export.py:merged --config.run=runs/demo/rl \
        --config.results=rl=runs/demo/evaluate/rl --workdir=runs/demo/release

Run it from where the training was run: its settings name folders.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from rmsweb_jax.export.config import ExportSettings
from rmsweb_jax.settings import variant_config

VARIANTS = {
    "merged": ("whole weights, for transformers and vLLM",),
    "adapter": ("the LoRA adapters alone, for PEFT", {"format": "adapter"}),
}


def get_config(variant: str = "merged") -> ConfigDict:
    return variant_config(ExportSettings, VARIANTS, variant)
