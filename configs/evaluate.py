"""A policy on held-out MiniWoB++ seeds, every task three times.

    python -m experiments.evaluate --config=configs/evaluate.py:demo --config.label=sft \
        --config.model=runs/demo/sft/export --workdir=runs/demo/evaluate/sft

`--config.actor.kind=scripted` evaluates the scripted teacher instead. `paper` has the paper's browser,
prompt and limits, with 16 episodes at once, for models served from a folder of that size.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from configs import collect

VARIANTS = ("demo", "smoke", "paper")


def get_config(variant: str = "demo") -> ConfigDict:
    if variant not in VARIANTS:
        raise KeyError(f"unknown variant {variant!r}: one of {', '.join(VARIANTS)}")
    # What an agent sees and may do is what it was trained on.
    source = collect.get_config(variant).to_dict()
    config = ConfigDict()
    # What the policy is called in records and tables, and its folder (or "tiny_base").
    config.label = "base"
    config.model = "tiny_base"
    config.pages = source["pages"]
    # Nothing is trained on seeds from a million on.
    config.first_seed = 1_000_000
    config.seeds = {"demo": 10, "smoke": 1, "paper": 20}[variant]
    # RMSWeb, section 4: every task exactly three times.
    config.runs = 3
    # Of the bootstrap.
    config.seed = 0
    # policy: `model`, served here; scripted, gemini or chat: as in configs/collect.py.
    config.actor = collect.actor(
        "policy",
        temperature=0.6,
        max_tokens=source["actor"]["max_tokens"] if variant == "paper" else 128,
        timeout_s=60.0,
    )
    del config.actor.model  # It is `model` above.
    for section in ("browser", "guard", "prompt", "limits", "fleet"):
        config[section] = ConfigDict(source[section])
    if variant == "smoke":
        # What little it has trained solves nothing in more steps either.
        config.update({"limits": {"max_steps": 2}})
    config.secrets = source["secrets"]
    return config
