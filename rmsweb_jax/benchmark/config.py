"""The settings of the benchmark, typed; `configs/benchmark.py` holds their values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.lora import LoRAConfig
from rmsweb_jax.qwen3_vl.sizes import SIZES
from rmsweb_jax.qwen3_vl.text import REMAT_POLICIES

_CHOICES = {
    "size": tuple(SIZES),
    "device": ("cpu", "cuda", "tpu"),
    "dtype": ("float32", "bfloat16"),
    "remat": REMAT_POLICIES,
    "reference": ("transformers", "none"),
}


@dataclasses.dataclass(frozen=True)
class BenchmarkConfig:
    """Everything that decides a comparison.

    Attributes:
      name: of its table.
      size: one of `rmsweb_jax.qwen3_vl.sizes`.
      decoder_layers, vision_blocks: so many of the size's own; 0: all of them.
      device: "cpu", "cuda" or "tpu" (ours alone).
      dtype: of weights and computation, "float32" or "bfloat16".
      remat: "none" or "full"; "dots" has no counterpart in the reference.
      reference: "transformers" or "none".
      threads: of a CPU; 0: all that this process may use.
      rows, length: of the batch; an image of at most `max_pixels` and a scored `response` are in each row.
      peak_tflops: of the device at this dtype; 0: of a known device, otherwise no MFU is told.
      warmup_steps: not counted; the first one compiles.
      steps: counted ones of each side.
    """

    name: str
    size: str
    decoder_layers: int
    vision_blocks: int
    device: str
    dtype: str
    remat: str
    reference: str
    threads: int
    rows: int
    length: int
    response: int
    max_pixels: int
    lora: LoRAConfig
    learning_rate: float
    weight_decay: float
    clip_norm: float
    peak_tflops: float
    warmup_steps: int
    steps: int
    seed: int

    def __post_init__(self) -> None:
        for key, choices in _CHOICES.items():
            if getattr(self, key) not in choices:
                raise UserError(f"config.{key} is {getattr(self, key)!r}: use one of {', '.join(choices)}")
        for key in ("rows", "response", "warmup_steps", "steps"):
            if getattr(self, key) < 1:
                raise UserError(f"config.{key} is {getattr(self, key)}: make it 1 or more")
        if self.lora.dropout or self.lora.vision or self.lora.targets != "all_linear":
            raise UserError("config.lora: measured are adapters on the decoder, without dropout")
        if self.reference != "none" and (self.remat == "dots" or self.device == "tpu"):
            raise UserError(
                f"config.remat={self.remat} on {self.device} has no counterpart in transformers: "
                "give --config.reference=none"
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> BenchmarkConfig:
        """From the plain values of a config file."""
        return cls(**{**values, "lora": LoRAConfig(**values["lora"])})

    def architecture(self) -> Qwen3VLConfig:
        """The size with fewer layers; DeepStack's taps are then spread evenly over the blocks that stay.

        Raises:
          UserError: more layers than the size has, or fewer than DeepStack needs.
        """
        whole = SIZES[self.size]
        layers = self.decoder_layers or whole.text.num_hidden_layers
        blocks = self.vision_blocks or whole.vision.depth
        taps = whole.num_deepstack
        for key, count, least, most in (
            ("decoder_layers", layers, taps, whole.text.num_hidden_layers),
            ("vision_blocks", blocks, taps, whole.vision.depth),
        ):
            if not least <= count <= most:
                raise UserError(f"config.{key} is {count}: size {self.size} takes {least} to {most}")
        indexes = whole.vision.deepstack_visual_indexes
        if blocks < whole.vision.depth:
            indexes = tuple((tap + 1) * blocks // (taps + 1) for tap in range(taps))
        return dataclasses.replace(
            whole,
            text=dataclasses.replace(whole.text, num_hidden_layers=layers),
            vision=dataclasses.replace(whole.vision, depth=blocks, deepstack_visual_indexes=indexes),
        )
