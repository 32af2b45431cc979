"""The settings of Salvage-DS RL, typed; `configs/rl.py` holds their values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rmsweb_jax.actions.reward import REWARDS
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.lora import LoRAConfig
from rmsweb_jax.qwen3_vl.stored import CACHE_DTYPES
from rmsweb_jax.rl.endpoint import EndpointConfig
from rmsweb_jax.rl.losses import Objective

CORPORA = ("mined", "full")
ON_EXHAUSTED = ("train", "error")
ROLLOUT_ENGINES = ("local", "endpoint")
_LEAST = {
    "num_samples": 2,
    "iterations": 1,
    "train_groups": 1,
    "mini_batch_groups": 1,
    "gen_batch_groups": 1,
    "max_gen_batches": 1,
    "rollout_slots": 1,
    "bucket_count": 1,
    "max_staleness": 0,
    "logged_groups": 0,
    "eval_every": 1,
    "checkpoint_every": 1,
}


@dataclasses.dataclass(frozen=True)
class RlConfig:
    """Everything that decides a run.

    Attributes:
      prompts: data set folder, of what `corpus` says.
      eval_prompts: folder of mined prompts whose held-out share is evaluated on; "": that of `prompts`.
      corpus: "mined" (RL prompts), or "full" (the actions among SFT samples: no failure-mode mining).
      model: folder of the SFT policy in Hugging Face layout, adapters merged.
      dtype, param_dtype: of the computation and of the base weights.
      remat: "none", or "full" to recompute layers in the backward pass.
      lora: fresh adapters on the attention projections.
      max_prompt_tokens: longer prompts are dropped and counted.
      max_response_tokens: a longer response is cut and has no end token.
      max_pixels: of a resized screenshot.
      held_out: share of the tasks (by hash) whose prompts are only evaluated on.
      iterations: rounds of sampling and updating.
      train_groups, mini_batch_groups: accepted groups an iteration and an optimizer step.
      gen_batch_groups, max_gen_batches: groups sampled at once, and how often at most in an iteration.
      max_salvage_groups: rejected groups that are kept for the anchor and the KL term.
      on_exhausted: "train" on the groups there are, or "error".
      max_staleness: iterations that accepted groups beyond `train_groups` are kept for; 0 discards them.
      settled_weight: see `PromptCycle`.
      reward: which of `rmsweb_jax.actions.reward.REWARDS` is trained on; evaluation reads the polarized one.
      num_samples, temperature: responses to a prompt.
      rollout_engine: "local" (the mesh that trains), or "endpoint" (an inference server).
      endpoint: of it.
      rollout_slots: prompts that are decoded at once; others wait until one of them is finished.
      merge_adapters: sample with adapters merged into the weights, or applied beside them as in training.
      cache_dtype: of the sampler's caches, see `qwen3_vl.stored.CACHE_DTYPES`.
      min_std, competent_reward, competence_gate: see `gated_advantages`.
      objective: clip ranges and the weights of the terms.
      micro_batch_tokens: tokens a device in one forward and backward pass.
      bucket_multiple, bucket_count: prompts, and rows of the update, are padded to so many lengths each.
      eval_every: iterations between evaluations.
      checkpoint_every: iterations between checkpoints.
      logged_groups: groups of each fate that an iteration writes to `groups.jsonl`.
      mesh: sizes of the axes `data`, `fsdp`, `tensor`; one may be -1.
    """

    prompts: str
    corpus: str
    eval_prompts: str
    model: str
    dtype: str
    param_dtype: str
    remat: str
    lora: LoRAConfig
    max_prompt_tokens: int
    max_response_tokens: int
    max_pixels: int
    held_out: float
    seed: int
    iterations: int
    train_groups: int
    mini_batch_groups: int
    gen_batch_groups: int
    max_gen_batches: int
    max_salvage_groups: int
    on_exhausted: str
    max_staleness: int
    settled_weight: float
    reward: str
    num_samples: int
    temperature: float
    rollout_engine: str
    endpoint: EndpointConfig | None
    rollout_slots: int
    merge_adapters: bool
    cache_dtype: str
    min_std: float
    competent_reward: float
    competence_gate: bool
    objective: Objective
    learning_rate: float
    weight_decay: float
    clip_norm: float
    micro_batch_tokens: int
    bucket_multiple: int
    bucket_count: int
    eval_every: int
    checkpoint_every: int
    logged_groups: int
    mesh: dict[str, int]
    checkpoints_kept: int

    def __post_init__(self) -> None:
        if not self.prompts:
            raise UserError("config.prompts is empty: give the folder that experiments.mine wrote")
        if not self.model:
            raise UserError("config.model is empty: give the export folder that experiments.train_sft wrote")
        choices = {
            "corpus": CORPORA,
            "on_exhausted": ON_EXHAUSTED,
            "reward": tuple(REWARDS),
            "rollout_engine": ROLLOUT_ENGINES,
            "cache_dtype": CACHE_DTYPES,
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise UserError(f"config.{name} is {getattr(self, name)!r}: use one of {', '.join(known)}")
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise UserError(f"config.{name} is {getattr(self, name)}: make it {least} or more")
        if self.train_groups % self.mini_batch_groups:
            raise UserError(
                f"config.train_groups is {self.train_groups}: make it a multiple of "
                f"config.mini_batch_groups ({self.mini_batch_groups})"
            )
        if not 0 < self.settled_weight <= 1:
            raise UserError(
                f"config.settled_weight is {self.settled_weight}: make it more than 0 and at most 1 (off)"
            )
        if not 0 <= self.held_out < 1:
            raise UserError(f"config.held_out is {self.held_out}: make it at least 0 and less than 1")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RlConfig:
        """From the plain values of a config file."""
        remote = values["rollout_engine"] == "endpoint"
        parts = {
            "lora": LoRAConfig(**values["lora"], targets="attention"),
            "objective": Objective(**values["objective"]),
            "endpoint": EndpointConfig(**values["endpoint"]) if remote else None,
        }
        return cls(**{**values, **parts})
