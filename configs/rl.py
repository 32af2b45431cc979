"""Salvage-DS reinforcement learning.

    python -m experiments.train_rl --config=configs/rl.py:demo --config.prompts=runs/demo/mine/prompts \
        --config.model=runs/demo/sft/export --workdir=runs/demo/rl

A variant is a size, or a size and an ablation: `8b`, `8b,anchor_free`, `demo,dapo`. `binary_reward` pays
for exact replies alone, `text_reward` for similar text, and `async` also trains on groups of the policy
before. `8b` and `32b` hold the paper's values; `demo` and `smoke` fit two CPU cores. `online` is the
demo with episodes that the policy plays, `8b,online` that of a size, `8b,online,async` an ablation of it.
"""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.settings import variant_config

# The 8B SFT policy on one host of 8 accelerators or more is the default.
# Its mesh is chosen from the number of chips, so that the groups of a step fill their rows.
_8B = {"model": "runs/sft-8b/export", "mesh": {"tensor": 0}}
_32B = {"model": "runs/sft-32b/export", "mesh": {"tensor": 0}}
# The tiny policy on two CPU cores, in about five minutes.
_DEMO = {
    "dtype": "float32",
    "param_dtype": "float32",
    # Log-probabilities are computed by the program that takes gradients: what it saves is written each time.
    "remat": "dots",
    "lora": {"rank": 16, "alpha": 32.0},
    "max_prompt_tokens": 1_024,
    "max_response_tokens": 112,
    "max_pixels": 16_384,
    "iterations": 16,
    "train_groups": 16,
    "mini_batch_groups": 4,
    "gen_batch_groups": 16,
    "max_gen_batches": 3,
    "max_salvage_groups": 8,
    # A model a thousand times smaller wants larger steps.
    "learning_rate": 3e-4,
    "row_tokens": 1_536,
    "row_multiple": 128,
    "rollout_lanes": 64,
    "eval_every": 4,
}
# The same stages in under a minute.
_SMOKE = {
    "iterations": 2,
    "train_groups": 4,
    "mini_batch_groups": 2,
    "gen_batch_groups": 4,
    "max_gen_batches": 2,
    "max_salvage_groups": 2,
    "num_samples": 4,
    "rollout_lanes": 16,
    "eval_every": 2,
}
_SIZES = {"demo": (_DEMO,), "smoke": (_DEMO, _SMOKE), "8b": (_8B,), "32b": (_32B,)}

ABLATIONS = {
    # No mining: `config.prompts` is the SFT corpus, and every action in it is a prompt. `config.eval_prompts`
    # should name the mined prompts, so that runs are compared on the same ones.
    "full_corpus": {"corpus": "full"},
    # Rejected groups are kept for the KL term alone.
    "anchor_free": {"objective": {"salvage_weight": 0.0}},
    # Std gate alone, no salvage, DAPO's own Clip-Higher range; mined corpus, reward and KL stay.
    "dapo": {
        "competence_gate": False,
        "max_salvage_groups": 0,
        "objective": {"salvage_weight": 0.0, "clip_high": 0.28},
    },
    # The divergence is still measured.
    "no_kl": {"objective": {"kl_coef": 0.0}},
    "binary_reward": {"reward": "binary"},
    "text_reward": {"reward": "text"},
    # An endpoint draws while the policy is updated; the training mesh keeps what it has begun.
    "async": {"max_staleness": 1},
}
VARIANTS = _SIZES | {
    f"{size},{name}": (*patches, change)
    for size, patches in _SIZES.items()
    for name, change in ABLATIONS.items()
}


# Pages with text fields, of whose tasks the demo's SFT policy solves some, and less than half of the time.
ONLINE_PAGES = ("enter-password", "focus-text-2", "login-user", "use-autocomplete")
# Online runs: what differs from the size.
_ONLINE = {
    "demo": {
        "pages": ONLINE_PAGES,
        # Seeds after those that SFT has seen.
        "first_seed": 16,
        "max_prompt_tokens": 1_280,
        # A group is the episodes of one task, whose turns fill an optimizer step. All of a batch that have
        # contrast are trained on, several times: playing is what takes time.
        "iterations": 8,
        "num_samples": 8,
        "train_groups": 16,
        "mini_batch_groups": 1,
        "gen_batch_groups": 16,
        "max_gen_batches": 1,
        "max_salvage_groups": 4,
        "epochs": 4,
        # Most episodes fail, each in a way of its own.
        "negative_weight": 0.0,
        # The demo's prompts are of earlier seeds: no task that is played has a verified reply.
        "objective": {"salvage_weight": 0.0},
        "learning_rate": 3e-3,
        "row_tokens": 2_048,
        # Held-out replies and episodes are drawn by one server.
        "endpoint": {"concurrency": 16},
    },
    "smoke": {
        "pages": ("click-button", "click-option"),
        "iterations": 2,
        "num_samples": 2,
        # So few episodes seldom differ: rejected groups have the KL term alone.
        "epochs": 1,
        "negative_weight": 1.0,
        "train_groups": 2,
        "mini_batch_groups": 1,
        "gen_batch_groups": 2,
        "max_gen_batches": 1,
        "max_salvage_groups": 1,
    },
    # `wiki` and `roundup` are left for evaluation.
    "8b": {"applications": ("docs", "oscar", "ihatemoney", "trac", "machina", "helpdesk")},
}


# What differs from an online run: the next batch is played while the policy is updated; turns that take a
# mined decision's verified action are paid; all turns weigh the same; faults are failures; failures weigh
# as much as successes.
ONLINE_ABLATIONS = {
    "async": {"max_staleness": 1},
    "step_bonus": {"step_bonus": 0.5},
    "turn_credit": {"credit": "turn"},
    "unmasked": {"mask_faults": False},
    "failures": {"negative_weight": 1.0},
}
ONLINE_VARIANTS = [
    ",".join(filter(None, (size, "online", change)))
    for size in ("", *_SIZES)
    for change in ("", *ONLINE_ABLATIONS)
]


def get_config(variant: str = "demo") -> ConfigDict:
    if variant in ONLINE_VARIANTS:
        size, _, change = variant.partition("online")
        return _online_config(size.strip(",") or "demo", ONLINE_ABLATIONS.get(change.strip(","), {}))
    return variant_config(RlConfig, VARIANTS, variant)


def _online_config(size: str, change: dict[str, Any]) -> ConfigDict:
    # Machines that train offline need no browser's packages.
    from configs import collect, serve
    from experiments.online import OnlineSettings

    demo = {"play": {**collect.DEMO_EPISODES, "fleet": {"workers": 5}, "actor": collect.DEMO_POLICY}}
    smoke = {"play": {**collect.SMOKE_EPISODES, "limits": {"max_steps": 2}}}
    large = {"play": {"actor": {**collect.POLICY, "server_settings": serve.VARIANTS["8b"]}}}
    patches = {
        "demo": (demo, _ONLINE["demo"]),
        "smoke": (demo, _ONLINE["demo"], smoke, _ONLINE["smoke"]),
        "8b": (large, _ONLINE["8b"]),
        "32b": (large, _ONLINE["8b"]),
    }
    variants = {name: (*_SIZES[name], *changes, change) for name, changes in patches.items()}
    return variant_config(OnlineSettings, variants, size)
