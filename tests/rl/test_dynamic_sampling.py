import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.rl.rollout import SampledGroups, dynamic_sampling, mini_batches, prompt_order

# The paper's 64 groups in steps of 16, from at most 16 batches.
PAPER = RlConfig(prompts="prompts", model="model")


@dataclasses.dataclass
class Verdict:
    """A group."""

    number: int
    accepted: bool
    released: bool = False

    @property
    def turns(self) -> "tuple[Verdict, ...]":
        return (self,)

    def release(self) -> None:
        self.released = True


class Script:
    """Scripted verdicts. Keeps what was asked of it."""

    def __init__(self, batches: list[list[bool]]):
        self.verdicts = [verdict for batch in batches for verdict in batch]
        self.position = self.limit = self.version = 0
        self.share = 0.5
        self.log: list[tuple[int, int]] = []

    def take(self, count: int, oldest: int = 0) -> list[Verdict]:
        self.log.append((count, self.limit))
        start, self.position = self.position, self.position + count
        return [Verdict(*one) for one in list(enumerate(self.verdicts))[start : self.position]]


def run(batches: list[list[bool]], script: Script | None = None, **changes):
    changes = {"gen_batch_groups": len(batches[0])} | changes
    return dynamic_sampling(script or Script(batches), PAPER.model_copy(update=changes))


def test_stops_as_soon_as_enough_are_accepted():
    result = run([[True, False] * 32] * 16)
    assert result.batches == 2 and len(result.accepted) == 64 and not result.exhausted
    assert [group.number for group in result.salvaged] == list(range(1, 128, 2))
    assert len(result.generated) == 128


def test_a_dry_spell_is_waited_out():
    result = run([[False] * 64] * 9 + [[True] * 64])
    assert result.batches == 10 and len(result.accepted) == 64 and not result.exhausted
    # Arrival order: the first rejected stay, the later ones are dropped, and their examples are freed.
    assert [group.number for group in result.salvaged] == list(range(64))
    assert [group.number for group in result.generated if group.released] == list(range(64, 9 * 64))


def test_exhaustion_trains_on_whole_mini_batches():
    result = run([[True] * 3 + [False] * 61] * 16)
    assert result.exhausted and result.batches == 16
    assert len(result.accepted) == 48
    result = run([[True] * 2 + [False] * 62] * 16)
    assert len(result.accepted) == 32
    result = run([[True] + [False] * 63] * 15 + [[False] * 64])
    assert len(result.accepted) == 0 and len(result.salvaged) == 64


class Repeated(Script):
    """Of two tasks one is asked for twice, and makes one group."""

    def take(self, count: int, oldest: int = 0) -> list[Verdict]:
        return super().take(count, oldest)[::2]


def test_batches_are_counted_by_what_was_asked_for():
    batches = [[False] * 64] * 16
    result = run(batches, Repeated(batches), max_gen_batches=2)
    assert result.batches == 2 and len(result.generated) == 64 and result.exhausted


