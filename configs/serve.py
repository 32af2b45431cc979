"""The policy behind a chat-completions API on loopback.

    python -m experiments.serve --config=configs/serve.py:demo --config.model=runs/demo/sft/export \
        --config.port=8000 --workdir=/tmp/serve
"""

from __future__ import annotations

from ml_collections import ConfigDict

from rmsweb_jax.serve.config import ServeSettings
from rmsweb_jax.settings import variant_config

# What the demo's policy reads and writes, also when `collect` or `evaluate` starts the server.
DEMO = {
    "dtype": "float32",
    "mesh": {"tensor": 1},
    "max_pixels": 16_384,
    "lanes": 8,
    "samples": 4,
    "prompt_tokens": 2048,
    "max_new_tokens": 128,
}
_TINY = {"model": "tiny_base", **DEMO}
VARIANTS = {
    "demo": ("the tiny base, or the demo's policies", _TINY),
    "smoke": ("the same", _TINY),
    "8b": ("what the paper's 8B model reads and writes",),
    "32b": ("the same for 32B",),
}


def get_config(variant: str = "demo") -> ConfigDict:
    return variant_config(ServeSettings, VARIANTS, variant)
