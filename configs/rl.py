"""Salvage-DS reinforcement learning.

    python -m experiments.train_rl --config=configs/rl.py:demo --config.prompts=runs/demo/mine/prompts \
        --config.model=runs/demo/sft/export --workdir=runs/demo/rl

A variant is a size, or a size and an ablation: `8b`, `8b,anchor_free`, `demo,dapo`. `binary_reward` pays
for exact replies alone, `text_reward` for similar text, and `settled_prompts` draws prompts that are always
mastered or always hopeless less often. `8b` and `32b` hold the paper's values; `demo` and
`smoke` fit two CPU cores.
"""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

SIZES = ("demo", "smoke", "8b", "32b")
ABLATIONS = (
    "full_corpus",
    "anchor_free",
    "dapo",
    "no_kl",
    "binary_reward",
    "text_reward",
    "settled_prompts",
)
VARIANTS = (*SIZES, *(f"{size},{ablation}" for size in SIZES for ablation in ABLATIONS))


def get_config(variant: str = "demo") -> ConfigDict:
    size, _, ablation = variant.partition(",")
    config = {"demo": _demo, "smoke": _smoke, "8b": _paper_8b, "32b": _paper_32b}[size]()
    if "," in variant:
        changes = {
            "full_corpus": _full_corpus,
            "anchor_free": _anchor_free,
            "dapo": _dapo,
            "no_kl": _no_kl,
            "binary_reward": lambda: {"reward": "binary"},
            "text_reward": lambda: {"reward": "text"},
            "settled_prompts": lambda: {"settled_weight": 0.5},
        }
        config.update(changes[ablation]())
    return config


def _full_corpus() -> dict[str, Any]:
    """No mining: `config.prompts` is the SFT corpus, and every action in it is a prompt.

    `config.eval_prompts` should name the mined prompts, so that runs are compared on the same ones.
    """
    return {"corpus": "full"}


def _anchor_free() -> dict[str, Any]:
    """Rejected groups are kept for the KL term alone."""
    return {"objective": {"salvage_weight": 0.0}}


def _dapo() -> dict[str, Any]:
    """Std gate alone, no salvage, DAPO's own Clip-Higher range; mined corpus, reward and KL stay."""
    return {
        "competence_gate": False,
        "max_salvage_groups": 0,
        "objective": {"salvage_weight": 0.0, "clip_high": 0.28},
    }


def _no_kl() -> dict[str, Any]:
    """The divergence is still measured."""
    return {"objective": {"kl_coef": 0.0}}


