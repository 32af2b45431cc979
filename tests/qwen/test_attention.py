"""Every back end that can run here computes the one rule, forward and backward."""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen import backends
from rmsweb_jax.qwen.attention import AttentionConfig
from rmsweb_jax.qwen.backends import choose_attention, make_attend
from rmsweb_jax.qwen.tree_attention.rule import TreeKernel

# The back ends' largest blocks do not divide the rows: they are halved.
LENGTH, HEADS, KV_HEADS, SIZE = 384, 2, 1, 128
DENSE, CUDNN = AttentionConfig(), AttentionConfig("cudnn", interpret=True)
FUSED = [AttentionConfig("blocks"), AttentionConfig("pallas", interpret=True), CUDNN]
FUSED.append(AttentionConfig("triton", interpret=True))


def row(*trees: tuple[int, ...], start: int = 0) -> np.ndarray:
    """`until` of one row of trees, each the lengths of a prompt and its branches; the rest is padding."""
    until, at = np.arange(1, LENGTH + 1, dtype=np.int32), start
    for prompt, *branches in trees:
        until[at : at + prompt] = at + prompt + sum(branches)
        at += prompt
        for branch in branches:
            until[at : at + branch] = at + branch
            at += branch
    assert at <= LENGTH
    return until[None]


ROWS = {
    "whole": row((LENGTH,)),
    "empty": row(),
    "padded right": row((300,)),
    "padded left": row((307,), start=77),
    "packed": row((100,), (130,), (54,)),
    "group": row((120, 64, 33, 1, 64)),
    "groups": row((100, 71, 71), (1, 5), (40, 1, 40, 29, 6)),
}


@pytest.fixture(scope="module")
def qkv() -> list[jax.Array]:
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = [(1, LENGTH, heads, SIZE) for heads in (HEADS, KV_HEADS, KV_HEADS, HEADS)]
    return [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]


@functools.partial(jax.jit, static_argnames="config")
def with_gradients(config: AttentionConfig, qkv, until):
    """Mixed values and gradients; all rows share a program."""
    *inputs, weight = qkv
    attend = make_attend(config, until)

    def loss(q, k, v):
        out = attend(q, k, v)
        return (out * weight).sum(), out

    gradients, out = jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(*inputs)
    return out, *gradients


@pytest.mark.parametrize("fused", FUSED, ids=lambda config: config.backend)
@pytest.mark.parametrize("name", ROWS)
def test_fused_attention_is_the_reference(qkv, name, fused):
    expected, *expected_grads = with_gradients(DENSE, qkv, ROWS[name])
    out, *grads = with_gradients(fused, qkv, ROWS[name])
    np.testing.assert_allclose(out, expected, atol=2e-5)
    for grad, expected_grad in zip(grads, expected_grads, strict=True):
        np.testing.assert_allclose(grad, expected_grad, atol=5e-5)


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="the kernels need a GPU")
@pytest.mark.parametrize("backend", ["cudnn", "triton"])
@pytest.mark.parametrize("name", ROWS)
def test_gpu_kernels_are_the_reference(qkv, name, backend):
    inputs = [part.astype(jnp.bfloat16) for part in qkv]
    expected, found = (
        with_gradients(config, inputs, ROWS[name]) for config in (DENSE, AttentionConfig(backend))
    )
    np.testing.assert_allclose(found[0], expected[0], atol=2e-2)
    for one, other in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(one, other, atol=0.1)


def test_the_triton_kernels_compile_for_gpus(qkv):
    """As far as that goes without one: to Triton's own checks."""
    inputs = [part.astype(jnp.bfloat16) for part in qkv]
    traced = with_gradients.trace(AttentionConfig("triton"), inputs, ROWS["groups"])
    assert (
        traced.lower(lowering_platforms=("cuda",)).as_text().count("custom_call @__gpu$xla.gpu.triton") == 3
    )


@pytest.mark.parametrize(
    ("platform", "head_dim", "dtype", "backend"),
    [
        ("tpu", 128, "bfloat16", "pallas"),
        ("tpu", 64, "bfloat16", "blocks"),
        ("gpu", 128, "bfloat16", "cudnn"),
        ("gpu", 128, "float32", "blocks"),
        ("gpu", 256, "bfloat16", "blocks"),
        ("cpu", 128, "bfloat16", "blocks"),
    ],
)
def test_the_platform_decides(platform, head_dim, dtype, backend):
    assert choose_attention(head_dim, dtype, platform=platform).backend == backend


def test_short_rows_take_the_reference(qkv):
    """200 tokens have no block that is large enough for the loop to pay."""
    until = np.full((1, 200), 200, np.int32)
    inputs = [part[:, :200] for part in qkv]
    expected, found = (with_gradients(config, inputs, until) for config in (DENSE, FUSED[0]))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("backend", "tokens", "multiple"), [("pallas", 200, 128), ("triton", 200, 16)])
def test_a_kernel_refuses_rows_that_are_no_whole_blocks(backend, tokens, multiple):
    with pytest.raises(UserError, match=f"multiple of {multiple}"):
        make_attend(AttentionConfig(backend, interpret=True), np.full((1, tokens), tokens, np.int32))


@pytest.mark.parametrize(
    ("backend", "head_dim", "dtype", "platform"),
    [
        ("pallas", 128, "bfloat16", "cpu"),
        ("pallas", 96, "bfloat16", "tpu"),
        ("cudnn", 128, "float32", "gpu"),
        ("triton", 96, "bfloat16", "gpu"),
    ],
)
def test_a_kernel_that_cannot_compute_the_heads_is_refused(backend, head_dim, dtype, platform):
    with pytest.raises(UserError, match=f"config.attention={backend} does not compute heads of {head_dim} "):
        choose_attention(head_dim, dtype, backend=backend, platform=platform)


@pytest.mark.parametrize(("backend", "platform", "block"), [("pallas", "tpu", 1024), ("pallas", "tpu", 64)])
def test_a_kernel_that_has_no_such_block_is_refused(backend, platform, block):
    with pytest.raises(UserError, match=f"attention_block={block}: take a power of two from 128 to 512"):
        choose_attention(128, "bfloat16", backend=backend, platform=platform, block=block)


def test_a_row_of_too_many_blocks_is_refused():
    """513 blocks of 64 tokens: the number of the last one does not fit its entry."""
    with pytest.raises(UserError, match="32832 tokens have more than 512 blocks of 64"):
        make_attend(FUSED[0], np.ones((1, 513 * 64), np.int32))


def test_the_backward_kernel_is_chosen_by_fast_memory(monkeypatch):
    """Gradients of a row's keys and values stay in it while they are summed up."""
    for chip, length, fused in (
        ("TPU v5p", 20_480, True),
        ("TPU v5p", 32_768, False),
        ("TPU v4", 8_192, False),
    ):
        monkeypatch.setattr(jax, "devices", lambda chip=chip: [types.SimpleNamespace(device_kind=chip)])
        fitted = backends._fitted(TreeKernel(512), length, 128, None)
        assert fitted.fused_backward == fused
        assert (fitted.vmem_mib is not None) == fused


def test_unknown_back_end():
    with pytest.raises(ValueError, match="not one of"):
        AttentionConfig("flash")
