"""Supervised fine-tuning.

    python -m experiments.train_sft --config=configs/sft.py:demo --config.corpus=runs/demo/sft_corpus \
        --workdir=runs/demo/sft

"""

from __future__ import annotations

from ml_collections import ConfigDict

from rmsweb_jax.settings import variant_config
from rmsweb_jax.sft.config import SftConfig

# Qwen3-VL-8B-Instruct on one host of 8 accelerators or more is the default. The mesh is chosen from the
# number of chips, so that the samples of a step fill their rows. RL begins with the best checkpoint, as in
# the paper.
_8B = {"mesh": {"tensor": 0}, "export": "best"}
_32B = {"model": "Qwen3-VL-32B-Instruct", "warmup_ratio": 0.1, **_8B}
# The tiny base on two CPU cores, in about five minutes.
_DEMO = {
    "model": "tiny_base",
    "dtype": "float32",
    "param_dtype": "float32",
    "remat": "none",
    "max_length": 1_024,
    "max_pixels": 16_384,
    # Adapters of rank 64 were still naming elements badly after three epochs, and on a CPU a step with them
    # costs half as much again as one without.
    "trainable": "all",
    "epochs": 6,
    # A model a thousand times smaller wants larger steps.
    "learning_rate": 1e-3,
    "row_tokens": 1_536,
    "row_multiple": 128,
    "workers": 1,
    # The demo evaluates in a browser, on pages of its own.
    "eval": {"share": 0.0},
    "checkpoint_every": 20,
}
# The same stages in under a minute.
_SMOKE = {"epochs": 1, "batch_size": 8, "checkpoint_every": 4}

VARIANTS = {
    "demo": ("the tiny base on two CPU cores, five minutes", _DEMO),
    "smoke": ("a minute of it", _DEMO, _SMOKE),
    "8b": ("the paper's values for Qwen3-VL-8B", _8B),
    "32b": ("and for 32B", _32B),
    # Later models; the paper's values for 8B, with adapters on all linear layers of both kinds.
    "qwen35_4b": ("Qwen3.5-4B", _8B, {"model": "Qwen3.5-4B"}),
    "qwen35_9b": ("Qwen3.5-9B", _8B, {"model": "Qwen3.5-9B"}),
    "qwen35_27b": ("Qwen3.5-27B", _32B, {"model": "Qwen3.5-27B"}),
}


def get_config(variant: str = "demo") -> ConfigDict:
    return variant_config(SftConfig, VARIANTS, variant)
