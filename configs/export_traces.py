"""Recorded episodes as files for other tools.

    python -m experiments.export_traces --config=configs/export_traces.py:atif \
        --config.data=data/collect --workdir=data/atif

"""

from __future__ import annotations

from ml_collections import ConfigDict

from collection.config import ExportTracesSettings
from rmsweb_jax.settings import variant_config

VARIANTS = {
    "atif": ("Harbor's documents",),
    "hub": ("sessions for the trace viewer of the Hugging Face Hub", {"format": "hub"}),
}


def get_config(variant: str = "atif") -> ConfigDict:
    return variant_config(ExportTracesSettings, VARIANTS, variant)
