"""Import of runs that other systems left.

    python -m experiments.import_runs --config=configs/import_runs.py:browser_use \
        --config.source=/runs/browser_use --workdir=data/imported

One variant for each kind of folder; `collection/importers` says what is read of each.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from collection.importers import FORMATS, ImportSettings
from rmsweb_jax.settings import variant_config

VARIANTS = {name: {"kind": name} for name in FORMATS}


def get_config(variant: str = "browser_use") -> ConfigDict:
    return variant_config(ImportSettings, VARIANTS, variant)
