"""Settings of Salvage-DS RL, with the paper's values for the 8B policy."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from rmsweb_jax.actions.reward import REWARDS
from rmsweb_jax.decoding.quantized import CACHE_DTYPES
from rmsweb_jax.decoding.requests import Sampling
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.lora import LoRAConfig
from rmsweb_jax.rl.losses import Objective
from rmsweb_jax.settings import Range, check_ranges, required, safe
from rmsweb_jax.training.config import TRAINING_RANGES, ComputeConfig

_RANGES = {
    **TRAINING_RANGES,
    # The std gate divides by one less than their number.
    "num_samples": Range(ge=2),
    # Greedy samples are all alike, and no group of them has a contrast. Servers take 5 at most.
    "temperature": Range(gt=0, le=5),
    # The largest deviation of two rewards in [0, 1] is 0.71.
    "min_std": Range(ge=0, le=0.7),
    "competent_reward": Range(gt=0, le=1),
    # A ratio is never below 0.
    "objective.clip_low": Range(ge=0, lt=1),
    "objective.clip_high": Range(ge=0),
    # 1 would bound the loss of tokens whose probability has not changed.
    "objective.dual_clip": Range(gt=1),
    "objective.kl_coef": Range(ge=0),
    "objective.salvage_weight": Range(ge=0),
    # Below 1 it would be a factor of tokens of the policy itself.
    "objective.importance_cap": Range(ge=1),
    "held_out": Range(ge=0, lt=1),
    "iterations": Range(ge=1),
    "train_groups": Range(ge=1),
    "mini_batch_groups": Range(ge=1),
    "gen_batch_groups": Range(ge=1),
    "max_gen_batches": Range(ge=1),
    "max_salvage_groups": Range(ge=0),
    "max_prompt_tokens": Range(ge=1),
    "max_response_tokens": Range(ge=1),
    "max_staleness": Range(ge=0),
    "rollout_lanes": Range(ge=0),
    "logged_groups": Range(ge=0),
    "eval_every": Range(ge=1),
    "endpoint.concurrency": Range(ge=1),
    "endpoint.retries": Range(ge=0),
    "endpoint.timeout_s": Range(gt=0),
    "endpoint.max_gap": Range(gt=0),
}
_ONLINE_RANGES = {
    "least_episodes": Range(ge=2),
    "negative_weight": Range(ge=0),
    "step_bonus": Range(ge=0),
    "max_masked": Range(ge=0, le=1),
}


@dataclasses.dataclass(frozen=True)
class EndpointConfig:
    """An inference server that generates the responses.

    Attributes:
      base_url: URL of the server, for example `http://10.0.0.7:8000`; a `/v1` at its end is ignored.
      protocol: that of the server: "vllm" (also our own server) or "sglang".
      model: the server's name for the model with which training began.
      adapter_folder: adapters are written below it, and what an earlier run has left there is removed; the
        server must see it under the same path.
      concurrency: largest number of prompts under way at once.
      timeout_s: seconds that the server may be silent; it must generate a whole response within them.
      retries: retries of a request after a temporary failure.
      api_key_env: environment variable that holds the API key; empty sends none.
      seeded: True sends seeds. Servers without a seed for each request (vLLM on TPU) refuse them; without
        seeds a run cannot be repeated.
      max_gap: largest mean difference between the sampler's and the trainer's probabilities of a token.
    """

    base_url: str = safe("")
    protocol: Literal["vllm", "sglang"] = "vllm"
    model: str = ""
    adapter_folder: str = ""
    concurrency: int = safe(64)
    timeout_s: float = safe(600.0)
    retries: int = safe(4)
    api_key_env: str = ""
    seeded: bool = True
    max_gap: float = 0.05

    def check(self) -> None:
        """Checks the texts; not done on creation, because most runs have no endpoint.

        Raises:
          UserError: a text is missing or cannot be used.
        """
        if not self.base_url.startswith(("http://", "https://")):
            raise UserError(
                f"config.endpoint.base_url is {self.base_url!r}: give the server's address, such as "
                "http://127.0.0.1:8000"
            )
        if not self.model:
            raise UserError("config.endpoint.model is empty: give the name under which the server lists it")
        if not self.adapter_folder:
            raise UserError(
                "config.endpoint.adapter_folder is empty: give a folder that the server sees under the same "
                "path"
            )

    @property
    def root(self) -> str:
        """The URL without `/v1`."""
        return self.base_url.rstrip("/").removesuffix("/v1").rstrip("/")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RlConfig(ComputeConfig):
    """Settings of a run. The safe fields change only how a step is laid out, logged and saved.

    Attributes:
      prompts: data set folder with RL prompts, or with an SFT corpus if `corpus` is "full".
      eval_prompts: folder of mined prompts whose held-out share is evaluated on; "": that of `prompts`.
      corpus: "mined" (RL prompts), or "full" (the actions among SFT samples: no failure-mode mining).
      model: folder of the SFT policy in Hugging Face layout, adapters merged.
      lora: fresh adapters on the attention projections.
      max_prompt_tokens: longer prompts are dropped and counted.
      max_response_tokens: a longer response is cut and has no end token.
      max_pixels: limit for resized screenshots.
      held_out: share of the tasks (by hash) whose prompts are only evaluated on.
      iterations: rounds of sampling and updating.
      train_groups: accepted groups of an iteration.
      mini_batch_groups, mini_batch_of: groups of an optimizer step. "accepted" counts the accepted ones, and
        spreads the salvaged ones over their steps; "all" counts both, so that salvaged ones make more steps.
      epochs: passes over the groups of an iteration; the ratio is that to the policy before the first.
      gen_batch_groups, max_gen_batches: groups of a generation batch, and largest number of batches in an
        iteration.
      max_salvage_groups: largest number of rejected groups that are kept for the anchor and the KL term.
      max_staleness: iterations by which the policy that drew a token may be older than the one that is
        trained. 0 draws and updates in turns. With 1 or more, an endpoint draws while the policy is updated,
        and the training mesh keeps what it has begun; the objective weighs tokens for it, see
        `importance_weights`.
      reward: the training reward, a key of `rmsweb_jax.actions.reward.REWARDS`; evaluation uses "polarized".
      num_samples, temperature: number of responses to a prompt, and their sampling temperature.
      rollout_engine: "local" (the training mesh), or "endpoint" (an inference server).
      endpoint: the inference server, if `rollout_engine` is "endpoint".
      rollout_lanes: sequences that are decoded at once; 0 takes as many as the devices' memory holds.
      cache_dtype: dtype of the sampler's caches, one of `decoding.quantized.CACHE_DTYPES`.
      min_std, competent_reward, competence_gate: see `gated_advantages`.
      objective: clip ranges and weights of the terms.
      row_tokens: groups are packed into rows of one width, one row a shard of the mesh; it is chosen from the
        prompts, at most `row_tokens` and a multiple of `row_multiple`.
      eval_every: iterations between evaluations.
      checkpoint_every: iterations between checkpoints.
      logged_groups: groups of each fate that an iteration writes to `groups.jsonl`.
    """

    prompts: str = required("the folder that experiments.mine wrote")
    corpus: Literal["mined", "full"] = "mined"
    eval_prompts: str = ""
    model: str = required("the export folder that experiments.train_sft wrote")
    # RMSWeb, appendix "Salvage-DS RL configuration": `linear_qkv` and `linear_proj`, without dropout.
    lora: LoRAConfig = LoRAConfig(rank=64, alpha=128.0, targets="attention")
    max_prompt_tokens: int = 12_000
    max_response_tokens: int = 2_048
    max_pixels: int = 262_144
    held_out: float = 0.1
    seed: int = 42
    # The paper gives no number of iterations: about ten passes over 4,500 prompts with dynamic sampling.
    iterations: int = 200
    # The appendix' train batch and mini-batch, generation batches and their limit, and cap on salvage groups.
    train_groups: int = 64
    mini_batch_groups: int = 16
    mini_batch_of: Literal["accepted", "all"] = "accepted"
    gen_batch_groups: int = 64
    max_gen_batches: int = 16
    max_salvage_groups: int = 64
    # The paper draws and updates in turns.
    max_staleness: int = 0
    epochs: int = 1
    reward: str = "polarized"
    num_samples: int = 8
    temperature: float = 1.0
    rollout_engine: Literal["local", "endpoint"] = "local"
    endpoint: EndpointConfig = EndpointConfig()
    rollout_lanes: int = safe(0)
    cache_dtype: str = "model"
    # epsilon_sigma and r_comp of the appendix. 0.55 is between core-correct (0.7) and the right type (0.3).
    min_std: float = 0.10
    competent_reward: float = 0.55
    competence_gate: bool = True
    objective: Objective = Objective()
    learning_rate: float = 8e-6
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    # The paper's cap of a dynamic batch on a GPU: a prompt of 12,288 tokens and four responses of 2,048.
    row_tokens: int = safe(20_480)
    eval_every: int = 10
    checkpoint_every: int = safe(1)
    logged_groups: int = safe(2)
    checkpoints_kept: int = safe(2)

    def __post_init__(self) -> None:
        choices = {"reward": tuple(REWARDS), "cache_dtype": CACHE_DTYPES}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise UserError(f"config.{name} is {getattr(self, name)!r}: use one of {', '.join(known)}")
        check_ranges(self, _RANGES)
        if self.train_groups % self.mini_batch_groups:
            raise UserError(
                f"config.train_groups is {self.train_groups}: make it a multiple of "
                f"config.mini_batch_groups ({self.mini_batch_groups})"
            )
        if self.rollout_engine == "endpoint":
            self.endpoint.check()

    @property
    def sampling(self) -> Sampling:
        """How the responses to a prompt are drawn."""
        return Sampling(self.num_samples, self.max_response_tokens, self.temperature)

    @property
    def groups_at_once(self) -> int:
        """Number of groups that dynamic sampling takes at a time."""
        return 1 if self.max_staleness else self.gen_batch_groups

    @property
    def gates(self) -> dict[str, Any]:
        """Settings of `gated_advantages`."""
        return {
            "min_std": self.min_std,
            "competent_reward": self.competent_reward,
            "competence_gate": self.competence_gate,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnlineConfig(RlConfig):
    """Settings of online RL: the policy plays episodes, and learns from how they end.

    A group has `num_samples` episodes of one task; `prompts` serve the salvage anchor and the evaluation.
    With the rollout engine "local" the run starts a server of its own on this machine. With a `max_staleness`
    of 1 the next batch of tasks is played while the policy is updated.

    Attributes:
      least_episodes: groups in which fewer episodes have a reward are dropped.
      credit: "episode" divides an episode's weight among its turns; with "turn" each turn weighs the same, so
        that long episodes weigh more.
      negative_weight: factor of negative advantages. With 0 only turns with an advantage are trained on, of
        episodes that went better than their group, and of rejected groups the anchor alone.
      step_bonus: added to the advantage of a turn that takes a mined decision's verified action on its page.
      mask_faults: False takes faults of browser, site, machine or judge for failures (an ablation).
      max_masked: largest share of episodes without a reward; a run with more stops.
    """

    least_episodes: int = 2
    credit: Literal["episode", "turn"] = "episode"
    negative_weight: float = 1.0
    step_bonus: float = 0.0
    mask_faults: bool = True
    max_masked: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, _ONLINE_RANGES)
        if self.max_staleness > 1:
            raise UserError(
                f"config.max_staleness is {self.max_staleness}: online runs play one batch ahead at most, "
                "make it 0 or 1"
            )
        if self.corpus != "mined":
            raise UserError(f"config.corpus is {self.corpus!r}: make it 'mined' in an online run")

    @property
    def groups_at_once(self) -> int:
        return self.gen_batch_groups  # The browsers play a whole batch.
