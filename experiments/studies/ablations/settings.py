"""Settings of the ablations."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from experiments.studies.ablations.records import SFT_ON_PROMPTS
from rmsweb_jax.errors import UserError
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.settings import Settings, safe

FULL = "full"
# The primary outcome, fixed before the first training.
PRIMARY = "change of the share of exact greedy replies to held-out prompts, by fate under the first policy"
# Variant -> its change to the recipe (RMSWeb, section 3; `sft_same_prompts` and the last four are ours).
VARIANTS = {
    FULL: "the whole recipe",
    "full_corpus": "no failure-mode mining: every action of the SFT corpus is a prompt",
    "anchor_free": "rejected groups get no salvage anchor, only the KL term",
    "dapo": "std gate alone; rejected groups leave anchor and KL term; upper clip at 0.28",
    SFT_ON_PROMPTS: "no RL: supervised training on the same prompts' actions, with as many steps",
    "no_kl": "no KL term",
    "binary_reward": "reward 1 for the exact action, else 0",
    "text_reward": "reward is the similarity of the texts",
    "async": "generation goes on while the policy is updated, at most one iteration ahead",
}
_COUNTS = ("jobs", "workers", "iterations", "sft_epochs", "task_seeds", "per_class", "eval_seeds", "runs")
_MAIN = (FULL, "full_corpus", "anchor_free", "dapo", SFT_ON_PROMPTS)


class AblationSettings(Settings):
    """Settings of `experiments.studies.ablations.run`. The safe ones leave finished results as they are.

    Attributes:
      run: the demo's workdir, with the SFT corpus of the first policy.
      size: variant of the configs of all stages.
      variants: `full` is the whole recipe; see `VARIANTS`.
      seeds: of the trainings.
      iterations: of each RL training.
      sft_epochs: of the first policy, an early one, so that a third of the prompts is hard for it.
      task_seeds: fresh seeds of each page type that the teacher collects on, from 1000 on.
      held_out: share of the tasks whose prompts no training sees.
      per_class: largest number of prompts to train on of each class of fates.
      sft_learning_rate: of `sft_same_prompts`.
      browser_seeds: the policies of so many first seeds are played in the browser.
      eval_seeds, runs: seeds of each page type that a policy is evaluated on, and attempts at each task.
      jobs: trainings at once, each on its share of the cores.
      workers: browsers of each evaluation.
      output: folder of the results of finished runs; "": WORKDIR/results.
      seed: of the draw and of the bootstrap.
    """

    run: str = safe("runs/demo")
    size: str = "demo"
    variants: tuple[str, ...] = safe(_MAIN)
    seeds: tuple[int, ...] = safe(tuple(range(42, 52)))
    iterations: int = 30
    sft_epochs: int = 2
    task_seeds: int = 80
    held_out: float = 0.4
    per_class: int = 100
    sft_learning_rate: float = 3e-4
    browser_seeds: int = safe(3)
    eval_seeds: int = 20
    runs: int = 1
    jobs: int = safe(2)
    workers: int = safe(2)
    output: str = safe("docs/results/ablations")
    seed: int = 0

    @model_validator(mode="after")
    def _check_lists(self) -> Self:
        for variant in self.variants:
            if variant not in VARIANTS:
                raise UserError(f"config.variants has {variant!r}: use some of {', '.join(VARIANTS)}")
        for name in ("variants", "seeds"):
            given = getattr(self, name)
            if not given or len(set(given)) < len(given):
                raise UserError(f"config.{name} is {given!r}: give at least one, and none twice")
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise UserError(f"config.{name} is {getattr(self, name)}: make it 1 or more")
        return self


class PromptSettings(RlConfig):
    """Settings of the draw; those of RL decide the fates.

    Attributes:
      eval_prompts: an SFT corpus, whose actions of held-out tasks become the held-out prompts.
      per_class: largest number of prompts of each of `prompts.CLASSES`; the smallest class decides for all.
      fill: actions of the corpus' other tasks, by hash, with which classes are filled up that have too few
        mined prompts.
    """

    per_class: int = 100
    fill: int = 500
