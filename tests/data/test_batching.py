"""Layout of trees in rows: what each token sees, its rotary position, its image, and what predicts it."""

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rmsweb_jax.data.batching import Batch, Branch, Example, Tree, lay_out, lay_out_prompts, spans
from rmsweb_jax.data.packing import Packer, Part, RowShape
from rmsweb_jax.qwen.inputs import mrope_positions
from rmsweb_jax.qwen.tree_attention.rule import visible_pairs
from tests.tiny import TINY

PATCHES = 8
GRID = (1, 4, 2)
SHAPE = RowShape(width=64, rows=3, images=3, window=PATCHES)


def example(number: int, prompt: int, images: int = 0) -> Example:
    """A prompt whose tokens, and patches, name it."""
    tokens = np.arange(prompt, dtype=np.int32) % 9 + 10 * (number % 5)
    for image in range(images):
        tokens[1 + 2 * image : 3 + 2 * image] = TINY.image_token_id
    shape = (PATCHES, TINY.vision.patch_dim)
    patches = tuple(np.full(shape, 10 * number + image, np.float32) for image in range(images))
    return Example(f"s{number}", tokens, prompt, np.zeros(0, bool), patches, (GRID,) * images)


@st.composite
def forests(draw: st.DrawFn) -> list[Tree]:
    trees = []
    for number in range(draw(st.integers(1, 6))):
        images = draw(st.integers(0, 2))
        lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
        branches = (
            Branch(
                np.arange(length, dtype=np.int32) % 7 + 50,
                {"weight": 1 / length, "place": 100 * number + 10 * at + np.arange(length)},
            )
            for at, length in enumerate(lengths)
        )
        trees.append(Tree(example(number, 2 * images + draw(st.integers(2, 30)), images), tuple(branches)))
    return trees


def laid_out(trees: list[Tree]) -> list[tuple[tuple, Batch]]:
    sizes = [tree.size for tree in trees]
    return [
        (rows, lay_out(trees.__getitem__, rows, SHAPE, TINY, names=("weight", "place")))
        for rows in Packer(SHAPE, TINY).pack(sizes)
    ]


def own_rows(rows, trees: list[Tree]):
    """For each branch of a micro-batch: its row, the places of prompt and branch, its tree and number."""
    for number, row in enumerate(rows):
        at = 0
        for part in row:
            tree = trees[part.tree]
            prompt = slice(at, at + tree.example.prompt_length)
            at = prompt.stop
            for branch in part.branches:
                own = slice(at, at + len(tree.branches[branch].tokens))
                at = own.stop
                yield number, prompt, own, part.tree, branch


@given(forests())
def test_a_branch_sees_its_prompt_and_itself(trees):
    for rows, batch in laid_out(trees):
        expected = np.zeros((SHAPE.rows, SHAPE.width, SHAPE.width), bool)
        for at in range(SHAPE.width):
            expected[:, at, at] = True
        for row, prompt, own, _, _ in own_rows(rows, trees):
            for block in (prompt, own):
                length = block.stop - block.start
                expected[row, block, block] = np.tril(np.ones((length, length), bool))
            expected[row, own, prompt] = True
        np.testing.assert_array_equal(visible_pairs(batch.inputs.until), expected)


@given(forests())
def test_tokens_and_positions_are_those_of_a_row_of_its_own(trees):
    for rows, batch in laid_out(trees):
        for row, prompt, own, tree, branch in own_rows(rows, trees):
            sample = trees[tree].example
            tokens = np.concatenate([sample.prompt, trees[tree].branches[branch].tokens])
            places = np.r_[prompt, own]
            np.testing.assert_array_equal(batch.inputs.tokens[row, places], tokens)
            expected = mrope_positions(tokens, sample.grids, TINY)
            np.testing.assert_array_equal(batch.inputs.positions[:, row, places], expected)


