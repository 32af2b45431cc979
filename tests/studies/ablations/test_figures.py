import numpy as np
import pytest

from experiments.studies.ablations.figures import ALL, build_figures, compared, summarize, summarize_browser
from experiments.studies.ablations.records import SFT, BrowserRun, HeldOut, Settings, TrainingRun
from experiments.studies.ablations.settings import FULL
from rmsweb_jax.errors import UserError

TASKS = [f"miniwob/click-button/{seed}" for seed in range(1_000_000, 1_000_040)]
# Two prompts of each of 40 tasks. The first policy answers the solved ones.
HELD_OUT = HeldOut(
    prompts=tuple(f"p{number}" for number in range(80)),
    tasks=tuple(TASKS[number // 2] for number in range(80)),
    fates=("accepted",) * 40 + ("solved",) * 20 + ("hard",) * 20,
    exact=(False,) * 40 + (True,) * 20 + (False,) * 20,
)


def training(variant: str, seed: int, right: set[int], **changes: object) -> TrainingRun:
    run = TrainingRun(
        variant=variant,
        seed=seed,
        prompts=100,
        optimizer_steps=8,
        seconds=100.0,
        exact="".join("01"[number in right] for number in range(80)),
        steps=(1, 2),
        curves={"kl_ref": (0.0, 0.1), "gates/std_rejected_solved": (0.1, None)},
    )
    return run.model_copy(update=changes)


def played(variant: str, seed: int, solved: set[int]) -> BrowserRun:
    tasks = {task: (number in solved,) for number, task in enumerate(TASKS)}
    return BrowserRun(variant=variant, seed=seed, tasks=tasks, seconds=50.0)


def test_changes_are_by_class_of_the_prompt():
    solved = set(range(40, 60))
    runs = [training(FULL, seed, solved | set(range(20))) for seed in (1, 2)]
    runs += [training("dapo", seed, set(range(20)) | set(range(40, 50))) for seed in (1, 2)]
    full, dapo = summarize(HELD_OUT, runs)
    means = {name: interval["mean"] for name, interval in full["change"].items()}
    assert means == pytest.approx({ALL: 0.25, "accepted": 0.5, "solved": 0.0, "hard": 0.0})
    assert full["minus_full"][ALL] is None
    assert dapo["minus_full"]["solved"]["mean"] == pytest.approx(-0.5)
    assert dapo["minus_full"]["solved"]["high"] < 0
    # Both prompts of a task change together: 20 tasks, of which 10 change, give a standard error of 0.11.
    change = full["change"]["accepted"]
    assert change["detectable"] == pytest.approx(2.8 * 0.112, rel=0.1)


def test_only_seeds_that_both_have_are_compared():
    runs = [training(FULL, 1, {0}), training(FULL, 2, {0, 1}), training("no_kl", 2, {0, 1})]
    runs.append(training("no_kl", 3, set()))
    rows = {row["variant"]: row for row in summarize(HELD_OUT, runs)}
    assert rows["no_kl"]["minus_full"][ALL]["mean"] == 0
    assert rows["no_kl"]["seeds"] == [2, 3]
    (alone,) = summarize(HELD_OUT, [training("no_kl", 3, set())])
    assert alone["minus_full"][ALL] is None


def test_a_training_that_answered_other_prompts_is_refused():
    with pytest.raises(UserError, match="full 1: it answered other prompts"):
        summarize(HELD_OUT, [training(FULL, 1, set(), exact="01")])


def test_the_papers_claims_have_differences_and_no_verdict():
    right = {
        "full": set(range(30)),
        "anchor_free": set(range(10)),
        "dapo": set(range(45)),
        "full_corpus": {1},
    }
    right["full_corpus"] = set(range(1, 31))
    runs = [training(variant, seed, found) for variant, found in right.items() for seed in (1, 2, 3)]
    shared = Settings(config={}, inputs={}, corpus={})
    figures = build_figures(shared, HELD_OUT, runs, [], 0)
    found = {claim: measured for claim, _, measured in compared(figures)}
    assert found["the salvage anchor helps"].startswith("+")
    assert found["competence gate and anchor are better than DAPO"].startswith("−")
    assert found["RL is better than SFT on the same prompts"] == "not run yet"
    assert not any(word in str(found) for word in ("supported", "contradicted", "decided"))


def test_differences_in_the_browser_are_paired_over_seeds_and_tasks():
    # Seeds and tasks differ much, the variants always by the same four tasks.
    solved = [set(range(10)), set(range(15)), set(range(30))]
    runs = [played(FULL, seed, part) for seed, part in enumerate(solved)]
    runs += [played("dapo", seed, part - set(range(4))) for seed, part in enumerate(solved)]
    full, dapo = summarize_browser(runs)
    assert full["pass_at_1"]["mean"] == pytest.approx(55 / 120)
    assert full["pass_minus_full"] is None
    difference = dapo["pass_minus_full"]
    assert difference["mean"] == pytest.approx(-0.1)
    # Of tasks alone: three times the binomial of 4 in 40 gives about -0.2 to 0.
    assert -0.22 < difference["low"] < -0.15
    assert -0.05 < difference["high"] <= 0
    # Whole rates vary far more, since trainings differ.
    assert full["pass_at_1"]["high"] - full["pass_at_1"]["low"] > 2 * (difference["high"] - difference["low"])


def test_the_sft_policy_pairs_with_every_seed():
    runs = [played(SFT, 0, {0, 1}), played(FULL, 1, {0, 1, 2}), played(FULL, 2, {0, 1, 3})]
    (full,) = summarize_browser(runs)
    assert full["pass_minus_sft"]["mean"] == pytest.approx(1 / 40)


def test_the_order_of_runs_does_not_matter():
    runs = [training(variant, seed, {seed, 5}) for variant in (FULL, "dapo") for seed in range(3)]
    shuffled = [runs[place] for place in np.random.default_rng(0).permutation(len(runs))]
    assert summarize(HELD_OUT, runs) == summarize(HELD_OUT, shuffled)
