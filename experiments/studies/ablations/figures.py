"""What the trainings say of each variant, with intervals over trainings and tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from collection.evaluation.statistics import Interval, crossed_bootstrap, student_interval
from experiments.studies.ablations.records import SFT, AblationRun
from rmsweb_jax.errors import UserError

FULL = "full"
# Variant -> what it changes (RMSWeb, section 3; the last three are ours).
VARIANTS = {
    FULL: "the whole recipe",
    "full_corpus": "no failure-mode mining: every action of the SFT corpus is a prompt",
    "anchor_free": "rejected groups get no salvage anchor, only the KL term",
    "dapo": "std gate alone, no competence gate, no salvage, upper clip at 0.28",
    "no_kl": "no KL term",
    "binary_reward": "reward 1 for the exact action, else 0",
    "text_reward": "reward is the similarity of the texts",
    "skip_solved": "prompts whose groups fail the std gate come half as often with each time in a row",
}


@dataclasses.dataclass(frozen=True)
class VariantFigures:
    """A variant's trainings together; intervals are None where there is nothing to compare.

    Attributes:
      runs: in order of seeds.
      pass_at_1: over trainings and tasks.
      pass_minus_full, pass_minus_sft: on the same tasks (and, to the recipe, from the same seeds).
      rewards, exacts: of greedy replies to held-out prompts after training, one a run.
      reward, exact: over trainings, with Student's interval; None for fewer than two.
      reward_before: of the SFT policy.
      reward_minus_full: paired by seed, on the same prompts.
    """

    variant: str
    runs: tuple[AblationRun, ...]
    pass_at_1: Interval
    pass_minus_full: Interval | None
    pass_minus_sft: Interval | None
    reward_before: float | None
    rewards: tuple[float, ...]
    exacts: tuple[float, ...]
    reward: Interval | None
    exact: Interval | None
    reward_minus_full: Interval | None


def summarize(runs: Sequence[AblationRun], seed: int = 0) -> list[VariantFigures]:
    """Figures of every variant that has a run, in the order of `VARIANTS`.

    Args:
      runs: of trainings, and of the SFT policy where it was evaluated.
      seed: of the bootstrap.

    Raises:
      UserError: a variant was evaluated on other tasks with each seed.
    """
    by_variant: dict[str, list[AblationRun]] = {}
    for run in runs:
        by_variant.setdefault(run.variant, []).append(run)
    for group in by_variant.values():
        group.sort(key=lambda run: run.seed)
    full, sft = by_variant.get(FULL, []), by_variant.get(SFT, [])
    return [
        _figures(variant, by_variant[variant], full, sft, seed)
        for variant in VARIANTS
        if variant in by_variant
    ]


def pass_rates(run: AblationRun, task_ids: Sequence[str]) -> np.ndarray:
    """[T] share of a task's runs that succeeded."""
    return np.asarray([np.mean(run.tasks[task_id]) for task_id in task_ids])


def _figures(
    variant: str,
    runs: Sequence[AblationRun],
    full: Sequence[AblationRun],
    sft: Sequence[AblationRun],
    seed: int,
) -> VariantFigures:
    tasks = _shared_tasks(runs)
    pass_at_1 = crossed_bootstrap(np.stack([pass_rates(run, tasks) for run in runs]), seed)
    if pass_at_1 is None:
        raise UserError(f"{variant}: its seeds have no task in common; delete its result files")
    trainings = [run.training for run in runs if run.training is not None]
    befores = [training.before.reward for training in trainings if training.before]
    afters = [training.after for training in trainings if training.after]
    rewards, exacts = (tuple(getattr(after, name) for after in afters) for name in ("reward", "exact"))
    pairs = [] if variant == FULL else _same_seeds(runs, full)
    return VariantFigures(
        variant=variant,
        runs=tuple(runs),
        pass_at_1=pass_at_1,
        pass_minus_full=_difference(pairs, seed),
        pass_minus_sft=_difference([(run, sft[0]) for run in runs], seed) if sft else None,
        reward_before=float(np.mean(befores)) if befores else None,
        rewards=rewards,
        exacts=exacts,
        reward=student_interval(rewards),
        exact=student_interval(exacts),
        reward_minus_full=_reward_difference(pairs),
    )


def _same_seeds(
    runs: Sequence[AblationRun], full: Sequence[AblationRun]
) -> list[tuple[AblationRun, AblationRun]]:
    by_seed = {run.seed: run for run in full}
    return [(run, by_seed[run.seed]) for run in runs if run.seed in by_seed]


def _shared_tasks(runs: Sequence[AblationRun]) -> list[str]:
    return [task_id for task_id in runs[0].tasks if all(task_id in run.tasks for run in runs)]


def _difference(pairs: Sequence[tuple[AblationRun, AblationRun]], seed: int) -> Interval | None:
    """pass@1 of the first less that of the second, pair by pair and task by task."""
    if not pairs:
        return None
    tasks = _shared_tasks([run for pair in pairs for run in pair])
    return crossed_bootstrap(
        np.stack([pass_rates(first, tasks) - pass_rates(second, tasks) for first, second in pairs]), seed
    )


def _reward_difference(pairs: Sequence[tuple[AblationRun, AblationRun]]) -> Interval | None:
    differences = [
        first.training.after.reward - second.training.after.reward
        for first, second in pairs
        if first.training and second.training and first.training.after and second.training.after
    ]
    return student_interval(differences)


def decided(
    figures: Sequence[VariantFigures], interval: Callable[[VariantFigures], Interval | None]
) -> list[VariantFigures]:
    """The variants whose interval leaves out zero."""
    return [one for one in figures if (found := interval(one)) and not found.low <= 0 <= found.high]
