"""Settings of supervised fine-tuning, with the paper's values for Qwen3-VL-8B-Instruct."""

from __future__ import annotations

import dataclasses
from typing import Literal

from rmsweb_jax.data.sources import Workers
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.lora import LoRAConfig
from rmsweb_jax.settings import Range, check_ranges, required, safe
from rmsweb_jax.training.config import TRAINING_RANGES, ComputeConfig

_RANGES = {
    **TRAINING_RANGES,
    "warmup_ratio": Range(ge=0, lt=1),
    "max_length": Range(ge=1),
    "batch_size": Range(ge=1),
    "eval.share": Range(ge=0, lt=1),
    **{f"eval.{name}": Range(ge=1) for name in ("every", "tokens", "replies", "max_reply_tokens", "rows")},
    "profile.first_step": Range(ge=0),
    "profile.num_steps": Range(ge=0),
}
# Metrics that may choose the best checkpoint; True where a higher value is better.
BEST = {
    "eval/loss": False,
    "eval/token_accuracy": True,
    "eval/action_reward": True,
    "eval/action_accuracy": True,
}


@dataclasses.dataclass(frozen=True)
class EvalConfig:
    """Held-out tasks and their evaluation.

    Attributes:
      share: share of the tasks that is held out; 0 trains on all of them and evaluates nothing.
      every: updates between evaluations; the last update is always evaluated.
      tokens: most tokens of held-out samples whose loss is computed, chosen by a hash of their ids. At the
        default an evaluation takes as long as five updates.
      replies: largest number of held-out action samples that are answered greedily and scored by the reward.
      max_reply_tokens: a reply is cut there.
      rows: slots of the sampler.
      best: metric by which the best checkpoint is chosen.
    """

    share: float = 0.02
    every: int = safe(100)
    tokens: int = safe(2_000_000)
    replies: int = safe(64)
    max_reply_tokens: int = safe(1_024)
    rows: int = safe(16)
    best: str = "eval/action_accuracy"

    def __post_init__(self) -> None:
        if self.best not in BEST:
            raise UserError(f"config.eval.best is {self.best!r}: use one of {', '.join(BEST)}")


@dataclasses.dataclass(frozen=True)
class ProfileConfig:
    """Updates that are profiled, for TensorBoard or XProf.

    Attributes:
      first_step: number of the first one, from 0.
      num_steps: how many; 0 disables the profiler.
    """

    first_step: int = 10
    num_steps: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class SftConfig(ComputeConfig):
    """Settings of a run.

    The safe fields do not change which samples a step holds. They change what is learned only by rounding,
    and by dropout masks, which follow the layout.

    Attributes:
      corpus: data set folder with SFT samples, written by experiments.build_sft.
      model: folder in Hugging Face layout, or "tiny_base".
      trainable: "lora" trains adapters on all linear layers of the decoder, "all" every parameter.
      max_length: longer samples are dropped and counted, never cut.
      max_pixels: limit for resized screenshots.
      batch_size: samples of an update; each has the same weight.
      row_tokens: samples are packed into rows of one width, one row a shard of the mesh; it is chosen from
        the corpus, at most `row_tokens` and a multiple of `row_multiple`.
      workers: workers that prefetch batches. Threads spend most of their time outside Python; processes must
        transfer every array.
      warmup_ratio: share of the updates in which the learning rate rises from 0.
      clip_norm: largest global norm of the gradient.
      eval: held-out tasks: loss on their samples, and the reward of greedy replies to some of them.
      checkpoint_every: updates between checkpoints.
      checkpoints_kept: number of newest checkpoints to keep; the best one by `eval.best` is kept as well.
      export: the checkpoint to export.
      wandb_project: Weights & Biases project, or "".
    """

    corpus: str = required("the folder that experiments.build_sft wrote")
    model: str = "Qwen3-VL-8B-Instruct"
    trainable: Literal["lora", "all"] = "lora"
    # RMSWeb, appendix "SFT hyper-parameters", 8B run; so are learning rate, warm-up and decay below.
    lora: LoRAConfig = LoRAConfig(rank=64, alpha=128.0, dropout=0.05)
    max_length: int = 12_000
    max_pixels: int = 262_144
    epochs: int = 3
    seed: int = 42
    # The paper's effective batch: 8 GPUs, one sample each, 4 accumulated.
    batch_size: int = 32
    row_tokens: int = safe(28_672)
    workers: Workers = safe(Workers(threads=4))
    learning_rate: float = 1e-4
    # 0.1 for the 32B model.
    warmup_ratio: float = 0.03
    weight_decay: float = 0.01
    # The paper gives none; LLaMA-Factory's default.
    clip_norm: float = 1.0
    eval: EvalConfig = EvalConfig()
    checkpoint_every: int = safe(50)
    checkpoints_kept: int = safe(2)
    export: Literal["last", "best"] = safe("last")
    profile: ProfileConfig = safe(ProfileConfig())
    wandb_project: str = safe("")

    def __post_init__(self) -> None:
        check_ranges(self, _RANGES)
        if self.quantize != "none" and self.trainable == "all":
            raise UserError(
                f"config.quantize={self.quantize} is for a frozen base: use config.trainable=lora with it"
            )
        if self.export == "best" and not self.eval.share:
            raise UserError("config.export=best needs held-out tasks: raise config.eval.share")
