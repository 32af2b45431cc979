"""Plans of rows: complete, within their room, independent of names, and near the best possible balance."""

import logging
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsweb_jax.data.packing import Packer, RowShape, TreeSize, choose_packer, even_parts, useful_work
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.config import SIZES
from rmsweb_jax.qwen.flops import Work
from tests.tiny import TINY

WIDTH = 128
SIZE = st.builds(
    TreeSize,
    st.integers(1, 80),
    st.lists(st.integers(1, 48), min_size=1, max_size=9).map(tuple),
    st.lists(st.sampled_from([4, 8]), max_size=2).map(tuple),
)
STEPS = st.lists(SIZE, min_size=1, max_size=12)


def packer(rows: int, width: int = WIDTH, images: int = 2, config=TINY) -> Packer:
    return Packer(RowShape(width, rows, images, window=8), config)


@given(STEPS, st.integers(1, 5))
def test_rows_hold_every_branch_once_and_no_more_than_fits(sizes, rows):
    plan = packer(rows).pack(sizes)
    placed = [
        (part.tree, branch) for micro in plan for row in micro for part in row for branch in part.branches
    ]
    wanted = [(tree, branch) for tree, size in enumerate(sizes) for branch in range(len(size.branches))]
    assert sorted(placed) == wanted
    for micro in plan:
        assert 0 < len(micro) <= rows
        for row in micro:
            held = [sizes[part.tree].part(part.branches) for part in row]
            assert sum(size.tokens for size in held) <= WIDTH
            assert sum(len(size.patches) for size in held) <= 2
            assert row and all(part.branches for part in row)


@given(STEPS, st.integers(1, 5))
def test_executed_work_covers_the_useful_work_and_all_padding(sizes, rows):
    chosen = packer(rows)
    plan = chosen.pack(sizes)
    useful = useful_work(sizes)
    executed = sum((chosen.executed(micro, sizes) for micro in plan), start=Work(0, 0, 0))
    assert executed.tokens == len(plan) * rows * WIDTH
    assert executed.pairs >= useful.pairs and executed.scored >= useful.scored
    assert executed.patches >= useful.patches and executed.patch_pairs >= useful.patch_pairs
    assert 0 < chosen.fill([plan], [sizes]) <= 1


def test_the_work_of_a_tree_counts_what_each_token_sees():
    size = TreeSize(3, (2, 4), (4, 8))
    seen = [1, 2, 3, 4, 5, 4, 5, 6, 7]
    assert size.work == Work(9, sum(seen), 6, 12, 16 + 64)


@given(st.lists(st.integers(1, 99), max_size=40), st.integers(1, 9))
def test_even_parts_hold_everything_once(sizes, count):
    parts = even_parts(sizes, count)
    assert len(parts) == count
    assert sorted(number for part in parts for number in part) == list(range(len(sizes)))


def test_parts_are_more_even_than_those_of_the_longest_first():
    # The classic case: the longest first leaves 17 against 13, differencing 16 against 14.
    parts = even_parts([8, 7, 6, 5, 4], 2)
    assert sorted(sum([8, 7, 6, 5, 4][number] for number in part) for part in parts) == [15, 15]
    rng = np.random.default_rng(0)
    sizes = rng.integers(1_000, 12_000, 32).tolist()
    sums = [sum(sizes[number] for number in part) for part in even_parts(sizes, 8)]
    assert max(sums) < 1.02 * sum(sizes) / 8


def test_a_group_is_cut_rather_than_leaving_a_micro_batch_to_the_rest():
    # 40 + 8 x 20 tokens do not fit 128; one micro-batch of two rows holds the group with its prompt twice.
    plan = packer(2).pack([TreeSize(40, (20,) * 8)])
    assert [[part.tree for part in row] for row in plan[0]] == [[0], [0]] and len(plan) == 1


def test_small_groups_share_a_row():
    plan = packer(1).pack([TreeSize(10, (4,) * 4)] * 4)
    assert [len(row) for row in plan[0]] == [4]


