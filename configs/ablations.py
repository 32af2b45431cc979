"""The full recipe and its variants on a demo's corpus, each with several seeds.

    python -m experiments.ablations --config=configs/ablations.py:demo --workdir=runs/ablations

It needs a demo run that has come as far as mining. Running the same command again goes on where it
stopped; seeds and variants may be added: `--config.seeds="(42, 43, 44, 45)"`. `smoke` goes the same way
with two trainings, in a few minutes.
"""

from __future__ import annotations

from ml_collections import ConfigDict

VARIANTS = ("demo", "smoke")


def get_config(variant: str = "demo") -> ConfigDict:
    if variant not in VARIANTS:
        raise KeyError(f"unknown variant {variant!r}: one of {', '.join(VARIANTS)}")
    return {"demo": _demo, "smoke": _smoke}[variant]()


def _demo() -> ConfigDict:
    config = ConfigDict()
    # The demo's workdir: its SFT policy, SFT corpus and mined prompts.
    config.run = "runs/demo"
    # Variant of configs/rl.py and configs/evaluate.py.
    config.size = "demo"
    # `full` is the whole recipe, the others are ablations of configs/rl.py.
    config.variants = (
        "full",
        "full_corpus",
        "anchor_free",
        "dapo",
        "no_kl",
        "binary_reward",
        "text_reward",
        "settled_prompts",
    )
    config.seeds = (42, 43, 44)
    config.iterations = 12
    # Seeds of each page type that a policy is evaluated on, and how often each task is played.
    config.eval_seeds = 10
    config.runs = 1
    # Trainings at once, each on its share of the cores; browsers of each evaluation.
    config.jobs = 2
    config.workers = 2
    # Gets ablations.md and ablations/; "": the workdir.
    config.output = "docs/results"
    # Of the bootstrap.
    config.seed = 0
    return config


def _smoke() -> ConfigDict:
    config = _demo()
    config.run = "runs/smoke"
    config.size = "smoke"
    config.variants = ("full", "dapo")
    config.seeds = (42,)
    config.iterations = 2
    config.eval_seeds = 1
    config.output = ""
    return config
