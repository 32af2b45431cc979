"""Settings that SFT and RL share. Settings import no jax: a wrong one is refused at once."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rmsweb_jax.settings import Settings, internal, safe


class MeshConfig(Settings):
    """Devices: sizes of the mesh's axes; one may be -1, which takes the devices left.

    Attributes:
      data: copies of the model.
      fsdp: devices over which weights and optimizer are split.
      tensor: devices that split each matrix; 0 chooses it, see `qwen.sharding.choose_mesh`.
    """

    data: int = 1
    fsdp: int = -1
    tensor: int = 1


class LoRAConfig(Settings):
    """Shape of the adapters.

    Attributes:
      rank, alpha: what an adapter adds is scaled by alpha / rank.
      dropout: on the adapter's input.
      targets: "all_linear" (SFT: all matrices of the decoder's layers), or those of RL, see `AttentionLoRA`.
      vision: True adds adapters to the vision tower's blocks (qkv, proj and both matrices of the MLP).
    """

    rank: int = Field(default=64, ge=1)
    alpha: float = Field(default=128.0, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    targets: Literal["all_linear", "attention", "attention_only"] = internal("all_linear")
    vision: bool = False


class ComputeConfig(Settings):
    """How a run computes: precision, memory, compiler and devices.

    Attributes:
      dtype, param_dtype: dtypes of the computation and of the base weights.
      remat: policy of rematerialization, see `qwen.text.remat`; "auto" is the cheapest that fits.
      quantize: "int8" stores the frozen matrices of the decoder with 8 bits; adapters are exported onto the
        weights as they were.
      attention: back end of the decoder's attention, see `AttentionConfig`; "auto" is that of the platform.
      attention_block: largest number of tokens of a block of attention; 0 takes that of the platform.
      compiler_options: options of XLA for the programs of training, each as name=value; on TPU they are added
        to `training.performance.TPU_OPTIONS`.
      row_multiple: the width of rows is a multiple of it.
      mesh: sizes of the axes of devices.
    """

    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    param_dtype: Literal["bfloat16", "float32"] = "bfloat16"
    remat: Literal["auto", "none", "dots", "named", "offload", "full"] = safe("auto")
    quantize: Literal["none", "int8"] = "none"
    attention: Literal["auto", "dense", "blocks", "pallas", "cudnn", "triton"] = safe("auto")
    attention_block: int = safe(0, ge=0)
    compiler_options: tuple[str, ...] = safe(())
    row_multiple: int = safe(512, ge=1)
    mesh: MeshConfig = safe(MeshConfig())