def _paper_8b() -> ConfigDict:
    """The 8B SFT policy on one host of 8 accelerators or more."""
    config = ConfigDict()
    # Data set folder with RL prompts (made by experiments.mine); with corpus "full", an SFT corpus.
    config.prompts = ""
    config.corpus = "mined"
    # Mined prompts whose held-out share is evaluated on; "": that of `prompts`.
    config.eval_prompts = ""
    # The merged SFT policy (the export folder of experiments.train_sft).
    config.model = "runs/sft-8b/export"
    config.dtype = "bfloat16"
    config.param_dtype = "bfloat16"
    config.remat = "full"
    # On the attention projections: q, k and v fused, and o.
    config.lora = ConfigDict({"rank": 64, "alpha": 128.0, "dropout": 0.0, "vision": False})

    # Longer prompts are dropped and counted, never cut.
    config.max_prompt_tokens = 12_000
    config.max_response_tokens = 2_048
    config.max_pixels = 262_144
    config.held_out = 0.1
    config.seed = 42

    # The paper gives no number of iterations: about ten passes over 4,500 prompts with refill.
    config.iterations = 200
    config.train_groups = 64
    config.mini_batch_groups = 16
    config.gen_batch_groups = 64
    config.max_gen_batches = 16
    config.max_salvage_groups = 64
    # When the generation batches run out: "train" on what was accepted, or "error".
    config.on_exhausted = "train"
    # Iterations that accepted groups beyond `train_groups` are kept for; the paper discards them (0).
    config.max_staleness = 0
    # How much seldomer a prompt comes with each group in a row that fails the std gate; 1: not at all.
    config.settled_weight = 1.0
    # "polarized", "binary" (exact or nothing) or "text" (string similarity).
    config.reward = "polarized"
    config.num_samples = 8
    config.temperature = 1.0
    # "local": on the mesh that trains; "endpoint": at an inference server.
    config.rollout_engine = "local"
    config.endpoint = ConfigDict(
        {
            # vllm (also `experiments.serve`) or sglang, and what it calls the model of `config.model`.
            "base_url": "",
            "dialect": "vllm",
            "model": "",
            # Adapters are handed over in a folder that the server sees under the same path.
            "adapter_folder": "",
            "concurrency": 64,
            "timeout_s": 600.0,
            "retries": 4,
            "api_key_env": "",
            # False for servers that take no seeds of requests (vLLM on TPU).
            "seeded": True,
            # The run stops when the sampler's probabilities are further from the trainer's, on average.
            "max_gap": 0.05,
        }
    )
    # Prompts that are decoded at once; the others wait for a slot.
    config.rollout_slots = 16
    # Adapters in the weights cost a step nothing; beside them they are not rounded to the weights' precision.
    config.merge_adapters = True
    # Of the sampler's caches: "model" (as it computes), "int8" or "float8_e4m3fn".
    config.cache_dtype = "model"

    config.min_std = 0.10
    config.competent_reward = 0.55
    config.competence_gate = True
    config.objective = ConfigDict(
        {"clip_low": 0.2, "clip_high": 0.32, "dual_clip": 3.0, "kl_coef": 1e-3, "salvage_weight": 0.10}
    )

    config.learning_rate = 8e-6
    config.weight_decay = 0.01
    config.clip_norm = 1.0
    config.micro_batch_tokens = 20_480
    config.bucket_multiple = 512
    config.bucket_count = 3

    config.eval_every = 10
    config.checkpoint_every = 1
    # Groups of each fate that every iteration leaves to read in groups.jsonl.
    config.logged_groups = 2
    config.mesh = ConfigDict({"data": 1, "fsdp": -1, "tensor": 1})
    config.checkpoints_kept = 2
    return config


def _paper_32b() -> ConfigDict:
    config = _paper_8b()
    config.model = "runs/sft-32b/export"
    return config


def _demo() -> ConfigDict:
    """The tiny policy on two CPU cores, in about five minutes."""
    config = _paper_8b()
    config.model = ""
    config.dtype = "float32"
    config.param_dtype = "float32"
    # Log-probabilities are computed by the program that takes gradients: what it saves is written each time.
    config.remat = "dots"
    config.lora = ConfigDict({"rank": 16, "alpha": 32.0, "dropout": 0.0, "vision": False})
    config.max_prompt_tokens = 1_024
    config.max_response_tokens = 112
    config.max_pixels = 16_384
    config.iterations = 16
    config.train_groups = 16
    config.mini_batch_groups = 4
    config.gen_batch_groups = 16
    config.max_gen_batches = 3
    config.max_salvage_groups = 8
    config.rollout_slots = 16
    # A model a thousand times smaller wants larger steps.
    config.learning_rate = 3e-4
    config.micro_batch_tokens = 512
    config.bucket_multiple = 64
    config.bucket_count = 2
    config.eval_every = 4
    return config


def _smoke() -> ConfigDict:
    """The demo's way in under a minute."""
    config = _demo()
    config.iterations = 2
    config.train_groups = 4
    config.mini_batch_groups = 2
    config.gen_batch_groups = 4
    config.max_gen_batches = 2
    config.max_salvage_groups = 2
    config.num_samples = 4
    config.rollout_slots = 4
    config.bucket_count = 1
    config.eval_every = 2
    return config
