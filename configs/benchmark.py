"""Speed and memory of the forward pass and of a LoRA step, against transformers + PEFT.

    python -m experiments.benchmark --config=configs/benchmark.py:2b --output=runs/benchmark/2b.json

`tiny` runs in seconds and `2b` in minutes on two CPU cores; `8b` is the whole 8B model on one GPU of 80 GB or
more.
"""

from __future__ import annotations

from ml_collections import ConfigDict

VARIANTS = ("tiny", "2b", "8b")


def get_config(variant: str = "tiny") -> ConfigDict:
    return {"tiny": _tiny, "2b": _shape_2b, "8b": _shape_8b}[variant]()


def _shape_8b() -> ConfigDict:
    """The recipe's longest rows on one accelerator."""
    config = ConfigDict()
    # Heading of its table.
    config.name = "8b"
    # A size of rmsweb_jax.qwen3_vl.sizes, with random weights, and how much of it; 0: all of it.
    config.size = "8b"
    config.decoder_layers = 0
    config.vision_blocks = 0

    # "cpu", "cuda", or "tpu" without a reference.
    config.device = "cuda"
    config.dtype = "bfloat16"
    # "none" or "full"; the reference then checkpoints gradients a layer at a time too.
    config.remat = "full"
    # "transformers" (with torch and PEFT), or "none" to measure ours alone.
    config.reference = "transformers"
    # Of a CPU, on both sides; 0: as many as there are.
    config.threads = 0

    # Each row is an image, text, and a response whose tokens are scored.
    config.rows = 1
    config.length = 12_288
    config.response = 2_048
    config.max_pixels = 262_144

    config.lora = ConfigDict({"rank": 64, "alpha": 128.0})
    config.learning_rate = 1e-4
    config.weight_decay = 0.01
    config.clip_norm = 1.0

    # Dense rate of the device at this dtype, for the MFU; 0: that of a device known by name (H200), otherwise
    # no MFU is told.
    config.peak_tflops = 0.0
    config.warmup_steps = 2
    config.steps = 10
    config.seed = 0
    return config


def _shape_2b() -> ConfigDict:
    """Matrices of the 2B model in four layers, for a CPU."""
    config = _shape_8b()
    config.name = "2b"
    config.size = "2b"
    config.decoder_layers = 4
    config.vision_blocks = 4
    config.device = "cpu"
    config.dtype = "float32"
    config.length = 512
    config.response = 64
    config.max_pixels = 65_536
    config.steps = 5
    return config


def _tiny() -> ConfigDict:
    """Everything once, in seconds; at this size the ratio says little."""
    config = _shape_2b()
    config.name = "tiny"
    config.size = "tiny"
    config.decoder_layers = 0
    config.vision_blocks = 0
    config.rows = 4
    config.length = 256
    config.response = 32
    config.max_pixels = 16_384
    config.steps = 20
    return config
