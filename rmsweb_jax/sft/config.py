"""Settings of supervised fine-tuning, with the paper's values for Qwen3-VL-8B-Instruct."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import Settings, internal, required, safe
from rmsweb_jax.training.config import ComputeConfig, LoRAConfig

Best = Literal["eval/loss", "eval/token_accuracy", "eval/action_reward", "eval/action_accuracy"]


class EvalConfig(Settings):
    """Held-out tasks and their evaluation.

    Attributes:
      share: share of the tasks that is held out; 0 trains on all of them and evaluates nothing.
      every: updates between evaluations; the last update is always evaluated.
      tokens: most tokens of held-out samples whose loss is computed, chosen by a hash of their ids. At the
        default an evaluation takes as long as five updates.
      replies: largest number of held-out action samples that are answered greedily and scored by the reward.
      max_reply_tokens: a reply is cut there.
      best: metric by which the best checkpoint is chosen.
    """

    share: float = Field(default=0.02, ge=0, lt=1)
    every: int = safe(100, ge=1)
    tokens: int = safe(2_000_000, ge=1)
    replies: int = safe(64, ge=1)
    max_reply_tokens: int = internal(1_024)
    best: Best = "eval/action_accuracy"


class SftConfig(ComputeConfig):
    """Settings of a run.

    The safe fields do not change which samples a step holds. They change what is learned only by rounding,
    and by dropout masks, which follow the layout.

    Attributes:
      corpus: data set folder with SFT samples, written by experiments.build_sft; or a file of conversations
        in the messages format, `.jsonl`, `.json` or `.parquet`.
      model: folder in Hugging Face layout, or "tiny_base".
      trainable: "lora" trains adapters on all linear layers of the decoder, "all" every parameter.
      max_length: longer samples are dropped and counted, never cut.
      max_pixels: limit for resized screenshots.
      epochs: passes over the corpus.
      seed: seed of the run.
      learning_rate, weight_decay: of AdamW.
      batch_size: samples of an update; each has the same weight.
      row_tokens: samples are packed into rows of one width, one row a shard of the mesh; it is chosen from
        the corpus, at most `row_tokens` and a multiple of `row_multiple`.
      workers: threads that make batches ahead.
      warmup_ratio: share of the updates in which the learning rate rises from 0.
      clip_norm: largest global norm of the gradient.
      eval: held-out tasks: loss on their samples, and the reward of greedy replies to some of them.
      checkpoint_every: updates between checkpoints.
      checkpoints_kept: number of newest checkpoints to keep; the best one by `eval.best` is kept as well.
      export: the checkpoint to export.
      profile_steps: updates that are profiled, from the eleventh on, for TensorBoard or XProf; 0: none.
    """

    corpus: str = required("the folder that experiments.build_sft wrote, or a file of conversations")
    model: str = "Qwen3-VL-8B-Instruct"
    trainable: Literal["lora", "all"] = "lora"
    # RMSWeb, appendix "SFT hyper-parameters", 8B run; so are learning rate, warm-up and decay below.
    lora: LoRAConfig = LoRAConfig(dropout=0.05)
    max_length: int = Field(default=12_000, ge=1)
    max_pixels: int = Field(default=262_144, ge=1)
    epochs: int = Field(default=3, ge=1)
    seed: int = Field(default=42, ge=0)
    # The paper's effective batch: 8 GPUs, one sample each, 4 accumulated.
    batch_size: int = Field(default=32, ge=1)
    row_tokens: int = safe(28_672, ge=1)
    workers: int = safe(4, ge=1)
    learning_rate: float = Field(default=1e-4, ge=0, lt=1)
    # 0.1 for the 32B model.
    warmup_ratio: float = Field(default=0.03, ge=0, lt=1)
    weight_decay: float = Field(default=0.01, ge=0, le=1)
    # The paper gives none; LLaMA-Factory's default.
    clip_norm: float = Field(default=1.0, gt=0)
    eval: EvalConfig = EvalConfig()
    checkpoint_every: int = safe(50, ge=1)
    checkpoints_kept: int = safe(2, ge=1)
    export: Literal["last", "best"] = safe("last")
    profile_steps: int = safe(0, ge=0)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.quantize != "none" and self.trainable == "all":
            raise UserError(
                f"config.quantize={self.quantize} is for a frozen base: use config.trainable=lora with it"
            )
        if self.export == "best" and not self.eval.share:
            raise UserError("config.export=best needs held-out tasks: raise config.eval.share")
        return self
