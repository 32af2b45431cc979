"""Attention of prefix trees: the kernel and the loop over the same blocks, against a dense mask."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

from rmsweb_jax.qwen.attention import attend
from rmsweb_jax.qwen.tree_attention.attention import tree_attention
from rmsweb_jax.qwen.tree_attention.rule import TreeKernel, block_table, visible_pairs
from rmsweb_jax.training.mesh import ROWS, make_mesh

LENGTH, BLOCK, HEADS, KV_HEADS, SIZE = 128, 16, 4, 2, 8
KERNELS = {
    "loop": TreeKernel(BLOCK, implementation="loop"),
    "fused": TreeKernel(BLOCK, interpret=True),
    "two kernels": TreeKernel(BLOCK, interpret=True, fused_backward=False),
    "gpu": TreeKernel(BLOCK, implementation="gpu", interpret=True),
}

# A tree: its own tokens, then its branches. One-token responses are likely.
LENGTHS = st.one_of(st.just(1), st.integers(1, 40))
TREES = st.recursive(
    st.tuples(LENGTHS, st.just(())),
    lambda trees: st.tuples(LENGTHS, st.lists(trees, max_size=8).map(tuple)),
    max_leaves=12,
)


def lay_out(trees, length=LENGTH) -> np.ndarray:
    """`until` of a row of trees in depth-first order, cut where the row is full; the rest is padding."""
    until = []

    def put(tree):
        own, branches = tree
        start = len(until)
        until.extend([0] * own)
        for branch in branches:
            put(branch)
        until[start : start + own] = [len(until)] * own

    for tree in trees:
        put(tree)
    return np.array([*np.minimum(until, length)[:length], *range(len(until) + 1, length + 1)], np.int32)


def numpy_mask(until: np.ndarray) -> np.ndarray:
    """Query by key, from the words of the rule."""
    query, key = np.indices((len(until), len(until)))
    return (key <= query) & (query < until[key])


TWO_ROWS = st.lists(st.lists(TREES, max_size=6).map(lay_out), min_size=2, max_size=2).map(np.stack)


def arrays(seed: int, dtype=jnp.float32, rows: int = 2, length: int = LENGTH):
    rng = np.random.default_rng(seed)
    shapes = [(rows, length, heads, SIZE) for heads in (HEADS, KV_HEADS, KV_HEADS, HEADS)]
    return [jnp.asarray(rng.standard_normal(shape), dtype) for shape in shapes]


@functools.partial(jax.jit, static_argnames="kernel")
def with_gradients(q, k, v, grad, until, kernel):
    """Mixed values and the gradients of q, k and v; without a kernel by the reference with a dense mask."""

    def compute(q, k, v):
        if kernel is None:
            return attend(q, k, v, visible_pairs(until))
        return tree_attention(q, k, v, until, kernel)

    out, pull = jax.vjp(compute, q, k, v)
    return out, *pull(grad)


@given(TWO_ROWS, st.integers(0, 99))
def test_values_and_gradients_equal_a_dense_mask(until, seed):
    # All kernels on one example: to draw trees costs more than to attend to them.
    q, k, v, grad = arrays(seed)
    expected = with_gradients(q, k, v, grad, until, None)
    for name, kernel in KERNELS.items():
        for one, other in zip(with_gradients(q, k, v, grad, until, kernel), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", KERNELS)
def test_bfloat16_is_as_near_as_the_reference(name):
    """Errors against float32 are at most half again the reference's, which rounds at the same places."""
    until = np.stack([lay_out([(40, ((9, ()), (1, ()), (30, ((5, ()), (5, ()))))), (20, ())]), lay_out([])])
    inputs = arrays(0)
    exact = with_gradients(*inputs, until, None)
    rounded = [x.astype(jnp.bfloat16) for x in inputs]
    reference = with_gradients(*rounded, until, None)
    found = with_gradients(*rounded, until, KERNELS[name])
    for true, plain, ours in zip(exact, reference, found, strict=True):
        error, allowed = (float(jnp.abs(x.astype(jnp.float32) - true).max()) for x in (ours, plain))
        assert error <= 1.5 * allowed


blocks_that_run = jax.jit(block_table, static_argnums=(1, 2))


@given(TWO_ROWS)
def test_the_rule_and_the_blocks_that_run_are_those_of_numpy(until):
    """Blocks run that have a visible pair."""
    masks = np.stack([numpy_mask(row) for row in until])
    np.testing.assert_array_equal(visible_pairs(until), masks)
    blocks = LENGTH // BLOCK
    pairs = masks.reshape(2, blocks, BLOCK, blocks, BLOCK)
    for by_key in (False, True):
        table = blocks_that_run(until, BLOCK, by_key)
        entries = np.asarray(table.entries)[: int(table.count)]
        row, query, key = entries >> 21, entries >> 12 & 511, entries >> 3 & 511
        masked, first, last = (entries & bit > 0 for bit in (4, 2, 1))
        found = np.zeros((2, blocks, blocks), int)
        np.add.at(found, (row, query, key), 1)
        np.testing.assert_array_equal(found, pairs.any((2, 4)))
        np.testing.assert_array_equal(masked, ~pairs.all((2, 4))[row, query, key])
        outer = list(zip(row, key if by_key else query, strict=True))
        assert outer == sorted(outer)
        assert [number for number in range(len(outer)) if first[number]] == [
            number for number in range(len(outer)) if number == 0 or outer[number] != outer[number - 1]
        ]
        assert list(np.roll(first, -1)) == list(last)


attended = jax.jit(tree_attention, static_argnums=4)


def test_padding_sees_itself_and_nothing_sees_it():
    until = np.stack([lay_out([(10, ((5, ()), (7, ())))])])
    q, k, v, _ = arrays(1, rows=1)
    before = attended(q, k, v, until, KERNELS["fused"])
    np.testing.assert_allclose(before[:, 22:], jnp.repeat(v, 2, axis=2)[:, 22:], rtol=1e-6)
    after = attended(q, k.at[:, 22:].set(9), v.at[:, 22:].set(9), until, KERNELS["fused"])
    np.testing.assert_array_equal(before[:, :22], after[:, :22])


def test_shard_map_gives_the_same():
    until = np.stack([lay_out([(50, ((9, ()), (20, ())))]), lay_out([(30, ()), (60, ())])])
    q, k, v, _ = arrays(2)
    heads = P(ROWS, None, "tensor")
    sharded = jax.shard_map(
        functools.partial(tree_attention, kernel=KERNELS["fused"]),
        mesh=make_mesh(fsdp=-1),
        in_specs=(heads, heads, heads, P(ROWS)),
        out_specs=heads,
        check_vma=False,
    )
    expected = attended(q, k, v, until, KERNELS["loop"])
    np.testing.assert_allclose(jax.jit(sharded)(q, k, v, until), expected, atol=1e-5)