def test_surplus_is_left_out():
    result = run([[True] * 60 + [False] * 4, [True] * 64])
    assert len(result.accepted) == 64
    assert [group.number for group in result.accepted][-4:] == [64, 65, 66, 67]
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
    rejected = sum(not group.accepted for group in result.generated)
    assert len(result.salvaged) == mini * (min(rejected, 8) // mini)
    steps = mini_batches(result, PAPER.model_copy(update=sizes))
    assert [group for step in steps for group in step.accepted] == list(result.accepted)
    assert [group for step in steps for group in step.salvaged] == list(result.salvaged)
    if result.accepted:
        assert {len(step.accepted) for step in steps} == {mini}
    shares = {len(step.salvaged) for step in steps}
    assert not shares or max(shares) - min(shares) <= 1


def test_a_full_iteration_is_four_joint_steps():
    steps = mini_batches(run([[True, False] * 32] * 16), PAPER)
    assert [(len(step.accepted), len(step.salvaged)) for step in steps] == [(16, 16)] * 4


def sampled(accepted: int, salvaged: int) -> SampledGroups:
    groups = [
        tuple(Verdict(number, kind) for number in range(count))
        for kind, count in ((True, accepted), (False, salvaged))
    ]
    return SampledGroups(*groups, (), 16, False)


@pytest.mark.parametrize("salvaged", [0, 16, 32, 48, 64])
@pytest.mark.parametrize("accepted", [64, 48, 0])
def test_groups_fall_into_steps_as_counted_by_hand(accepted, salvaged):
    """The number of the step of each group, by arithmetic of its own."""
    steps = accepted // 16 or min(4, salvaged)
    spread = {
        kind: [group // -(-count // steps) if count % steps == 0 else None for group in range(count)]
        for kind, count in (("accepted", accepted), ("salvaged", salvaged))
        if steps
    }
    # Mixed: how many groups come before, of both kinds; of two at one place the accepted one.
    mixed: dict[str, list[int | None]] = {"accepted": [], "salvaged": []}
    for group in range(accepted):
        others = sum((2 * one + 1) * accepted < (2 * group + 1) * salvaged for one in range(salvaged))
        mixed["accepted"].append((group + others) // 16)
    for group in range(salvaged):
        others = sum((2 * one + 1) * salvaged <= (2 * group + 1) * accepted for one in range(accepted))
        mixed["salvaged"].append((group + others) // 16)
    for kind, expected in (("accepted", spread), ("all", mixed)):
        found = mini_batches(sampled(accepted, salvaged), PAPER.model_copy(update={"mini_batch_of": kind}))
        assert len(found) == (steps if kind == "accepted" else (accepted + salvaged) // 16)
        for name, numbers in expected.items():
            where = [(group.number, step) for step, one in enumerate(found) for group in getattr(one, name)]
            assert [group for group, _ in where] == list(range(len(numbers)))
            assert all(number in (step, None) for (_, step), number in zip(where, numbers, strict=True))
        if kind == "all":
            assert {len(one.accepted) + len(one.salvaged) for one in found} <= {16}
            # Each step has both, as far as there are both: the anchor is never alone with its weight.
            assert not (accepted and salvaged) or all(one.accepted and one.salvaged for one in found)


def test_only_salvage_still_makes_steps_and_nothing_makes_none():
    steps = mini_batches(run([[False] * 64] * 16), PAPER)
    assert [(len(step.accepted), len(step.salvaged)) for step in steps] == [(0, 16)] * 4
    assert mini_batches(run([[False] * 5], max_gen_batches=1), PAPER) == []


def test_prompts_of_the_next_batch_begin_where_it_is_likely_to_be_needed():
    script = Script([[True, False] * 32] * 3)
    result = run([[True] * 64], script, train_groups=96, mini_batch_groups=32)
    assert len(result.accepted) == 96 and result.batches == 3
    # At first half of all groups are expected to pass; 64 of 96 leave 32, which the third batch gives.
    assert script.log == [(64, 128), (64, 192), (64, 192)]
    script = Script([[True] * 64] * 2)
    assert run([[True] * 64], script).batches == 1 and script.position == 64


def test_nothing_begins_beyond_the_last_batch():
    script = Script([[False] * 64] * 2)
    assert run([[False] * 64], script, max_gen_batches=2).exhausted
    assert script.log == [(64, 128), (64, 128)]


def test_with_staleness_groups_are_taken_one_by_one():
    script = Script([[True, False] * 32] * 4)
    result = run([[True] * 64], script, train_groups=32, max_staleness=1)
    assert len(result.accepted) == 32 and len(result.generated) == 63 and script.position == 63
    # Prompts for two iterations are under way: half of all groups were expected to pass, and do.
    assert {limit for _, limit in script.log} == {2 * 64}
    assert script.share == (0.5 + 32 / 63) / 2
    # A first group that is rejected does not make an iteration begin all batches.
    script = Script([[False, *[True] * 7] * 8] * 4)
    script.share = 7 / 8
    run([[True] * 64], script, train_groups=32, max_staleness=1)
    assert max(limit for _, limit in script.log) <= 2 * 40


def test_few_groups_become_too_old():
    """Of iterations that accept three in four, as they come; each takes up to what is begun."""
    rng = np.random.default_rng(0)
    script = Script([rng.random(64) < 0.75] * 40)
    begun = dropped = 0
    for version in range(30):
        script.version = version
        run([[True] * 16], script, train_groups=16, mini_batch_groups=4, max_staleness=1)
        # What the iteration before has begun and this one has not taken.
        left = max(0, begun - script.position)
        dropped += left
        script.position += left
        begun = max(begun, script.limit)
    assert dropped < 0.12 * script.position


def test_each_epoch_has_its_own_order_of_all_prompts():
    orders = [prompt_order(7, seed, epoch).tolist() for seed in (3, 4) for epoch in range(3)]
    assert all(sorted(order) == list(range(7)) for order in orders)
    assert len({tuple(order) for order in orders}) == 6
    prompt_order.cache_clear()
    assert prompt_order(7, 3, 2).tolist() == orders[2]
