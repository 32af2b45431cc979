"""Salvage-DS reinforcement learning.

    python -m experiments.train_rl --config=configs/rl.py:demo --config.prompts=runs/demo/mine/prompts \
        --config.model=runs/demo/sft/export --workdir=runs/demo/rl

A variant is a size, or a size and an ablation: `8b`, `8b,anchor_free`, `demo,dapo`. `online` is the demo with
episodes that the policy plays, `8b,online` that of a size, `8b,online,async` an ablation of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from configs import collect, serve
from experiments.online_settings import OnlineSettings
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
_SIZES = {
    "demo": ("the tiny policy on two CPU cores, five minutes", _DEMO),
    "smoke": ("a minute of it", _DEMO, _SMOKE),
    "8b": ("the paper's values for 8B", _8B),
    "32b": ("and for 32B", _32B),
    # Qwen3.5: the paper's targets in the quarter of the layers that has attention, and in the others what
    # projects into the recurrence and out of it.
    "qwen35_4b": ("Qwen3.5-4B", {**_8B, "model": "runs/sft-qwen35_4b/export"}),
    "qwen35_9b": ("Qwen3.5-9B", {**_8B, "model": "runs/sft-qwen35_9b/export"}),
    "qwen35_27b": ("Qwen3.5-27B", {**_32B, "model": "runs/sft-qwen35_27b/export"}),
}

# Each with what differs from the size.
ABLATIONS = {
    # `config.eval_prompts` should name the mined prompts, so that runs are compared on the same ones.
    "full_corpus": ("no mining: prompts are the actions of an SFT corpus", {"corpus": "full"}),
    "anchor_free": (
        "rejected groups are kept for the KL term alone",
        {"objective": {"salvage_weight": 0.0}},
    ),
    # Mined corpus, reward and KL stay.
    "dapo": (
        "std gate alone, no salvage, DAPO's own clip range",
        {
            "gate": "contrast",
            "max_salvage_groups": 0,
            "objective": {"salvage_weight": 0.0, "clip_high": 0.28},
        },
    ),
    "no_kl": ("no KL term; the divergence is still measured", {"objective": {"kl_coef": 0.0}}),
    "binary_reward": ("pays for exact replies alone", {"reward": "binary"}),
    "text_reward": ("pays for similar text", {"reward": "text"}),
    "attention_only": ("Qwen3.5: adapters on attention alone", {"lora": {"targets": "attention_only"}}),
    "async": ("an endpoint draws while the policy is updated", {"max_staleness": 1}),
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
        # At 3e-3 pages that are not played are forgotten (docs/results/keeping.md).
        "learning_rate": 1e-3,
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


ONLINE_ABLATIONS = {
    "async": ("a policy begins the next batch when it is loaded", {"max_staleness": 1}),
    "step_bonus": ("turns that take a mined decision's verified action are paid", {"step_bonus": 0.5}),
    "turn_credit": ("all turns weigh the same", {"credit": "turn"}),
    "forks": ("credit where episodes of a group part: drawn there, finished greedily", {"credit": "fork"}),
    "unmasked": ("faults of browser, site, machine or judge are failures", {"mask_faults": False}),
    "failures": ("failures weigh as much as successes", {"negative_weight": 1.0}),
}
_ACTOR = {"server_settings": serve.DEMO, "timeout_s": 60.0}
_DEMO_PLAY = {"play": {**collect.DEMO_EPISODES, "fleet": {"workers": 5}, "actor": _ACTOR}}
_SMOKE_PLAY = {"play": {**collect.SMOKE_EPISODES, "limits": {"max_steps": 2}}}
_LARGE_PLAY = {"play": {"actor": {"timeout_s": 600.0}}}
_ONLINE_SIZES = {
    "demo": (_DEMO_PLAY, _ONLINE["demo"]),
    "smoke": (_DEMO_PLAY, _ONLINE["demo"], _SMOKE_PLAY, _ONLINE["smoke"]),
    "8b": (_LARGE_PLAY, _ONLINE["8b"]),
    "32b": (_LARGE_PLAY, _ONLINE["8b"]),
    **{f"qwen35_{size}": (_LARGE_PLAY, _ONLINE["8b"]) for size in ("4b", "9b", "27b")},
}


def _variants() -> Iterator[tuple[str, tuple[Any, ...]]]:
    for size, (line, *patches) in _SIZES.items():
        yield size, (line, *patches)
        for name, (change, patch) in ABLATIONS.items():
            yield f"{size},{name}", (change, *patches, patch)
    for size in ("", *_SIZES):
        line, *patches = _SIZES[size or "demo"]
        patches += _ONLINE_SIZES[size or "demo"]
        name = f"{size},online".strip(",")
        yield name, (f"{line}; the policy plays episodes", *patches)
        for ablation, (change, patch) in ONLINE_ABLATIONS.items():
            yield f"{name},{ablation}", (change, *patches, patch)


VARIANTS = dict(_variants())


def get_config(variant: str = "demo") -> ConfigDict:
    settings = OnlineSettings if "online" in variant.split(",") else RlConfig
    return variant_config(settings, VARIANTS, variant)
