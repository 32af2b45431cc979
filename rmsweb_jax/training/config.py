"""Settings of how a training run computes, the same for SFT and RL."""

from __future__ import annotations

import dataclasses
from typing import Literal

from rmsweb_jax.settings import Range, safe
from rmsweb_jax.training.mesh import MeshConfig

# Settings that both stages have.
TRAINING_RANGES = {
    # AdamW moves a weight by about its rate: at 1 nothing is left of the model. 0 measures without training.
    "learning_rate": Range(ge=0, lt=1),
    "weight_decay": Range(ge=0, le=1),
    "clip_norm": Range(gt=0),
    "epochs": Range(ge=1),
    "seed": Range(ge=0),
    "max_pixels": Range(ge=1),
    "row_tokens": Range(ge=1),
    "row_multiple": Range(ge=1),
    "attention_block": Range(ge=0),
    "checkpoint_every": Range(ge=1),
    "checkpoints_kept": Range(ge=1),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComputeConfig:
    """How a run computes: precision, memory, compiler and devices.

    Attributes:
      dtype, param_dtype: dtypes of the computation and of the base weights.
      remat: policy of rematerialization, see `qwen3_vl.text.remat`; "auto" is the cheapest that fits.
      quantize: "int8" stores the frozen matrices of the decoder with 8 bits; adapters are exported onto the
        weights as they were.
      attention: back end of the decoder's attention, see `AttentionConfig`; "auto" is that of the platform.
      attention_block: largest number of tokens of a block of attention; 0 takes that of the platform.
      compiler_options: options of XLA for the programs of training, each as name=value; on TPU they are added
        to `training.performance.TPU_OPTIONS`.
      row_multiple: the width of rows is a multiple of it.
      mesh: sizes of the axes `data`, `fsdp`, `tensor`; one may be -1.
    """

    dtype: str = "bfloat16"
    param_dtype: str = "bfloat16"
    remat: Literal["auto", "none", "dots", "named", "offload", "full"] = safe("auto")
    quantize: Literal["none", "int8"] = "none"
    attention: Literal["auto", "dense", "blocks", "pallas", "cudnn", "triton"] = safe("auto")
    attention_block: int = safe(0)
    compiler_options: tuple[str, ...] = safe(())
    row_multiple: int = safe(512)
    mesh: MeshConfig = safe(MeshConfig())
