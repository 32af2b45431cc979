"""Settings of Salvage-DS RL, with the paper's values for the 8B policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import Settings, internal, part_name, required, safe
from rmsweb_jax.training.config import ComputeConfig, LoRAConfig

if TYPE_CHECKING:
    from rmsweb_jax.decoding.requests import Sampling


class Objective(Settings):
    """The loss and its coefficients, with the paper's values.

    Attributes:
      loss: "salvage_ds", or a function of your own, `module:name`, see docs/own.md.
      clip_low, clip_high: bounds of the importance ratio, see `policy_loss`.
      kl_coef: beta, weight of the KL term; with 0 the divergence is still measured.
      salvage_weight: lambda, weight of the salvage anchor on rejected groups.
      replay_weight: weight of the cross-entropy of replayed replies, as in SFT, see `RlConfig.replay`.
      replay_kl: weight of the KL divergence of the SFT policy from the trained one on the same tokens.
    """

    loss: Annotated[str, part_name("salvage_ds")] = "salvage_ds"
    clip_low: float = Field(default=0.2, ge=0, lt=1)
    clip_high: float = Field(default=0.32, ge=0)
    kl_coef: float = Field(default=1e-3, ge=0)
    salvage_weight: float = Field(default=0.10, ge=0)
    # The paper has no replay.
    replay_weight: float = Field(default=0.0, ge=0)
    replay_kl: float = Field(default=0.0, ge=0)


class AttentionLoRA(LoRAConfig):
    """Adapters of RL, which the sampler and the servers take.

    Attributes:
      targets: "attention": what attention, and the recurrence of Qwen3.5, projects in (q, k and v with one A)
        and out; "attention_only" leaves out the recurrence.
    """

    targets: Literal["attention", "attention_only"] = "attention"  # pyright: ignore


class EndpointConfig(Settings):
    """An inference server, vLLM or our own, that generates the responses.

    Attributes:
      base_url: URL of the server, for example `http://10.0.0.7:8000`; a `/v1` at its end is ignored.
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
    model: str = ""
    adapter_folder: str = ""
    concurrency: int = safe(64, ge=1)
    timeout_s: float = safe(600.0, gt=0)
    retries: int = internal(4)
    api_key_env: str = ""
    seeded: bool = True
    max_gap: float = Field(default=0.05, gt=0)

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


