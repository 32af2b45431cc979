"""The recurrence over rows of trees: against itself token by token, and one row for each branch."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rmsweb_jax.qwen.config import DeltaConfig
from rmsweb_jax.qwen.delta_kernel import delta_rule_kernel
from rmsweb_jax.qwen.gated_delta import GatedDeltaNet, delta_rule, unit
from rmsweb_jax.qwen.inputs import TreeTables, tree_tables

WIDTH, CHUNK, SLOTS, HIDDEN = 96, 16, 4, 16
CONFIG = DeltaConfig(
    interval=2,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=8,
    linear_value_head_dim=6,
    linear_conv_kernel_dim=4,
)
TREES = 300
# Norms of short heads enlarge the rounding of gradients.
GRADIENT = 5e-5


@pytest.fixture(scope="module")
def layer() -> GatedDeltaNet:
    layer = GatedDeltaNet(
        HIDDEN, CONFIG, eps=1e-6, rngs=nnx.Rngs(0), dtype=jnp.float32, param_dtype=jnp.float32
    )
    layer.A_log.set_value(jnp.asarray([-3.0, -1.5, -0.5, 0.5]))
    return layer


def random_until(rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Trees of up to four levels, with branches of one token, and padding after them."""
    until = np.arange(1, WIDTH + 1, dtype=np.int32)
    levels = int(rng.integers(1, 5))

    def grow(at: int, space: int, level: int) -> int:
        count = int(min(space, rng.choice([1, 2, 3, rng.integers(1, 40)])))
        end = at + count
        for _ in range(int(rng.integers(0, 5)) if level < levels else 0):
            end = grow(end, at + space - end, level + 1) if end < at + space else end
        until[at : at + count] = end
        return end

    used = 0
    while used < WIDTH - 5 and rng.random() < 0.95:
        used = grow(used, WIDTH - used, 1)
    return until, max(used, 1)


def tables_of(until: np.ndarray) -> TreeTables:
    """Tables of one row with space for four forks on a path, so that one program serves all trees."""
    tables = tree_tables(until[None], CHUNK)
    extra = SLOTS - tables.keep.shape[2]
    assert extra >= 0
    return tables.replace(keep=np.pad(tables.keep, ((0, 0), (0, 0), (0, extra)), constant_values=-1))


def parents(until: np.ndarray) -> np.ndarray:
    """The nearest earlier token whose branch holds each token, by its definition."""
    at = np.arange(len(until))
    holds = (at < at[:, None]) & (until > at[:, None])
    return np.where(holds, at, -1).max(axis=1)


@functools.partial(jax.jit, static_argnums=0)
def weighted(graph, state, x, weight, until, tables):
    """The sum of the weighted outputs, its gradients, and the outputs."""

    def loss(state, x):
        own = nnx.merge(graph, state)
        out = own(x, lambda *parts: delta_rule(*parts, until, tables)[0], tables.parent, False, [None] * 5)
        return jnp.sum(out * weight), out

    (_, out), gradients = jax.value_and_grad(loss, (0, 1), has_aux=True)(state, x)
    return out, *gradients


def test_tables_have_the_parents_of_the_definition():
    for seed in range(100):
        until, _ = random_until(np.random.default_rng(seed))
        np.testing.assert_array_equal(tables_of(until).parent[0], parents(until))


def test_a_row_that_is_no_whole_number_of_chunks_is_padded():
    tables = tree_tables(np.full((2, 70), 70, np.int32))
    assert (
        tables.parent.shape == (2, 70) and tables.entry.shape == (2, 128) and tables.keep.shape == (2, 2, 1)
    )


def token_by_token(layer, x, parent):
    """The layer in float64, one token after another, by its formula."""
    weight = {
        name: np.asarray(getattr(layer, f"in_proj_{name}").kernel[...], np.float64)
        for name in ("qkv", "z", "b", "a")
    }
    taps = np.asarray(layer.conv1d.kernel[...], np.float64)
    qkv, z, b, a = (x @ weight[name] for name in ("qkv", "z", "b", "a"))
    beta, decay = (
        1 / (1 + np.exp(-b)),
        np.exp(-np.exp(layer.A_log[...]) * np.log1p(np.exp(a + layer.dt_bias[...]))),
    )
    states, out = {-1: np.zeros((4, 8, 6))}, []
    for token in range(len(x)):
        mixed, before = np.zeros(qkv.shape[1]), token
        for tap in reversed(range(4)):
            mixed += qkv[before] * taps[tap] if before >= 0 else 0
            before = parent[before] if before >= 0 else -1
        mixed = mixed / (1 + np.exp(-mixed))
        q, k = (part.reshape(2, 8) for part in (mixed[:16], mixed[16:32]))
        q, k = (part / np.sqrt((part**2).sum(-1, keepdims=True) + 1e-6) for part in (q, k))
        q, k, v = np.repeat(q, 2, 0) * 8**-0.5, np.repeat(k, 2, 0), mixed[32:].reshape(4, 6)
        state = states[parent[token]] * decay[token][:, None, None]
        u = beta[token][:, None] * (v - np.einsum("hd,hde->he", k, state))
        states[token] = state + k[:, :, None] * u[:, None]
        read = np.einsum("hd,hde->he", q, states[token])
        read = read / np.sqrt((read**2).mean(-1, keepdims=True) + 1e-6)
        gate = z[token].reshape(4, 6)
        out.append((read * gate / (1 + np.exp(-gate))).reshape(-1))
    return np.asarray(out) @ np.asarray(layer.out_proj.kernel[...], np.float64)