def test_a_row_that_has_its_images_takes_no_more():
    plan = packer(1).pack([TreeSize(10, (4,), (8, 8))] * 3)
    assert [[len(row) for row in micro] for micro in plan] == [[1], [1], [1]]


def test_costly_rows_share_a_micro_batch():
    sizes = [TreeSize(100, (20,)), TreeSize(8, (100,)), TreeSize(100, (20,)), TreeSize(60, (40,))]
    chosen = packer(2)
    costs = [[chosen.executed((row,), sizes).pairs for row in micro] for micro in chosen.pack(sizes)]
    assert costs[0][0] >= costs[0][1] >= costs[1][0] >= costs[1][1]


def test_what_fits_no_row_is_refused_in_one_line():
    with pytest.raises(UserError, match=r"prompt of 100 tokens with a response of 40 .*row_tokens"):
        packer(1).pack([TreeSize(100, (8, 40))])
    with pytest.raises(UserError, match="3 images"):
        packer(1).pack([TreeSize(10, (4,), (8, 8, 8))])


def random_steps(count: int, groups: int, seed: int) -> list[list[TreeSize]]:
    rng = np.random.default_rng(seed)
    return [
        [
            TreeSize(int(prompt), tuple(rng.integers(150, 400, 8).tolist()))
            for prompt in np.minimum(rng.lognormal(np.log(7_000), 0.4, groups), 12_000)
        ]
        for _ in range(count)
    ]


def chosen_packer(steps, rows: int, **limits) -> Packer:
    defaults = {"least": 14_048, "most": 24_576, "multiple": 512, "images": 0, "window": 0}
    return choose_packer(steps, SIZES["8b"], rows=rows, **defaults | limits)


@pytest.mark.parametrize("rows", [1, 8])
def test_the_chosen_width_fills_rows(rows):
    steps = random_steps(2, 32, seed=rows)
    chosen = chosen_packer(steps, rows)
    assert chosen.shape.width % 512 == 0 and 14_048 <= chosen.shape.width <= 24_576
    assert chosen.fill([chosen.pack(sizes) for sizes in steps], steps) > 0.8
    for width in (14_336, 24_576):
        other = packer(rows, width, config=SIZES["8b"])
        assert chosen.fill([chosen.pack(s) for s in steps], steps) >= other.fill(
            [other.pack(s) for s in steps], steps
        )


def test_a_width_that_memory_does_not_allow_is_refused():
    with pytest.raises(UserError, match=r"up to 14048 .*row_tokens is 12288: raise it to 14336"):
        chosen_packer(random_steps(1, 4, seed=0), 1, most=12_288)


def test_rows_have_room_for_the_images_of_their_trees():
    steps = [[TreeSize(1_000, (200,), (64, 64))] * 8]
    chosen = choose_packer(steps, TINY, rows=1, least=1_200, most=4_096, multiple=128, images=2, window=64)
    assert chosen.shape.images == max(2, math.ceil(1.5 * 2 * chosen.shape.width / 1_200))


def test_a_mesh_whose_rows_stay_empty_is_one_line_and_one_with_little_a_warning(caplog):
    even = [[TreeSize(1_000, (200,))] * 4]
    uneven = [[TreeSize(3_800, (200,)), *[TreeSize(100, (100,))] * 3]]

    def chosen(steps: list[list[TreeSize]], rows: int) -> Packer:
        longest = max(size.tokens for size in steps[0])
        sizes = {"least": longest, "most": 4_096, "multiple": 128}
        return choose_packer(steps, TINY, rows=rows, **sizes, images=0, window=0)

    with pytest.raises(UserError, match="8 shards for rows, but a step has at most 4 samples: split the mo"):
        chosen(even, 8).report()
    with caplog.at_level(logging.WARNING):
        chosen(even, 4).report()
        assert not caplog.records
        chosen(uneven, 4).report()
        assert "of the operations are padding" in caplog.text