class RlConfig(ComputeConfig):
    """Settings of a run. The safe fields change only how a step is laid out, logged and saved.

    Attributes:
      prompts: data set folder with RL prompts, or with an SFT corpus if `corpus` is "full".
      eval_prompts: folder of mined prompts whose held-out share is evaluated on; "": that of `prompts`.
      corpus: "mined" (RL prompts), or "full" (the actions among SFT samples: no failure-mode mining).
      replay: folder of an SFT corpus, whose actions hold the policy to what it knew; "": none.
      replay_samples: actions of `replay` in each mini-batch; its epochs repeat them.
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
      reward: the training reward: "polarized", "binary", "text", or a function of your own,
        `module:name`; evaluation uses "polarized".
      num_samples, temperature: number of responses to a prompt, and their sampling temperature.
      rollout_engine: "local" (the training mesh), or "endpoint" (an inference server).
      endpoint: the inference server, if `rollout_engine` is "endpoint".
      rollout_lanes: sequences that are decoded at once; 0 takes as many as the devices' memory holds.
      cache_dtype: dtype of the sampler's caches, one of `decoding.quantized.CACHE_DTYPES`.
      seed: seed of the run.
      learning_rate, weight_decay, clip_norm: of AdamW, constant; largest global norm of the gradient.
      checkpoints_kept: number of newest checkpoints to keep.
      gate: "salvage_ds", "contrast" (DAPO: without the competence gate), or a function of your own,
        `module:name`, see docs/own.md.
      objective: the loss, clip ranges and weights of the terms.
      row_tokens: groups are packed into rows of one width, one row a shard of the mesh; it is chosen from the
        prompts, at most `row_tokens` and a multiple of `row_multiple`.
      eval_every: iterations between evaluations.
      checkpoint_every: iterations between checkpoints.
      logged_groups: groups of each fate that an iteration writes to `groups.jsonl`.
    """

    prompts: str = required("the folder that experiments.mine wrote")
    corpus: Literal["mined", "full"] = "mined"
    eval_prompts: str = ""
    replay: str = ""
    replay_samples: int = Field(default=4, ge=1)
    model: str = required("the export folder that experiments.train_sft wrote")
    # RMSWeb, appendix "Salvage-DS RL configuration": `linear_qkv` and `linear_proj`, without dropout.
    lora: AttentionLoRA = AttentionLoRA()
    max_prompt_tokens: int = Field(default=12_000, ge=1)
    max_response_tokens: int = Field(default=2_048, ge=1)
    max_pixels: int = Field(default=262_144, ge=1)
    held_out: float = Field(default=0.1, ge=0, lt=1)
    seed: int = Field(default=42, ge=0)
    # The paper gives no number of iterations: about ten passes over 4,500 prompts with dynamic sampling.
    iterations: int = Field(default=200, ge=1)
    # The appendix' train batch and mini-batch, generation batches and their limit, and cap on salvage groups.
    train_groups: int = Field(default=64, ge=1)
    mini_batch_groups: int = Field(default=16, ge=1)
    mini_batch_of: Literal["accepted", "all"] = "accepted"
    gen_batch_groups: int = Field(default=64, ge=1)
    max_gen_batches: int = Field(default=16, ge=1)
    max_salvage_groups: int = Field(default=64, ge=0)
    # The paper draws and updates in turns.
    max_staleness: int = Field(default=0, ge=0)
    epochs: int = Field(default=1, ge=1)
    reward: Annotated[str, part_name("polarized", "binary", "text")] = "polarized"
    # Two at least, because the std gate divides by one less than their number.
    num_samples: int = Field(default=8, ge=2)
    # Greedy samples are all alike, and no group of them has a contrast. Servers take 5 at most.
    temperature: float = Field(default=1.0, gt=0, le=5)
    rollout_engine: Literal["local", "endpoint"] = "local"
    endpoint: EndpointConfig = EndpointConfig()
    rollout_lanes: int = safe(0, ge=0)
    cache_dtype: Literal["model", "int8", "float8_e4m3fn"] = "model"
    gate: Annotated[str, part_name("salvage_ds", "contrast")] = "salvage_ds"
    objective: Objective = Objective()
    learning_rate: float = Field(default=8e-6, ge=0, lt=1)
    weight_decay: float = Field(default=0.01, ge=0, le=1)
    clip_norm: float = Field(default=1.0, gt=0)
    # The paper's cap of a dynamic batch on a GPU: a prompt of 12,288 tokens and four responses of 2,048.
    row_tokens: int = safe(20_480, ge=1)
    eval_every: int = Field(default=10, ge=1)
    checkpoint_every: int = safe(1, ge=1)
    logged_groups: int = safe(2, ge=0)
    checkpoints_kept: int = safe(2, ge=1)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.train_groups % self.mini_batch_groups:
            raise UserError(
                f"config.train_groups is {self.train_groups}: make it a multiple of "
                f"config.mini_batch_groups ({self.mini_batch_groups})"
            )
        if bool(self.replay) != bool(self.objective.replay_weight or self.objective.replay_kl):
            raise UserError(
                f"config.replay is {self.replay!r}, config.objective.replay_weight "
                f"{self.objective.replay_weight:g} and replay_kl {self.objective.replay_kl:g}: give both a "
                "corpus and a weight, or neither"
            )
        if self.rollout_engine == "endpoint":
            self.endpoint.check()
        return self

    @property
    def sampling(self) -> Sampling:
        """How the responses to a prompt are drawn."""
        from rmsweb_jax.decoding.requests import Sampling

        return Sampling(self.num_samples, self.max_response_tokens, self.temperature)

    @property
    def groups_at_once(self) -> int:
        """Number of groups that dynamic sampling takes at a time."""
        return 1 if self.max_staleness else self.gen_batch_groups


class OnlineConfig(RlConfig):
    """Settings of online RL: the policy plays episodes, and learns from how they end.

    A group has `num_samples` episodes of one task; `prompts` serve the salvage anchor and the evaluation.
    With the rollout engine "local" the run starts a server of its own on this machine. With a `max_staleness`
    of 1 a policy begins the next batch of tasks when it is loaded, and plays it while it is updated.

    Attributes:
      credit: "episode" divides an episode's weight among its turns; with "turn" each turn weighs the same, so
        that long episodes weigh more. With "fork" `num_samples` replies are drawn where the episodes of a
        group first act differently, and each is finished greedily: they are trained on instead.
      negative_weight: factor of negative advantages. With 0 only turns with an advantage are trained on, of
        episodes that went better than their group, and of rejected groups the anchor alone.
      anchor_solved: a group that is solved trains the anchor on its shortest success, so that it is kept.
      step_bonus: added to the advantage of a turn that takes a mined decision's verified action on its page.
      mask_faults: False takes faults of browser, site, machine or judge for failures (an ablation).
      max_masked: largest share of episodes without a reward; a run with more stops.
    """

    credit: Literal["episode", "turn", "fork"] = "episode"
    negative_weight: float = Field(default=1.0, ge=0)
    anchor_solved: bool = False
    step_bonus: float = Field(default=0.0, ge=0)
    mask_faults: bool = True
    max_masked: float = Field(default=0.5, ge=0, le=1)

    @model_validator(mode="after")
    def _check_online(self) -> Self:
        if self.max_staleness > 1:
            raise UserError(
                f"config.max_staleness is {self.max_staleness}: online runs play one batch ahead at most, "
                "make it 0 or 1"
            )
        if self.anchor_solved and not self.objective.salvage_weight:
            raise UserError(
                "config.anchor_solved is True and config.objective.salvage_weight 0: give the anchor a weight"
            )
        if self.corpus != "mined":
            raise UserError(f"config.corpus is {self.corpus!r}: make it 'mined' in an online run")
        return self

    @property
    def groups_at_once(self) -> int:
        return self.gen_batch_groups  # The browsers play a whole batch.
