"""Speed and memory of the forward pass and of a LoRA step, against transformers + PEFT.

    python -m experiments.studies.benchmark.run --config=configs/studies/benchmark.py:2b \
        --output=runs/benchmark/2b.json

`tiny` runs in seconds and `2b` in minutes on two CPU cores; `8b` is the whole 8B model on one GPU of 80 GB or
more.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from experiments.studies.benchmark.config import BenchmarkConfig
from rmsweb_jax.settings import variant_config

# Matrices of the 2B model in four layers, for a CPU.
_2B = {
    "name": "2b",
    "size": "2b",
    "decoder_layers": 4,
    "vision_blocks": 4,
    "device": "cpu",
    "dtype": "float32",
    "samples": 1,
    "packed": 1,
    "length": 512,
    "response": 64,
    "max_pixels": 65_536,
    "steps": 5,
}
# Everything once, in seconds; at this size the ratio says little.
_TINY = {
    "name": "tiny",
    "size": "tiny",
    "decoder_layers": 0,
    "vision_blocks": 0,
    "samples": 4,
    "packed": 2,
    "length": 256,
    "response": 32,
    "max_pixels": 16_384,
    "steps": 20,
}
VARIANTS = {"tiny": (_2B, _TINY), "2b": _2B, "8b": {}}


def get_config(variant: str = "tiny") -> ConfigDict:
    return variant_config(BenchmarkConfig, VARIANTS, variant)
