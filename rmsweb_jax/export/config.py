"""Settings of an export."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rmsweb_jax.settings import Settings, required


class ExportSettings(Settings):
    """Settings of `experiments.export`.

    Attributes:
      run: workdir of experiments.train_sft or experiments.train_rl.
      format: `merged`: all weights, for transformers and vLLM; `adapter`: LoRA adapters only, for PEFT.
      name: name on the card; "": made of the base's name and the stage.
      base_model: Hub name of the base model (for adapters: of the model that they belong to); "": its
        folder's name.
      license: license of the weights; "": that of the base model's own card.
      results: evaluations for the card: LABEL=DIR,LABEL=DIR,...
      temperature: default of generation_config.json: that of the policy's evaluation.
    """

    run: str = required("--config.run=DIR, a workdir of train_sft or train_rl")
    format: Literal["merged", "adapter"] = "merged"
    name: str = ""
    base_model: str = ""
    license: str = ""
    results: str = ""
    temperature: float = Field(default=0.6, gt=0)
