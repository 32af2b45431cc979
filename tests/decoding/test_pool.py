"""Long responses, slots that are used again, 8-bit caches and the TPU kernel: a whole decode of each."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rmsweb_jax.decoding import cache
from rmsweb_jax.decoding import generator as decode
from rmsweb_jax.decoding.attention import keys_by_position
from rmsweb_jax.decoding.cache import PrefixCache
from rmsweb_jax.decoding.generator import Generator, Pause, decode_responses, prepare_weights
from rmsweb_jax.decoding.pool import PromptState, empty_decode_state
from rmsweb_jax.decoding.quantized import CacheArray, swap_last_axes
from rmsweb_jax.qwen3_vl.attention import AttentionConfig
from rmsweb_jax.qwen3_vl.lora import LoRAConfig
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from tests.qwen3_vl.random_models import random_model
from tests.qwen3_vl.rows import log_probs, text_inputs
from tests.tiny import TINY

PROMPTS = [[5, 6, 7, 8, 9, 3, 1], [11, 12], [40, 41, 42, 43]]
WIDTH, SAMPLES, NEW, BLOCK = 8, 2, 10, 4
SHALLOW = dataclasses.replace(TINY, text=dataclasses.replace(TINY.text, num_hidden_layers=1))
# Heads as the kernel wants them.
WIDE = dataclasses.replace(
    SHALLOW,
    text=dataclasses.replace(
        SHALLOW.text,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=128,
        mrope_section=(32, 16, 16),
    ),
)


@pytest.fixture(scope="module")
def model() -> Qwen3VL:
    """A model with random adapters."""
    return random_model(SHALLOW, LoRAConfig(rank=4, alpha=8, targets="attention"), embedding_std=0.4)


@pytest.fixture(scope="module", autouse=True)
def short_blocks():
    """Blocks of which a response has several; room for ten tokens is then a ring of three."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "BLOCK", BLOCK)
        patch.setattr(decode, "BLOCK", BLOCK)
        forget()
        yield
    forget()


def forget() -> None:
    """Drops programs that were compiled with blocks of another size, which is not among their arguments."""
    for program in (empty_decode_state, decode.decode_responses):
        program.clear_cache()


@pytest.fixture(scope="module")
def plain(model):
    """Separate adapters, as in training."""
    inputs = text_inputs(PROMPTS, length=WIDTH)
    return Generator(model, merge=False)(inputs, num_samples=SAMPLES, max_new_tokens=NEW, eos=-1, seed=3)


def forward(model, generated) -> np.ndarray:
    """Log-probabilities [G, K, R] of what was drawn, by training's forward pass."""
    drawn = generated.tokens.reshape(-1, NEW).tolist()
    prompts = [prompt for prompt in PROMPTS for _ in range(SAMPLES)]
    rows = [[*prompt, *tokens] for prompt, tokens in zip(prompts, drawn, strict=True)]
    scored = log_probs(model, text_inputs(rows, length=WIDTH + NEW))
    parts = [row[len(prompt) :][:NEW] for row, prompt in zip(scored, prompts, strict=True)]
    return np.stack(parts).reshape(generated.log_probs.shape)


def test_long_responses_equal_the_training_forward(model, plain):
    np.testing.assert_allclose(plain.log_probs, forward(model, plain), atol=1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [("int8", 0.05), ("float8_e4m3fn", 0.2)])
def test_caches_of_8_bits_are_near(model, dtype, tolerance):
    generator = Generator(model, merge=False, cache_dtype=dtype)
    inputs = text_inputs(PROMPTS, length=WIDTH)
    out = generator(inputs, num_samples=SAMPLES, max_new_tokens=NEW, eos=-1, seed=3)
    error = np.abs(out.log_probs - forward(model, out))
    assert 1e-5 < error.max() < tolerance


