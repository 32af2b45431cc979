"""The miner finds divergences that were planted, keeps no others, and judges each pair by itself."""

from __future__ import annotations

import functools

import pytest

from collection.mining.balance import BalanceConfig
from collection.mining.divergence import GATES, Divergence, MiningConfig, find_divergence, find_divergences
from collection.mining.failure_modes import rule_label
from collection.mining.pipeline import mine_runs
from collection.mining.runs import RunPair, by_task, run_pairs
from rmsweb_jax.records.schema import Trajectory
from tests.mining.measured import Measured, measure, pair_of
from tests.mining.planted import CATEGORIES, Planted, planted_pair, unplanted_pair
from tests.mining.planted.pool import pool_json
from tests.mining.planted.unplanted import KINDS

# Rules and weights were tuned on seeds below 20. tests/proofs/mining.py measures 100 seeds of each category.
FIRST = 1000
SEEDS = range(FIRST, FIRST + 5)
UNPLANTED = range(FIRST, FIRST + 2 * len(KINDS))
# Keeps every case: balancing depends on the other tasks on purpose.
NO_CAPS = BalanceConfig(1.0, 1.0, 0.0, 0.0)


@functools.cache
def planted(category: str) -> tuple[Planted, ...]:
    return tuple(planted_pair(category, seed) for seed in SEEDS)


@functools.cache
def measured(category: str) -> tuple[Measured, ...]:
    return tuple(map(measure, planted(category)))


def misses(found: tuple[Measured, ...]) -> list[str]:
    return [
        f"{one.planted.success.task.task_id}: {one.case.decision} at {one.chosen}, "
        f"planted {one.planted.success_step}"
        for one in found
        if not one.found
    ]


@pytest.mark.parametrize("category", CATEGORIES)
def test_planted_steps_of_each_category_are_found(category):
    found = measured(category)
    assert sum(one.found for one in found) >= 0.8 * len(SEEDS), misses(found)


def test_nearly_all_planted_steps_are_found():
    found = tuple(one for category in CATEGORIES for one in measured(category))
    assert len(found) == len(CATEGORIES) * len(SEEDS)
    assert sum(one.found for one in found) >= 0.95 * len(found), misses(found)


def test_pairs_without_a_decision_are_gated():
    pairs = [unplanted_pair(seed) for seed in UNPLANTED]
    assert {pair.note for pair in pairs} == set(KINDS)
    decisions = {pair.success.task.task_id: measure(pair).case.decision for pair in pairs}
    assert len(decisions) == len(UNPLANTED) and set(decisions.values()) <= set(GATES), decisions


def alone(pair: RunPair) -> Divergence:
    return find_divergence(pair, MiningConfig())


def together(pairs: list[RunPair]) -> list[Divergence]:
    labels = [rule_label(pair.success, pair.localization) for pair in pairs]
    return find_divergences(pairs, labels, MiningConfig())


def test_a_case_does_not_depend_on_the_other_pairs_of_its_task():
    texts = pool_json(tasks=len(CATEGORIES), runs=4, steps=8, elements=60, seed=FIRST)
    runs = by_task(map(Trajectory.model_validate_json, texts))
    assert len(runs) == len(CATEGORIES)
    for task_runs in runs.values():
        pairs = run_pairs(task_runs)
        assert len(pairs) > 3
        expected = [alone(pair) for pair in pairs]
        assert together(pairs) == expected
        assert together(pairs[::-1]) == expected[::-1]


@pytest.mark.parametrize("category", CATEGORIES)
def test_a_case_does_not_depend_on_a_run_at_another_site(category):
    lost = unplanted_pair(next(seed for seed in UNPLANTED if KINDS[seed % len(KINDS)] == "apart"))
    strayed = pair_of(lost.success, lost.localization)
    for one in measured(category):
        pair = one.case.pair
        # Pages of another site must not change which elements distinguish the pages of these runs.
        assert together([pair, RunPair("primary", pair.success, strayed.localization)])[0] == one.case


def test_a_task_does_not_depend_on_other_tasks():
    runs = [[one.success, one.localization] for one in (planted(name)[0] for name in CATEGORIES)]
    together = mine_runs([run for task in runs for run in task], MiningConfig(), NO_CAPS)
    apart = [mine_runs(task, MiningConfig(), NO_CAPS) for task in reversed(runs)]
    assert len(together.audits) == len(CATEGORIES) and len(together.prompts) > 1
    for part in ("audits", "prompts"):
        ours = {record.task_id: record for record in getattr(together, part)}
        assert ours == {record.task_id: record for mined in apart for record in getattr(mined, part)}
