"""The figures, tables, plots and pages of a run, or one of the paper's tables from evaluations.

    python -m experiments.report --config=configs/report.py:demo --config.run=runs/demo \
        --workdir=runs/demo/report
    python -m experiments.report --table=main \
        --config.results=8b_base=runs/base-wv,8b_sft=runs/sft-wv,8b_rl=runs/rl-wv --workdir=runs/table

Labels with a row in the paper: `8b_base`, `8b_sft`, `8b_rl`, `32b_base`, `32b_sft`, `32b_rl` (main); `full`,
`full_corpus`, `anchor_free`, `dapo` (ablation); `with_reflection`, `without_reflection` (reflection). Any
other label gets a row of its own.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from collection.config import ReportSettings
from rmsweb_jax.settings import variant_config

VARIANTS = {"demo": ("the report of a run",), "smoke": ("the same",)}


def get_config(variant: str = "demo") -> ConfigDict:
    return variant_config(ReportSettings, VARIANTS, variant)