def test_trees_equal_the_recurrence_token_by_token(layer):
    graph, state = nnx.split(layer)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        until, used = random_until(rng)
        x = rng.standard_normal((1, WIDTH, HIDDEN)).astype(np.float32)
        out, *_ = weighted(graph, state, x, np.zeros_like(x), until[None], tables_of(until))
        expected = token_by_token(layer, x[0].astype(np.float64), parents(until))
        close(out[0, :used], expected[:used])


def test_packed_trees_equal_one_row_for_each_branch_with_gradients(layer):
    """300 trees; each token's loss counts in the first branch that has it."""
    graph, state = nnx.split(layer)
    for seed in range(TREES):
        rng = np.random.default_rng(seed)
        until, used = random_until(rng)
        parent = parents(until)
        x, weight = rng.standard_normal((2, 1, WIDTH, HIDDEN)).astype(np.float32)
        weight[:, used:] = 0
        out, by_weights, by_x = weighted(graph, state, x, weight, until[None], tables_of(until))
        expected, total = np.zeros_like(x[0]), np.zeros_like(x[0])
        summed, seen = None, np.zeros(WIDTH, bool)
        leaves = np.setdiff1d(np.arange(used), parent)
        for leaf in leaves.tolist():
            path = [leaf]
            while parent[path[-1]] >= 0:
                path.append(int(parent[path[-1]]))
            path = np.asarray(path[::-1])
            row, own = np.zeros((2, 1, WIDTH, HIDDEN), np.float32)
            row[0, : len(path)] = x[0, path]
            own[0, : len(path)] = weight[0, path] * ~seen[path, None]
            seen[path] = True
            alone = np.arange(1, WIDTH + 1, dtype=np.int32)
            alone[: len(path)] = len(path)
            one, by_own, by_row = weighted(graph, state, row, own, alone[None], tables_of(alone))
            expected[path] = one[0, : len(path)]
            np.add.at(total, path, np.asarray(by_row[0, : len(path)]))
            summed = by_own if summed is None else jax.tree.map(jnp.add, summed, by_own)
        close(out[0, :used], expected[:used])
        close(by_x[0, :used], total[:used], GRADIENT)
        jax.tree.map(lambda found, other: close(found, other, GRADIENT), by_weights, summed)


def close(found, expected, limit=1e-5):
    assert np.linalg.norm(np.asarray(found) - expected) <= limit * max(1.0, np.linalg.norm(expected))


def test_no_gradient_reaches_a_token_that_is_no_ancestor(layer):
    graph, state = nnx.split(layer)
    pairs = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        until, used = random_until(rng)
        parent = parents(until)
        x = rng.standard_normal((1, WIDTH, HIDDEN)).astype(np.float32)
        for token in rng.integers(0, used, 3).tolist():
            weight = np.zeros_like(x)
            weight[0, token] = 1
            _, _, gradient = weighted(graph, state, x, weight, until[None], tables_of(until))
            path, at = [token], token
            while parent[at] >= 0:
                at = int(parent[at])
                path.append(at)
            norms = np.abs(np.asarray(gradient[0])).sum(-1)
            others = np.setdiff1d(np.arange(WIDTH), path)
            assert not norms[others].any() and norms[path[0]] > 0
            pairs += len(others)
    assert pairs >= 1_000


@functools.partial(jax.jit, static_argnums=0)
def of_parts(kernel, parts, weight, until, tables):
    def loss(parts):
        run = functools.partial(delta_rule_kernel, interpret=True) if kernel else delta_rule
        out = run(*parts, until, tables)
        out = out if kernel else out[0]
        return jnp.sum(out * weight), out

    (_, out), gradients = jax.value_and_grad(loss, has_aux=True)(parts)
    return out, gradients


def test_the_tpu_kernels_equal_the_loop_with_gradients():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        until, _ = random_until(rng)
        q, k = (unit(jnp.asarray(rng.standard_normal((1, WIDTH, 3, 8)))) for _ in range(2))
        v, weight = rng.standard_normal((2, 1, WIDTH, 3, 6)).astype(np.float32)
        log_decay = -0.3 * np.exp(rng.standard_normal((1, WIDTH, 3))).astype(np.float32)
        parts = (q, k, v, log_decay, rng.random((1, WIDTH, 3)).astype(np.float32))
        found, expected = (
            of_parts(one, parts, weight, until[None], tables_of(until)) for one in (True, False)
        )
        close(found[0], expected[0])
        for ours, theirs in zip(found[1], expected[1], strict=True):
            close(ours, theirs)
