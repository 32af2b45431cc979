"""Settings of the ablations."""

from __future__ import annotations

import dataclasses

from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import safe

FULL = "full"
# Variant -> its change to the recipe (RMSWeb, section 3; the last three are ours).
VARIANTS = {
    FULL: "the whole recipe",
    "full_corpus": "no failure-mode mining: every action of the SFT corpus is a prompt",
    "anchor_free": "rejected groups get no salvage anchor, only the KL term",
    "dapo": "std gate alone; rejected groups leave anchor and KL term; upper clip at 0.28",
    "no_kl": "no KL term",
    "binary_reward": "reward 1 for the exact action, else 0",
    "text_reward": "reward is the similarity of the texts",
    "async": "generation goes on while the policy is updated, at most one iteration ahead",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AblationSettings:
    """Settings of `experiments.studies.ablations.run`. The safe ones leave finished results as they are.

    Attributes:
      run: the demo's workdir: its SFT policy, SFT corpus and mined prompts.
      size: variant of configs/rl.py and configs/evaluate.py.
      variants: `full` is the whole recipe, the others are ablations of configs/rl.py.
      seeds: of the trainings.
      iterations: of each training.
      eval_seeds, runs: seeds of each page type that a policy is evaluated on, and attempts at each task.
      jobs: trainings at once, each on its share of the cores.
      workers: browsers of each evaluation.
      output: folder of the results of finished runs; "": WORKDIR/results.
      seed: of the bootstrap.
    """

    run: str = safe("runs/demo")
    size: str = "demo"
    variants: tuple[str, ...] = safe(tuple(VARIANTS))
    seeds: tuple[int, ...] = safe((42, 43, 44))
    iterations: int = 12
    eval_seeds: int = 10
    runs: int = 1
    jobs: int = safe(2)
    workers: int = safe(2)
    output: str = safe("docs/results/ablations")
    seed: int = safe(0)

    def __post_init__(self) -> None:
        for variant in self.variants:
            if variant not in VARIANTS:
                raise UserError(f"config.variants has {variant!r}: use some of {', '.join(VARIANTS)}")
        for name in ("variants", "seeds"):
            given = getattr(self, name)
            if not given or len(set(given)) < len(given):
                raise UserError(f"config.{name} is {given!r}: give at least one, and none twice")
        for name in ("jobs", "workers", "iterations", "eval_seeds", "runs"):
            if getattr(self, name) < 1:
                raise UserError(f"config.{name} is {getattr(self, name)}: make it 1 or more")
