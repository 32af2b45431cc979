import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmsweb_jax.errors import UserError
from rmsweb_jax.rl.refill import PromptCycle, mini_batches, refill

PAPER = {
    "train_groups": 64,
    "mini_batch_groups": 16,
    "max_gen_batches": 16,
    "max_salvage_groups": 64,
    "on_exhausted": "train",
}


def run(batches: list[list[bool]], **changes):
    """Refill over scripted verdicts; a group is (number, accepted)."""
    numbers = iter(range(10**6))
    stream = iter(batches)
    return refill(
        lambda: [(next(numbers), verdict) for verdict in next(stream)],
        lambda group: group[1],
        **PAPER | changes,
    )


def test_stops_as_soon_as_enough_are_accepted():
    result = run([[True, False] * 32] * 16)
    assert result.batches == 2 and len(result.accepted) == 64 and not result.exhausted
    assert [number for number, _ in result.salvaged] == list(range(1, 128, 2))
    assert len(result.generated) == 128


def test_a_dry_spell_is_waited_out():
    result = run([[False] * 64] * 9 + [[True] * 64])
    assert result.batches == 10 and len(result.accepted) == 64 and not result.exhausted
    # Arrival order: the first rejected stay, the later ones are dropped.
    assert [number for number, _ in result.salvaged] == list(range(64))


def test_exhaustion_trains_on_whole_mini_batches():
    result = run([[True] * 3 + [False] * 61] * 16)
    assert result.exhausted and result.batches == 16
    assert len(result.accepted) == 48 and result.surplus == 0
    result = run([[True] * 2 + [False] * 62] * 16)
    assert len(result.accepted) == 32 and result.surplus == 0
    result = run([[True] + [False] * 63] * 15 + [[False] * 64])
    assert len(result.accepted) == 0 and len(result.salvaged) == 64 and result.surplus == 15
    with pytest.raises(UserError, match="16 generation batches gave 16 accepted"):
        run([[True] + [False] * 63] * 16, on_exhausted="error")


def test_surplus_is_counted_and_left_out():
    result = run([[True] * 60 + [False] * 4, [True] * 64])
    assert len(result.accepted) == 64 and result.surplus == 60
    assert [number for number, _ in result.accepted][-4:] == [64, 65, 66, 67]
    assert result.salvaged == ()


@settings(deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=8, max_size=8), st.integers(1, 3))
def test_shares_use_every_kept_group_once(batches, mini):
    sizes = {
        "train_groups": 4 * mini,
        "mini_batch_groups": mini,
        "max_gen_batches": 8,
        "max_salvage_groups": 8,
    }
    result = run(batches, **sizes)
    rejected = sum(not accepted for _, accepted in result.generated)
    assert len(result.salvaged) == mini * (min(rejected, 8) // mini)
    steps = mini_batches(result, train_groups=4 * mini, mini_batch_groups=mini)
    assert [group for step in steps for group in step.accepted] == list(result.accepted)
    assert [group for step in steps for group in step.salvaged] == list(result.salvaged)
    if result.accepted:
        assert {len(step.accepted) for step in steps} == {mini}
    shares = {len(step.salvaged) for step in steps}
    assert not shares or max(shares) - min(shares) <= 1


def test_a_full_iteration_is_four_joint_steps():
    steps = mini_batches(run([[True, False] * 32] * 16), train_groups=64, mini_batch_groups=16)
    assert [(len(step.accepted), len(step.salvaged)) for step in steps] == [(16, 16)] * 4


def test_only_salvage_still_makes_steps_and_nothing_makes_none():
    steps = mini_batches(run([[False] * 64] * 16), train_groups=64, mini_batch_groups=16)
    assert [(len(step.accepted), len(step.salvaged)) for step in steps] == [(0, 16)] * 4
    assert mini_batches(run([[False] * 5], max_gen_batches=1), train_groups=64, mini_batch_groups=16) == []


def test_cycle_sees_each_prompt_once_an_epoch_and_resumes():
    cycle = PromptCycle(7, seed=3)
    draws = cycle.next(21)
    for epoch in range(3):
        part = draws[7 * epoch : 7 * epoch + 7]
        assert sorted(draw.number for draw in part) == list(range(7))
        assert {draw.epoch for draw in part} == {epoch}
    assert [d.number for d in draws[:7]] != [d.number for d in draws[7:14]]
    first = PromptCycle(7, seed=3)
    begun = first.next(9)
    assert begun + PromptCycle(7, seed=3, drawn=first.drawn).next(12) == draws
    assert PromptCycle(7, seed=4).next(21) != draws
