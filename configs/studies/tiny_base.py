"""The tiny base: a small Qwen3-VL that grounds labels to element indices and knows no task.

    python -m experiments.studies.tiny_base.run --config=configs/studies/tiny_base.py:tiny --workdir=runs/base

`tiny` makes what ships as rmsweb_jax/tiny_base, `qwen35` a model of Qwen3.5's kind; `smoke` goes the same way
in a minute.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from experiments.studies.tiny_base.settings import BaseConfig, Phase
from rmsweb_jax.settings import variant_config

_RECALL = {"recalls": 0.7, "plain": 0.3}
_BARE = {"bare": 1.0}
_MOSTLY_STATE = {"state": 0.8, "bare": 0.2}
_STATE = {"state": 1.0}
_FINAL = {"state": 0.5, "recorded": 0.5}
_TINY = {
    "phases": (
        Phase(low=2, high=4, length=64, rows=32, name="recall", mix=_RECALL, repetition=0.1, accuracy=0.9),
        Phase(low=2, high=5, length=128, rows=16, name="bare4", mix=_BARE, accuracy=0.88),
        Phase(low=3, high=9, length=192, rows=16, name="bare8", mix=_BARE, accuracy=0.88),
        Phase(
            low=3, high=10, length=384, rows=8, name="state8", mix=_MOSTLY_STATE, accuracy=0.88, max_steps=400
        ),
        Phase(
            low=3,
            high=20,
            length=512,
            rows=8,
            name="state20",
            mix=_STATE,
            accuracy=0.92,
            max_steps=900,
            rate=0.4,
        ),
        Phase(
            low=2,
            high=35,
            length=576,
            rows=8,
            name="final",
            mix=_FINAL,
            accuracy=2.0,
            max_steps=1400,
            rate=0.4,
        ),
    )
}
_SMOKE = {
    "tokenizer_words": 20_000,
    "phases": (
        Phase(low=2, high=4, length=64, rows=8, name="recall", mix=_RECALL, repetition=0.1, max_steps=6),
        Phase(low=3, high=8, length=512, rows=2, name="final", mix=_FINAL, max_steps=6),
    ),
    "checkpoint_every": 5,
    "recorded": {
        "per_page": 0,
        "held_out_per_page": 0,
        "per_demo_page": 1,
        "held_out_per_demo_page": 1,
        "rows": 2,
    },
    "scores": {"rows": 2, "batches": 1},
    "demo_pages": ("click-button", "login-user"),
}
# Half of its layers have the recurrence: the released models have three quarters, but 24 layers or more.
_QWEN35 = {
    "model": {"attention_interval": 2, "partial_rotary_factor": 0.5, "mrope_section": (4, 2, 2)},
}
VARIANTS = {
    "tiny": ("what ships", _TINY),
    "qwen35": ("of Qwen3.5's kind", _TINY, _QWEN35),
    "smoke": ("a minute of it", _SMOKE),
}


def get_config(variant: str = "tiny") -> ConfigDict:
    return variant_config(BaseConfig, VARIANTS, variant)
