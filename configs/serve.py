"""The policy behind a chat-completions API on loopback.

    python -m experiments.serve --config=configs/serve.py:demo --config.model=runs/demo/sft/export \
        --config.port=8000 --workdir=/tmp/serve

`smoke` is `demo`; `8b` and `32b` hold what the paper's models read and write.
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
    "slots": (1, 4),
    "prompt_widths": (256, 512, 1024, 2048),
    "prefill_widths": (),
    "max_new_tokens": 128,
    # MiniWoB++ needs no others.
    "warm_widths": 2,
}
_TINY = {"model": "tiny_base", **DEMO}
VARIANTS = {"demo": _TINY, "smoke": _TINY, "8b": {}, "32b": {}}


def get_config(variant: str = "demo") -> ConfigDict:
    return variant_config(ServeSettings, VARIANTS, variant)