def test_reused_slots_give_the_same_replies_as_a_plain_call(model, plain):
    """Two slots, prompts asked twice: they are inserted in mid turn of a ring that comes round.

    Short ones are prefilled in half the places, into slots where a longer one may have been.
    """
    end = int(plain.tokens[1, 0, 4])
    generator = Generator(model, merge=False)

    def ask(number: int):
        return generator.prefill(
            text_inputs(PROMPTS[number : number + 1], length=WIDTH if number == 0 else WIDTH // 2),
            seeds=np.full(1, 3, np.uint32),
            prompt_ids=np.full(1, number, np.uint32),
            temperature=np.ones(1, np.float32),
        )

    pool = generator.empty_pool(ask(2), slots=2, width=WIDTH, num_samples=SAMPLES, max_new_tokens=NEW)
    slots, waiting, turns = [-1, -1], [0, 1, 2] * 2, 0
    while True:
        for slot in np.flatnonzero(np.asarray(pool.state.done.all(1))):
            if slots[slot] >= 0:
                check(pool.state, int(slot), plain, slots[slot], end)
                slots[slot] = -1
            if waiting:
                slots[slot] = waiting.pop(0)
                pool = generator.insert(pool, ask(slots[slot]), np.array([slot], np.int32))
        if max(slots) < 0:
            break
        pool = generator.decode(pool, max_new_tokens=NEW, eos=end, free_slots=1 if waiting else None)
        turns += 1
    assert turns > 1 and int(pool.state.step) > pool.state.tokens.shape[-1]


def check(answers, slot: int, plain, prompt: int, end: int) -> None:
    ring = answers.tokens.shape[-1]
    for sample in range(SAMPLES):
        expected = plain.tokens[prompt, sample].tolist()
        length = expected.index(end) + 1 if end in expected else NEW
        places = (int(answers.first_step[slot]) + np.arange(length)) % ring
        assert int(answers.lengths[slot, sample]) == length
        assert answers.tokens[slot, sample, places].tolist() == expected[:length]
        np.testing.assert_allclose(
            answers.log_probs[slot, sample, places], plain.log_probs[prompt, sample, :length], atol=1e-5
        )


def test_the_kernel_decodes_as_xla_does(monkeypatch):
    # A ring of a multiple of 128 places, as the kernel wants them.
    for module in (cache, decode):
        monkeypatch.setattr(module, "BLOCK", 64)
    text, groups, max_new = WIDE.text, 2, 70
    graphdef, state = nnx.split(random_model(WIDE, embedding_std=0.4))
    weights = prepare_weights(graphdef, state, adapters=False, merge=True, mesh=None)
    rng = np.random.default_rng(0)
    keys, values = (
        (CacheArray(rng.standard_normal((groups, text.num_key_value_heads, 128, text.head_dim), np.float32)),)
        for _ in range(2)
    )
    mask = np.arange(128) >= [[3], [100]]
    hidden = rng.standard_normal((groups, text.hidden_size), np.float32)
    seeds = np.arange(groups, dtype=np.uint32)
    drawn = []
    for backend in ("dense", "pallas"):
        attention = AttentionConfig(backend, interpret=True)
        kept = keys if keys_by_position(attention) else tuple(map(swap_last_axes, keys))
        prefix = PrefixCache(kept, values, mask, mask.sum(1, dtype=np.int32))
        asked = PromptState(prefix, hidden, seeds, seeds, np.ones(groups, np.float32))
        answers = empty_decode_state(
            config=text,
            groups=groups,
            num_samples=SAMPLES,
            max_new_tokens=max_new,
            dtype=jnp.dtype("float32"),
            cache_dtype="model",
            fresh=True,
            attention=attention,
        )
        done = decode_responses(
            weights,
            asked,
            answers,
            np.zeros(text.vocab_size, bool),
            np.int32(-1),
            Pause(free_slots=np.asarray(groups + 1), steps=np.asarray(max_new)),
            config=text,
            max_new_tokens=max_new,
            cache_dtype="model",
            attention=attention,
        )
        drawn.append(done)
    assert drawn[0].tokens.shape[2] == 128 and int(drawn[0].step) == max_new
    np.testing.assert_array_equal(drawn[0].tokens, drawn[1].tokens)
    np.testing.assert_allclose(drawn[0].log_probs, drawn[1].log_probs, atol=1e-5)
    assert len(np.unique(drawn[0].tokens)) > 10
