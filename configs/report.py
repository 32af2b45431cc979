"""One page and one JSON file about a run.

    python -m experiments.report --config=configs/report.py:demo --config.run=runs/demo \
        --workdir=runs/demo/report
"""

from __future__ import annotations

from ml_collections import ConfigDict

VARIANTS = ("demo", "smoke")


def get_config(variant: str = "demo") -> ConfigDict:
    if variant not in VARIANTS:
        raise KeyError(f"unknown variant {variant!r}: one of {', '.join(VARIANTS)}")
    config = ConfigDict()
    # The folder whose stages are reported; those that have not run are shown so.
    config.run = ""
    # Of the bootstrap.
    config.seed = 0
    return config
