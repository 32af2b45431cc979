"""Speed of SFT, RL and the engine on the devices of this machine.

    python -m experiments.benchmark --config=configs/benchmark.py:8b --workdir=runs/benchmark

`tiny` has the shape of the demo's base and takes a minute on two CPU cores. `8b` is for a GPU of 80 GB or
more or a slice of TPUs, over which `mesh.fsdp` splits the weights.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from experiments.benchmark_settings import BenchmarkConfig
from rmsweb_jax.settings import variant_config

_TINY = {
    "model": "tiny_base",
    "dtype": "float32",
    "remat": "none",
    "lora": {"rank": 16, "alpha": 32.0},
    "prompt": 256,
    "response": 32,
    "image_side": 4,
    "samples": 2,
    "groups": 1,
    "num_samples": 4,
    "warmup": 1,
    "steps": 2,
}
VARIANTS = {
    "tiny": ("the shape of the demo's base, for a CPU", _TINY),
    "2b": ("Qwen3-VL 2B at the size of the paper's runs", {"model": "2b"}),
    "8b": ("the same for 8B",),
    "32b": ("the same for 32B", {"model": "32b"}),
}


def get_config(variant: str = "tiny") -> ConfigDict:
    return variant_config(BenchmarkConfig, VARIANTS, variant)