@given(forests())
def test_scored_tokens_name_the_state_before_them_and_carry_their_values(trees):
    sizes = [tree.size for tree in trees]
    for rows, batch in laid_out(trees):
        scored, found = batch.scored, spans(rows, sizes)
        assert len(found) == len(list(own_rows(rows, trees)))
        for span, (row, prompt, own, tree, branch) in zip(found, own_rows(rows, trees), strict=True):
            assert (span.row, span.tree, span.branch) == (row, tree, branch)
            place, tokens = slice(span.start, span.stop), trees[tree].branches[branch].tokens
            np.testing.assert_array_equal(scored.tokens[row, place], tokens)
            before = [prompt.stop - 1, *range(own.start, own.stop - 1)]
            assert scored.index[row, place].tolist() == before
            values = trees[tree].branches[branch].values
            np.testing.assert_allclose(scored.values["weight"][row, place], values["weight"])
            np.testing.assert_array_equal(scored.values["place"][row, place], values["place"])
            assert len(set(scored.branch[row, place])) == 1
        count = [
            max((span.stop for span in found if span.row == row), default=0) for row in range(SHAPE.rows)
        ]
        for row, used in enumerate(count):
            assert (scored.branch[row, :used] > 0).all()
            for rest in (scored.branch, scored.values["weight"], scored.tokens):
                assert not rest[row, used:].any()
        assert int(scored.count) == max(count)


@given(forests())
def test_image_tokens_find_their_own_patches(trees):
    for rows, batch in laid_out(trees):
        vision = batch.inputs.vision
        assert vision is not None and len(vision.patches) == SHAPE.rows * SHAPE.images * PATCHES
        for row, prompt, _, tree, _ in own_rows(rows, trees):
            index = batch.inputs.image_index[row, prompt]
            values = np.asarray(vision.patches)[index[index >= 0] * TINY.vision.merge_unit][:, 0]
            images = len(trees[tree].example.grids)
            expected = [10 * tree + image for image in range(images) for _ in range(2)]
            assert values.tolist() == expected


@given(forests(), st.permutations(range(SHAPE.rows)))
def test_a_process_makes_its_own_rows_of_the_batch(trees, order):
    """Rows of a process need not be neighbours."""
    sizes = [tree.size for tree in trees]
    for rows in Packer(SHAPE, TINY).pack(sizes):
        asked: list[int] = []

        def get(number: int, asked: list[int] = asked) -> Tree:
            asked.append(number)
            return trees[number]

        whole = lay_out(trees.__getitem__, rows, SHAPE, TINY, names=("weight",))
        held = (order[:2], order[2:])
        parts = []
        for numbers in held:
            asked.clear()
            parts.append(lay_out(get, rows, SHAPE, TINY, numbers, ("weight",)))
            own = {part.tree for number in numbers if number < len(rows) for part in rows[number]}
            assert sorted(asked) == sorted(own)  # It encodes no other process's trees.
        for name in ("tokens", "until", "image_index"):
            joined = np.concatenate([getattr(part.inputs, name) for part in parts])
            np.testing.assert_array_equal(joined, getattr(whole.inputs, name)[list(order)], err_msg=name)
        positions = np.concatenate([part.inputs.positions for part in parts], axis=1)
        np.testing.assert_array_equal(positions, whole.inputs.positions[:, list(order)])
        for field in dataclasses.fields(whole.scored):
            if field.name != "values":
                joined = np.concatenate([getattr(part.scored, field.name) for part in parts])
                np.testing.assert_array_equal(joined, getattr(whole.scored, field.name)[list(order)])
        patches = np.concatenate([part.inputs.vision.patches for part in parts])
        expected = whole.inputs.vision.patches.reshape(SHAPE.rows, -1, TINY.vision.patch_dim)[list(order)]
        np.testing.assert_array_equal(patches.reshape(expected.shape), expected)


def test_prompts_begin_rows_of_their_own():
    examples = [example(1, 12, images=1), example(2, 5)]
    inputs = lay_out_prompts(examples, SHAPE, TINY).inputs
    assert inputs.until[:, 0].tolist() == [12, 5, 1]
    for row, sample in enumerate(examples):
        assert inputs.tokens[row, : sample.prompt_length].tolist() == sample.tokens.tolist()
    # In another order: the rows follow the examples.
    swapped = lay_out_prompts(examples[::-1], SHAPE, TINY, held=[1]).inputs
    np.testing.assert_array_equal(swapped.tokens[0], inputs.tokens[0])


def test_a_tree_without_branches_is_its_prompt():
    tree = Tree(example(3, 7))
    batch = lay_out(lambda _: tree, [(Part(0, ()),)], SHAPE, TINY)
    assert batch.inputs.until[0, :8].tolist() == [7] * 7 + [8]
    assert int(batch.scored.count) == 0
