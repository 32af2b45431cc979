"""A finished training as a folder that is ready for a hub.

    python -m experiments.export --config=configs/export.py:merged --config.run=runs/demo/rl \
        --config.results=rl=runs/demo/evaluate/rl --workdir=runs/demo/release

`merged` has whole weights, for transformers and vLLM; `adapter` the LoRA adapters alone, for PEFT. Run it
from where the training was run: its settings name folders.
"""

from __future__ import annotations

from ml_collections import ConfigDict

VARIANTS = ("merged", "adapter")


def get_config(variant: str = "merged") -> ConfigDict:
    if variant not in VARIANTS:
        raise KeyError(f"unknown variant {variant!r}: one of {', '.join(VARIANTS)}")
    config = ConfigDict()
    # Workdir of experiments.train_sft or experiments.train_rl.
    config.run = ""
    config.format = variant
    # On the card; "": made of the base's name and the stage.
    config.name = ""
    # Hub name of the base model (of adapters: of what they are put on); "": its folder stands for it, which
    # nobody else has.
    config.base_model = ""
    # Of the weights; "": what the base model's own card says.
    config.license = ""
    # Evaluations for the card: LABEL=DIR,LABEL=DIR,...
    config.results = ""
    # Default of generation_config.json: as the policy is evaluated.
    config.temperature = 0.6
    # Larger weights are split into several files.
    config.max_file_gb = 5.0
    # Of the bootstrap.
    config.seed = 0
    return config
