import json
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmsweb_jax.errors import UserError
from rmsweb_jax.rl.dynamic_sampling import PromptCycle, dynamic_sampling, mini_batches

PAPER = {
    "train_groups": 64,
    "mini_batch_groups": 16,
    "max_gen_batches": 16,
    "max_salvage_groups": 64,
    "on_exhausted": "train",
}


class Script:
    """Batches of scripted verdicts; a group is (number, accepted). Keeps what was asked of it."""

    def __init__(self, batches: list[list[bool]]):
        self.numbered, number = [], 0
        for batch in batches:
            self.numbered.append([(number + place, verdict) for place, verdict in enumerate(batch)])
            number += len(batch)
        self.begun, self.log = 0, []

    def begin(self) -> "Begun":
        self.begun += 1
        self.log.append(f"begin {self.begun}")
        return Begun(self, self.begun)

    def give_back(self, batch: "Begun") -> None:
        self.begun -= 1
        self.log.append(f"give back {batch.number}")


class Begun(NamedTuple):
    script: Script
    number: int

    def wait(self) -> None:
        self.script.log.append(f"wait {self.number}")

    def groups(self) -> list[tuple[int, bool]]:
        self.script.log.append(f"score {self.number}")
        return self.script.numbered[self.number - 1]


def run(batches: list[list[bool]], carried_over=(), **changes):
    return dynamic_sampling(
        Script(batches), lambda group: group[1], carried_over=carried_over, **PAPER | changes
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
    assert len(result.accepted) == 48 and result.carried_over == ()
    result = run([[True] * 2 + [False] * 62] * 16)
    assert len(result.accepted) == 32 and result.carried_over == ()
    result = run([[True] + [False] * 63] * 15 + [[False] * 64])
    assert len(result.accepted) == 0 and len(result.salvaged) == 64 and len(result.carried_over) == 15
    with pytest.raises(UserError, match="16 generation batches gave 16 accepted"):
        run([[True] + [False] * 63] * 16, on_exhausted="error")


def test_surplus_is_counted_and_left_out():
    result = run([[True] * 60 + [False] * 4, [True] * 64])
    assert len(result.accepted) == 64 and len(result.carried_over) == 60
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


def test_leftover_groups_come_first():
    kept = [(-2, True), (-1, True)]
    result = run([[True] * 64], carried_over=kept, train_groups=32)
    assert [number for number, _ in result.accepted] == [-2, -1, *range(30)]
    assert [number for number, _ in result.carried_over] == list(range(30, 64))
    enough = run([], carried_over=[(number, True) for number in range(70)])
    assert enough.batches == 0 and len(enough.accepted) == 64 and len(enough.carried_over) == 6


def test_the_next_batch_begins_before_the_last_is_scored():
    script = Script([[True, False] * 32] * 3)
    result = dynamic_sampling(
        script, lambda group: group[1], **PAPER | {"train_groups": 96, "mini_batch_groups": 32}
    )
    assert len(result.accepted) == 96 and result.batches == 3
    assert script.log == [
        *("begin 1", "wait 1", "begin 2", "score 1"),
        *("wait 2", "begin 3", "score 2"),
        *("wait 3", "score 3"),
    ]


def test_a_batch_begun_in_vain_is_given_back():
    script = Script([[True] * 64] * 2)
    result = dynamic_sampling(script, lambda group: group[1], **PAPER)
    assert result.batches == 1 and script.begun == 1
    assert script.log == ["begin 1", "wait 1", "begin 2", "score 1", "give back 2"]


def test_no_batch_begins_beyond_the_last():
    script = Script([[False] * 64] * 2)
    assert dynamic_sampling(script, lambda group: group[1], **PAPER | {"max_gen_batches": 2}).exhausted
    assert [line for line in script.log if line.startswith("begin")] == ["begin 1", "begin 2"]


def test_cycle_sees_each_prompt_once_an_epoch_and_resumes():
    cycle = PromptCycle(7, seed=3)
    draws = cycle.next(21)
    for epoch in range(3):
        part = draws[7 * epoch : 7 * epoch + 7]
        assert sorted(generate.number for generate in part) == list(range(7))
        assert {generate.epoch for generate in part} == {epoch}
    assert [d.number for d in draws[:7]] != [d.number for d in draws[7:14]]
    first = PromptCycle(7, seed=3)
    begun = first.next(9)
    assert begun + PromptCycle(7, seed=3, state=first.state).next(12) == draws
    assert PromptCycle(7, seed=4).next(21) != draws


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.sets(st.integers(0, 6)))
def test_what_is_given_back_comes_again(counts, no_contrast):
    cycle, other = (PromptCycle(7, seed=3, skip_solved_weight=0.5) for _ in range(2))
    for number in no_contrast:
        cycle.observe(number, True)
        other.observe(number, True)
    for count in counts:
        cycle.give_back(cycle.next(count))
        assert cycle.next(count) == other.next(count)


def test_skip_solved_come_less_often_until_they_move():
    def share(streak: int) -> float:
        cycle = PromptCycle(10, seed=0, skip_solved_weight=0.5)
        for _ in range(streak):
            cycle.observe(4, True)
        draws = cycle.next(4000)
        return sum(generate.number == 4 for generate in draws) / draws[-1].epoch

    # Deterministic draws from a hash, near their probabilities.
    assert share(0) == pytest.approx(1, abs=0.01)
    assert share(1) == pytest.approx(0.5, abs=0.08)
    assert share(2) == pytest.approx(0.25, abs=0.08)
    assert share(40) == pytest.approx(0.1, abs=0.05)
    cycle = PromptCycle(10, seed=0, skip_solved_weight=0.5)
    cycle.observe(4, True)
    assert json.loads(json.dumps(cycle.state)) == {"position": 0, "no_contrast": {"4": 1}}
    cycle.observe(4, False)
    assert cycle.state["no_contrast"] == {}
