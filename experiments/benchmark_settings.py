"""Settings of `experiments.benchmark`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from rmsweb_jax.errors import UserError
from rmsweb_jax.rl.config import AttentionLoRA
from rmsweb_jax.settings import Settings
from rmsweb_jax.training.config import MeshConfig


class BenchmarkConfig(Settings):
    """Settings of a measurement; the defaults are the size of the paper's runs.

    Attributes:
      model: a size ("2b", "8b", ...), or a model whose shape is taken.
      dtype: of weights and computation; adapters are float32.
      remat: rematerialization of training.
      prompt: tokens of a prompt.
      image_side: an image of it has this many tokens squared.
      response: tokens of a reply.
      samples: SFT samples in a row, of which each device that splits the batch has one.
      groups: RL groups, and prompts of the engine, on each of those devices.
      num_samples: replies in a group, and of the engine to a prompt.
      peak_tflops: of a device in this dtype, for MFU; 0: as published, where the chip is known.
      warmup, steps: steps that do not count, and those that do.
    """

    model: str = "8b"
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    remat: Literal["none", "dots", "named", "offload", "full"] = "full"
    mesh: MeshConfig = MeshConfig()
    lora: AttentionLoRA = AttentionLoRA()
    prompt: int = Field(default=4_096, ge=1)
    response: int = Field(default=256, ge=1)
    image_side: int = Field(default=16, ge=1)
    samples: int = Field(default=4, ge=1)
    groups: int = Field(default=2, ge=1)
    num_samples: int = Field(default=8, ge=1)
    peak_tflops: float = Field(default=0.0, ge=0)
    warmup: int = Field(default=2, ge=1)
    steps: int = Field(default=5, ge=1)

    @model_validator(mode="after")
    def _check_prompt(self) -> Self:
        if self.prompt < self.image_side**2 + 3:
            raise UserError(
                f"config.prompt={self.prompt} does not hold an image of {self.image_side}**2 tokens: "
                f"make it {self.image_side**2 + 3} or more"
            )
        return self
