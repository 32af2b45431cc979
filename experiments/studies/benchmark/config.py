"""Settings of the benchmark; the defaults measure the whole 8B model on one accelerator."""

from __future__ import annotations

import dataclasses
from typing import Literal

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.config import SIZES, Qwen3VLConfig
from rmsweb_jax.qwen3_vl.lora import LoRAConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkConfig:
    """Settings of one comparison.

    Attributes:
      name: of the comparison.
      size: one of `rmsweb_jax.qwen3_vl.config`.
      decoder_layers, vision_blocks: number to keep; 0: all.
      device: "cpu", "cuda" or "tpu" (ours alone).
      dtype: of weights and computation, "float32" or "bfloat16".
      remat: "none" or "full"; "dots" has no counterpart in the reference.
      reference: "transformers" or "none".
      threads: CPU threads; 0: all cores of this process.
      samples, length: of the batch; each sample has an image of at most `max_pixels` and `response` scored
        tokens.
      packed: samples in a row of ours; the reference has each in a row of its own, without padding.
      peak_tflops: of the device in this dtype; 0: of a known device, otherwise there is no MFU.
      warmup_steps: steps before timing; the first one compiles.
      steps: timed steps of each side.
    """

    name: str = "8b"
    size: str = "8b"
    decoder_layers: int = 0
    vision_blocks: int = 0
    device: Literal["cpu", "cuda", "tpu"] = "cuda"
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    remat: Literal["none", "dots", "named", "offload", "full"] = "full"
    reference: Literal["transformers", "none"] = "transformers"
    threads: int = 0
    samples: int = 4
    packed: int = 4
    length: int = 5_120
    response: int = 512
    max_pixels: int = 262_144
    lora: LoRAConfig = LoRAConfig(rank=64, alpha=128.0)
    learning_rate: float = 1e-4
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    peak_tflops: float = 0.0
    warmup_steps: int = 2
    steps: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise UserError(f"config.size is {self.size!r}: use one of {', '.join(SIZES)}")
        for key in ("samples", "packed", "response", "warmup_steps", "steps"):
            if getattr(self, key) < 1:
                raise UserError(f"config.{key} is {getattr(self, key)}: make it 1 or more")
        if self.samples % self.packed:
            raise UserError(f"config.packed={self.packed} does not divide config.samples={self.samples}")
        if self.lora.dropout or self.lora.vision or self.lora.targets != "all_linear":
            raise UserError("config.lora: only adapters on the decoder without dropout are measured")
        if self.reference != "none" and (self.remat == "dots" or self.device == "tpu"):
            raise UserError(
                f"config.remat={self.remat} on {self.device} has no counterpart in transformers: "
                "give --config.reference=none"
            )

    def architecture(self) -> Qwen3VLConfig:
        """The size with fewer layers; DeepStack's taps are spread evenly over the remaining blocks.

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
