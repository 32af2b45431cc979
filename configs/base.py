"""The tiny base: a small Qwen3-VL that grounds labels to element indices and knows no task.

    python -m experiments.make_base --config=configs/base.py:tiny --workdir=runs/base

`tiny` makes what ships as rmsweb_jax/tiny_base; `smoke` goes the same way in a minute.
"""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

_FINAL = {"state": 0.5, "recorded": 0.5}
VARIANTS = ("tiny", "smoke")


def get_config(variant: str = "tiny") -> ConfigDict:
    return {"tiny": _tiny, "smoke": _smoke}[variant]()


def _phase(name: str, mix: dict[str, float], elements: tuple[int, int], **sizes: float) -> dict[str, Any]:
    """One phase of the curriculum.

    Args:
      mix: share of the batches by style: `recalls`, `plain`, `bare`, `state`, `recorded`.
      elements: fewest and most elements of a generated page.
      sizes: `length` of a row in tokens and `rows` of a batch; the phase ends after `max_steps`, or once
        `accuracy` of the last `window` batches' questions were right; `rate` multiplies the learning rates.
    """
    sizes = {"accuracy": 0.95, "window": 50, "max_steps": 4000, "repetition": 0.0, "rate": 1.0, **sizes}
    return {"name": name, "mix": mix, "low": elements[0], "high": elements[1], **sizes}


def _tiny() -> ConfigDict:
    config = ConfigDict()
    config.seed = 0
    config.vocab_size = 2048
    config.tokenizer_words = 60_000
    config.model = ConfigDict(
        {
            "hidden_size": 192,
            "intermediate_size": 384,
            "num_hidden_layers": 4,
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
            "head_dim": 32,
            "mrope_section": (6, 5, 5),
            "rope_theta": 10_000.0,
            "max_position_embeddings": 4096,
            "vision_hidden_size": 64,
            "vision_intermediate_size": 128,
            "vision_depth": 3,
            "vision_heads": 2,
            "vision_positions": 64,
            "embedding_std": 0.5,
            # Heads of 32 with unit norms cannot attend sharply enough to begin with.
            "qk_norm": 1.5,
        }
    )
    config.muon_rate = 0.02
    config.adam_rate = 0.005
    config.warmup_steps = 50
    # The last phase ends with a linear decay to this share of the rates.
    config.final_rate = 0.05
    config.phases = (
        _phase(
            "recall", {"recalls": 0.7, "plain": 0.3}, (2, 4), length=64, rows=32, repetition=0.1, accuracy=0.9
        ),
        _phase("bare4", {"bare": 1.0}, (2, 5), length=128, rows=16, accuracy=0.88),
        _phase("bare8", {"bare": 1.0}, (3, 9), length=192, rows=16, accuracy=0.88),
        _phase(
            "state8", {"state": 0.8, "bare": 0.2}, (3, 10), length=384, rows=8, accuracy=0.88, max_steps=400
        ),
        _phase(
            "state20", {"state": 1.0}, (3, 20), length=512, rows=8, accuracy=0.92, max_steps=900, rate=0.4
        ),
        _phase("final", _FINAL, (2, 35), length=576, rows=8, accuracy=2.0, max_steps=1400, rate=0.4),
    )
    config.checkpoint_every = 100
    # Seeds of recorded pages: `per_page` of every page, `per_demo_page` of those that the demo plays.
    config.recorded = ConfigDict(
        {
            "seed": 100_000,
            "held_out_seed": 150_000,
            "per_page": 2,
            "per_demo_page": 14,
            "held_out_per_page": 1,
            "held_out_per_demo_page": 3,
            "max_actions": 3,
            "max_pixels": 16_384,
            # Shape of their batches; prompts that leave no room for a question are left out.
            "length": 352,
            "rows": 12,
        }
    )
    config.demo_pages = (
        "click-button", "click-checkboxes", "click-collapsible", "click-dialog-2", "click-link",
        "click-option",
        "click-tab", "click-tab-2-easy", "choose-list", "enter-password", "enter-text", "focus-text-2",
        "login-user", "navigate-tree", "search-engine", "use-autocomplete",
    )  # fmt: skip
    config.scores = ConfigDict({"seed": 900_000, "batches": 12, "length": 640, "rows": 8})
    return config


def _smoke() -> ConfigDict:
    config = _tiny()
    config.tokenizer_words = 20_000
    config.phases = (
        _phase(
            "recall", {"recalls": 0.7, "plain": 0.3}, (2, 4), length=64, rows=8, repetition=0.1, max_steps=6
        ),
        _phase("final", _FINAL, (3, 8), length=512, rows=2, max_steps=6),
    )
    config.checkpoint_every = 5
    few = {"per_page": 0, "held_out_per_page": 0, "per_demo_page": 1, "held_out_per_demo_page": 1, "rows": 2}
    config.update({"recorded": few, "scores": {"rows": 2, "batches": 1}})
    config.demo_pages = ("click-button", "login-user")
    return config
