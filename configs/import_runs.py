"""Import of runs that other systems left.

    python -m experiments.import_runs --config=configs/import_runs.py:browser_use \
        --config.source=/runs/browser_use --workdir=data/imported

`collection/formats` says what is read of each kind of folder.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from collection.config import ImportSettings
from rmsweb_jax.settings import variant_config

_SYSTEMS = {
    "browser_use": "browser-use",
    "webvoyager": "WebVoyager",
    "online_mind2web": "Online-Mind2Web",
    "fara": "Fara-7B",
    "molmoweb": "MolmoWeb",
    "openwebrl": "OpenWebRL",
    "webgym": "WebGym",
    "atif": "agents whose traces are ATIF documents",
}
VARIANTS = {name: (f"runs of {system}", {"kind": name}) for name, system in _SYSTEMS.items()}


def get_config(variant: str = "browser_use") -> ConfigDict:
    return variant_config(ImportSettings, VARIANTS, variant)
