"""The settings of supervised fine-tuning, typed; `configs/sft.py` holds their values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.lora import LoRAConfig
from rmsweb_jax.sft.step import TRAINABLE


@dataclasses.dataclass(frozen=True)
class SftConfig:
    """Everything that decides a run.

    Attributes:
      corpus: data set folder with SFT samples.
      model: folder in Hugging Face layout, or "tiny_base".
      dtype, param_dtype: of the computation and of the base weights.
      remat: "none", or "full" to recompute layers in the backward pass.
      trainable: "lora" (adapters on all linear layers of the decoder) or "all" (every parameter).
      max_length: tokens; longer samples are dropped and counted.
      max_pixels: of a resized screenshot.
      batch_size: samples an update; each weighs the same.
      micro_batch_size: rows of one forward and backward pass, over all devices.
      bucket_multiple, bucket_count: rows are padded to at most so many lengths, multiples of this.
      warmup_ratio: share of the updates in which the rate rises from 0.
      mesh: sizes of the axes `data`, `fsdp`, `tensor`; one may be -1.
      checkpoint_every: updates.
    """

    corpus: str
    model: str
    dtype: str
    param_dtype: str
    remat: str
    trainable: str
    lora: LoRAConfig
    max_length: int
    max_pixels: int
    epochs: int
    seed: int
    batch_size: int
    micro_batch_size: int
    bucket_multiple: int
    bucket_count: int
    learning_rate: float
    warmup_ratio: float
    weight_decay: float
    clip_norm: float
    mesh: dict[str, int]
    checkpoint_every: int
    checkpoints_kept: int

    def __post_init__(self) -> None:
        if not self.corpus:
            raise UserError("config.corpus is empty: give the folder that experiments.build_sft wrote")
        if self.trainable not in TRAINABLE:
            raise UserError(f"config.trainable is {self.trainable!r}: use one of {', '.join(TRAINABLE)}")
        for name in ("epochs", "batch_size", "micro_batch_size", "bucket_count", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise UserError(f"config.{name} is {getattr(self, name)}: make it 1 or more")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SftConfig:
        """From the plain values of a config file."""
        return cls(**{**values, "lora": LoRAConfig(**values["lora"])})
