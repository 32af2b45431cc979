import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmsweb_jax.decoding.generator import Generator, sample_tokens
from rmsweb_jax.qwen3_vl.inputs import image_rows, image_starts, mrope_positions, vision_inputs
from rmsweb_jax.qwen3_vl.lora import LoRAConfig
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from tests.qwen3_vl.conftest import BASE, IMAGE_TOKEN
from tests.qwen3_vl.random_models import random_model
from tests.qwen3_vl.rows import log_probs, logits, text_inputs

PROMPTS = [[5, 6, 7, 8, 9, 3, 1], [11, 12], [40, 41, 42, 43]]
# The same in most tests, which then share their programs.
SAMPLES, NEW = 4, 6


def make_model(targets) -> Qwen3VL:
    """A model, with random adapters unless `targets` is None."""
    lora = None if targets is None else LoRAConfig(rank=4, alpha=8, targets=targets)
    return random_model(BASE, lora, embedding_std=0.4)


@pytest.fixture(scope="module")
def model() -> Qwen3VL:
    return make_model("attention")


def continued(tokens, generated):
    return [*tokens, *np.asarray(generated).tolist()]


@pytest.mark.parametrize("targets", [None, "all_linear", "attention"])
def test_greedy_equals_the_full_forward(targets):
    model = make_model(targets)
    out = Generator(model)(
        text_inputs(PROMPTS), num_samples=SAMPLES, max_new_tokens=NEW, eos=-1, temperature=0
    )
    for row, prompt in enumerate(PROMPTS):
        tokens = list(prompt)
        for _ in range(NEW):
            scores = logits(model, text_inputs([tokens], length=16))
            tokens.append(int(jnp.argmax(scores[0, len(tokens) - 1])))
        assert out.tokens[row].tolist() == [tokens[len(prompt) :]] * SAMPLES


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_equal_the_training_forward(model, temperature):
    out = Generator(model)(
        text_inputs(PROMPTS),
        num_samples=SAMPLES,
        max_new_tokens=NEW,
        eos=-1,
        temperature=temperature,
        seed=3,
    )
    for sample in range(SAMPLES):
        rows = [continued(prompt, out.tokens[row, sample]) for row, prompt in enumerate(PROMPTS)]
        scored = log_probs(model, text_inputs(rows, length=16), temperature)
        for row, prompt in enumerate(PROMPTS):
            place = slice(len(prompt), len(prompt) + NEW)
            np.testing.assert_allclose(out.log_probs[row, sample], scored[row, place], atol=1e-4)


def test_samples_do_not_depend_on_batch_or_padding(model):
    options = {"num_samples": SAMPLES, "max_new_tokens": NEW, "eos": 17, "seed": 5}
    whole = Generator(model)(text_inputs(PROMPTS), prompt_ids=np.array([7, 8, 9]), **options)
    turned = Generator(model)(
        text_inputs(PROMPTS[::-1], length=12), prompt_ids=np.array([9, 8, 7]), **options
    )
    np.testing.assert_array_equal(whole.tokens, turned.tokens[::-1])
    alone = Generator(model)(
        text_inputs(PROMPTS[1:2]), prompt_ids=np.array([8]), **{**options, "num_samples": 2}
    )
    np.testing.assert_array_equal(whole.tokens[1, :2], alone.tokens[0])
    other = Generator(model)(text_inputs(PROMPTS), prompt_ids=np.array([7, 8, 9]), **{**options, "seed": 6})
    assert (np.asarray(other.tokens) != whole.tokens).any()
    assert len({tuple(row) for row in whole.tokens[0].tolist()}) > 1


def test_end_token_stops_and_banned_tokens_never_come(model):
    free = Generator(model)(text_inputs(PROMPTS), num_samples=SAMPLES, max_new_tokens=NEW, eos=-1, seed=1)
    end = int(free.tokens[0, 0, 2])
    out = Generator(model)(text_inputs(PROMPTS), num_samples=SAMPLES, max_new_tokens=NEW, eos=end, seed=1)
    for tokens, scores, length in zip(
        out.tokens.reshape(-1, NEW), out.log_probs.reshape(-1, NEW), out.lengths.reshape(-1), strict=True
    ):
        ended = np.flatnonzero(tokens == end)
        assert length == (ended[0] + 1 if len(ended) else NEW)
        assert not tokens[length:].any() and not scores[length:].any()
    allowed = [1, 2, 3]
    banned = sorted(set(range(BASE.text.vocab_size)) - set(allowed))
    for temperature in (0, 1):
        kept = Generator(model)(
            text_inputs(PROMPTS),
            num_samples=SAMPLES,
            max_new_tokens=NEW,
            eos=-1,
            banned=banned,
            temperature=temperature,
        )
        assert np.isin(kept.tokens, allowed).all()


def test_images_reach_the_samples(model):
    grids = [(1, 4, 6), (1, 2, 2)]
    prompts = [[1, *[IMAGE_TOKEN] * 6, 2, 3], [4, IMAGE_TOKEN, 5]]
    rng = np.random.default_rng(0)
    patches = [rng.standard_normal((h * w, BASE.vision.patch_dim)).astype(np.float32) for _, h, w in grids]

    def build(rows):
        inputs = text_inputs(rows, length=16)
        for number, (row, grid, start) in enumerate(zip(rows, grids, image_starts(grids), strict=True)):
            tokens = np.array(row, np.int32)
            inputs.positions[:, number, : len(row)] = mrope_positions(tokens, [grid], BASE)
            inputs.image_index[number, : len(row)] = image_rows(tokens, [grid], [start], BASE)
        return inputs.replace(vision=vision_inputs(patches, grids, BASE, 32))

    out = Generator(model)(build(prompts), num_samples=2, max_new_tokens=NEW, eos=-1, seed=2)
    for sample in range(2):
        rows = [continued(prompt, out.tokens[number, sample]) for number, prompt in enumerate(prompts)]
        scores = log_probs(model, build(rows))
        for number, prompt in enumerate(prompts):
            place = slice(len(prompt), len(prompt) + NEW)
            np.testing.assert_allclose(out.log_probs[number, sample], scores[number, place], atol=1e-4)


def test_reference_policy_samples_without_adapters(model):
    inputs = text_inputs(PROMPTS)
    base = make_model(None)
    options = {"num_samples": SAMPLES, "max_new_tokens": NEW, "eos": -1}
    expected = Generator(base)(inputs, **options)
    np.testing.assert_array_equal(Generator(model, adapters=False)(inputs, **options).tokens, expected.tokens)


def test_sampling_follows_the_distribution():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(300, 0.05)).astype(np.float64)
    scores = np.full(300, -1e30, np.float32)
    scores[probs > 1e-6] = np.log(probs[probs > 1e-6])
    count = 40_000
    keys = jax.random.split(jax.random.key(0), count)
    drawn = np.asarray(jax.jit(sample_tokens)(jnp.broadcast_to(scores, (count, 300)), keys))
    frequency = np.bincount(drawn, minlength=300) / count
    assert not frequency[scores < -1e29].any()
    error = np.abs(frequency - probs) / np.sqrt(probs / count + 1e-9)
    assert error.max() < 5
