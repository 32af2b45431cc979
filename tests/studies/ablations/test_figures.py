import numpy as np
import pytest

from experiments.studies.ablations.figures import summarize
from experiments.studies.ablations.records import SFT, AblationRun, HeldOut, Training
from experiments.studies.ablations.settings import FULL

TASKS = [f"miniwob/click-button/{seed}" for seed in range(1_000_000, 1_000_040)]


def training(corpus: str = "mined", reward: float = 0.9) -> Training:
    return Training(
        corpus=corpus,
        prompts=100,
        held_out_prompts=10,
        iterations=2,
        optimizer_steps=8,
        generation_batches=5,
        seconds=100.0,
        before=HeldOut(reward=0.8, exact=0.7),
        after=HeldOut(reward=reward, exact=0.75),
        steps=(1, 2),
        curves={"kl_ref": (0.0, 0.1), "gates/std_rejected_solved": (0.1, None)},
    )


def make(variant: str, seed: int, solved: set[int], **settings) -> AblationRun:
    tasks = {task: (number in solved,) for number, task in enumerate(TASKS)}
    own = None if variant == SFT else training(**settings)
    return AblationRun(variant=variant, seed=seed, training=own, tasks=tasks, seconds=50.0)


def test_differences_are_paired_over_seeds_and_tasks():
    # Seeds and tasks differ much, the variants always by the same four tasks.
    solved = [set(range(10)), set(range(15)), set(range(30))]
    runs = [make(FULL, seed, part) for seed, part in enumerate(solved)]
    runs += [make("dapo", seed, part - set(range(4))) for seed, part in enumerate(solved)]
    full, dapo = summarize(runs)
    assert full["pass_at_1"]["mean"] == pytest.approx(55 / 120)
    assert full["pass_minus_full"] is None
    difference = dapo["pass_minus_full"]
    assert difference is not None
    assert difference["mean"] == pytest.approx(-0.1)
    # Of tasks alone: three times the binomial of 4 in 40 gives about -0.2 to 0.
    assert -0.22 < difference["low"] < -0.15
    assert -0.05 < difference["high"] <= 0
    # Whole rates vary far more, since trainings differ.
    assert full["pass_at_1"]["high"] - full["pass_at_1"]["low"] > 2 * (difference["high"] - difference["low"])


def test_only_seeds_that_both_have_are_compared():
    runs = [make(FULL, 1, {0}), make(FULL, 2, {0, 1}), make("no_kl", 2, {0, 1}), make("no_kl", 3, set())]
    figures = {one["variant"]: one for one in summarize(runs)}
    difference = figures["no_kl"]["pass_minus_full"]
    assert difference is not None
    assert (difference["low"], difference["mean"], difference["high"]) == (0, 0, 0)
    assert figures["no_kl"]["seeds"] == [2, 3]
    (alone,) = summarize([make("no_kl", 3, set())])
    assert alone["pass_minus_full"] is None
    assert alone["pass_minus_sft"] is None


def test_the_sft_policy_pairs_with_every_seed():
    runs = [make(SFT, 0, {0, 1}), make(FULL, 1, {0, 1, 2}), make(FULL, 2, {0, 1, 3})]
    (full,) = summarize(runs)
    assert full["pass_minus_sft"] is not None
    assert full["pass_minus_sft"]["mean"] == pytest.approx(1 / 40)


def test_held_out_rewards_are_compared_by_seed():
    runs = [make(FULL, seed, {0}) for seed in (1, 2)]
    runs += [make("dapo", seed, {0}, reward=0.6 + 0.1 * seed) for seed in (1, 2)]
    figures = {one["variant"]: one for one in summarize(runs)}
    difference = figures["dapo"]["reward_minus_full"]
    assert difference is not None
    # -0.2 and -0.1: a mean with a standard error of 0.05 and one degree of freedom.
    expected = (-0.15 - 0.05 * 12.7062047, -0.15, -0.15 + 0.05 * 12.7062047)
    assert (difference["low"], difference["mean"], difference["high"]) == pytest.approx(expected)
    assert figures["dapo"]["reward_before"] == pytest.approx(0.8)


def test_one_seed_decides_nothing_about_held_out_rewards():
    figures = {
        one["variant"]: one for one in summarize([make(FULL, 1, {0}), make("dapo", 1, {0}, reward=0.1)])
    }
    assert figures["dapo"]["reward_minus_full"] is None


def test_a_training_gives_its_curves_back_as_rows():
    assert training().rows() == [
        {"step": 1, "kl_ref": 0.0, "gates/std_rejected_solved": 0.1},
        {"step": 2, "kl_ref": 0.1, "gates/std_rejected_solved": None},
    ]


def test_the_order_of_runs_does_not_matter():
    runs = [make(variant, seed, {seed, 5}) for variant in (FULL, "dapo") for seed in range(3)]
    shuffled = [runs[place] for place in np.random.default_rng(0).permutation(len(runs))]
    assert summarize(runs) == summarize(shuffled)
