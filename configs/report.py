"""One page and one JSON file about a run, or one of the paper's tables from evaluations.

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

VARIANTS = ("demo", "smoke")


def get_config(variant: str = "demo") -> ConfigDict:
    if variant not in VARIANTS:
        raise KeyError(f"unknown variant {variant!r}: one of {', '.join(VARIANTS)}")
    config = ConfigDict()
    # The folder whose stages are reported; those that have not run are shown so.
    config.run = ""
    # Instead of the page: "main", "ablation" or "reflection" (also --table=NAME).
    config.table = ""
    # Its evaluations: LABEL=DIR,LABEL=DIR,... with workdirs of experiments.evaluate, one for each benchmark.
    config.results = ""
    # LABEL=PROMPT/RESPONSE,...: US dollars a million tokens, for policies without a price on record.
    config.prices = ""
    # Of the bootstrap.
    config.seed = 0
    return config
