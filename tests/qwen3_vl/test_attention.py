"""Every back end that can run here computes the one rule, forward and backward."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.attention import AttentionConfig
from rmsweb_jax.qwen3_vl.backends import default_attention, make_attend
from rmsweb_jax.qwen3_vl.inputs import RowLayout

LENGTH, HEADS, KV_HEADS, SIZE = 384, 2, 1, 128
# 256 does not divide the rows: blocks are halved.
SPLASH = AttentionConfig("splash", block=256, interpret=True)
CUDNN = AttentionConfig("cudnn", interpret=True)


def ids(*runs: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Segments and slots from runs of (length, segment, slot); the rest of the row is padding."""
    segments, slots = np.zeros((1, LENGTH), np.int32), np.zeros((1, LENGTH), np.int32)
    at = 0
    for length, segment, slot in runs:
        segments[0, at : at + length], slots[0, at : at + length] = segment, slot
        at += length
    assert at <= LENGTH
    return segments, slots


ROWS = {
    "whole": (ids((LENGTH, 1, 0)), None),
    "one sample": (ids((300, 1, 0)), RowLayout(LENGTH)),
    "empty": (ids(), RowLayout(LENGTH)),
    "padded right": (ids((300, 1, 0)), None),
    "padded left": (ids((77, 0, 0), (307, 1, 0)), None),
    "packed": (ids((100, 1, 0), (130, 2, 0), (54, 3, 0)), None),
    # Prompt places 0-127, then slots of 64; prompt and responses end before their places do.
    "slots": (
        ids((120, 1, 0), (8, 0, 0), (64, 1, 1), (33, 1, 2), (31, 0, 2), (1, 1, 3), (63, 0, 3), (64, 1, 4)),
        RowLayout(prompt=128, slot=64),
    ),
    "odd slots": (ids((100, 1, 0), *((71, 1, slot) for slot in (1, 2, 3, 4))), RowLayout(100, 71)),
}


@pytest.fixture(scope="module")
def qkv() -> list[jax.Array]:
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = [(1, LENGTH, heads, SIZE) for heads in (HEADS, KV_HEADS, KV_HEADS, HEADS)]
    return [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]


@functools.partial(jax.jit, static_argnames=("config", "layout"))
def with_gradients(config: AttentionConfig, qkv, segments, slot_ids, layout: RowLayout | None):
    """Mixed values of the tokens, and gradients; rows of one layout share a program."""
    *inputs, weight = qkv
    real = (segments > 0)[..., None, None]
    attend = make_attend(config, segments, slot_ids, layout)

    def loss(q, k, v):
        out = attend(q, k, v)
        return (out * weight * real).sum(), jnp.where(real, out, 0)

    gradients, out = jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(*inputs)
    return out, *gradients


@pytest.mark.parametrize("fused", [SPLASH, CUDNN], ids=lambda config: config.backend)
@pytest.mark.parametrize("name", ROWS)
def test_fused_attention_is_the_reference(qkv, name, fused):
    (segments, slots), layout = ROWS[name]
    slot_ids = slots if slots.any() else None
    expected, *expected_grads = with_gradients(AttentionConfig(), qkv, segments, slot_ids, None)
    out, *grads = with_gradients(fused, qkv, segments, slot_ids, layout)
    np.testing.assert_allclose(out, expected, atol=2e-5)
    for grad, expected_grad in zip(grads, expected_grads, strict=True):
        np.testing.assert_allclose(grad, expected_grad, atol=5e-5)


def test_cudnn_computes_slots_at_any_place(qkv):
    (segments, slots), _ = ROWS["slots"]
    expected, out = (
        with_gradients(config, qkv, segments, slots, None)[0] for config in (AttentionConfig(), CUDNN)
    )
    np.testing.assert_allclose(out[segments > 0], expected[segments > 0], atol=2e-5)


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="the kernel needs a GPU")
@pytest.mark.parametrize("name", ROWS)
def test_cudnn_kernel_is_the_reference(qkv, name):
    (segments, slots), layout = ROWS[name]
    slot_ids = slots if slots.any() else None
    inputs = [part.astype(jnp.bfloat16) for part in qkv[:3]]
    expected, out = (
        make_attend(config, segments, slot_ids, layout)(*inputs)
        for config in (AttentionConfig(), AttentionConfig("cudnn"))
    )
    np.testing.assert_allclose(out[segments > 0], expected[segments > 0], atol=2e-2)


@pytest.mark.parametrize(
    ("platform", "head_dim", "dtype", "backend"),
    [
        ("tpu", 128, "bfloat16", "splash"),
        ("tpu", 64, "bfloat16", "xla"),
        ("gpu", 128, "bfloat16", "cudnn"),
        ("gpu", 128, "float32", "xla"),
        ("gpu", 256, "bfloat16", "xla"),
        ("cpu", 128, "bfloat16", "xla"),
    ],
)
def test_the_platform_decides(platform, head_dim, dtype, backend):
    assert default_attention(head_dim, dtype, platform=platform).backend == backend


def test_splash_without_a_layout_refuses_slots():
    (segments, slots), _ = ROWS["slots"]
    with pytest.raises(ValueError, match="RowLayout"):
        make_attend(SPLASH, segments, slots, None)


def test_splash_refuses_rows_that_are_no_whole_blocks():
    with pytest.raises(UserError, match="multiple of 128"):
        make_attend(SPLASH, np.ones((1, 200), np.int32), None, None)


def test_unknown_back_end():
    with pytest.raises(ValueError, match="not one of"):
        AttentionConfig("flash")
