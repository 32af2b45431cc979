"""Cheap versions of what `proof_sampler` measures, beyond one block of the responses' ring."""

import dataclasses

import pytest

from rmsweb_jax.decoding.cache import BLOCK
from rmsweb_jax.decoding.generator import Generator
from rmsweb_jax.decoding.sampler import PromptShapes, Sampler, SamplingParams
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.training.mesh import make_mesh
from tests.rl.conftest import CONFIG, EOS
from tests.rl.sampler_checks import log_prob_gap, randomize_adapters, sameness
from tests.tiny import IMAGE_TOKEN

MOST = BLOCK + 12
SAMPLING = SamplingParams(
    num_samples=3,
    max_response_tokens=MOST,
    temperature=1.0,
    eos=EOS,
    banned=(IMAGE_TOKEN, 61, 62, 63, *range(20)),
)
SEEDS = [7, 7, 1, 2, 7]


@pytest.fixture(scope="module")
def adapted(model) -> Qwen3VL:
    randomize_adapters(model)
    # Towards even chances, so that responses differ and end at unlike times.
    embedding = model.language_model.embed_tokens.embedding
    embedding.set_value(0.1 * embedding[...])
    return model


@pytest.fixture(scope="module")
def prompts(make_prompt):
    lengths = (12, 16, 9, 14, 16)
    return [make_prompt(number, length, image=number != 2).encoded() for number, length in enumerate(lengths)]


def sampler(slots: int) -> Sampler:
    return Sampler(CONFIG, PromptShapes(slots, (16,), images=1, window=8), make_mesh())


@pytest.fixture(scope="module")
def policy(adapted) -> Generator:
    return Generator(adapted)


@pytest.fixture(scope="module")
def drawn(policy, prompts):
    return sampler(2).generate(policy, prompts, SEEDS, SAMPLING)


def test_responses_begin_at_unlike_times_and_outlive_a_block(drawn):
    lengths = [len(part) for responses in drawn for part in responses.tokens]
    assert max(lengths) == MOST and min(lengths) < BLOCK
    # A slot that fell free early took another prompt in the middle of a block.
    assert len({max(len(part) for part in responses.tokens) for responses in drawn}) > 1


def test_merged_adapters_give_the_training_forwards_log_probs(adapted, prompts, drawn):
    gap = log_prob_gap(adapted, prompts, drawn, sampler(2).shapes, MOST)
    assert gap.tokens > 3 * BLOCK and gap.largest < 1e-4


def test_adapters_beside_the_weights_and_other_slots_change_nothing(adapted, prompts, drawn):
    beside = sampler(3).generate(Generator(adapted, merge=False), prompts, SEEDS, SAMPLING)
    found = sameness(drawn, beside)
    assert not found.unlike and found.largest < 1e-4
    assert log_prob_gap(adapted, prompts, beside, sampler(3).shapes, MOST).largest < 1e-4


def test_tokens_are_the_same_whatever_the_batch(policy, prompts, drawn):
    def same(again, expected=drawn) -> bool:
        found = sameness(expected, again)
        return not found.unlike and found.largest < 1e-4

    def draw(chosen, seeds):
        return sampler(2).generate(policy, chosen, seeds, SAMPLING)

    assert same(draw(prompts[::-1], SEEDS[::-1])[::-1])
    assert same([draw([prompt], [seed])[0] for prompt, seed in zip(prompts, SEEDS, strict=True)])
    # Other neighbours: the first and the last prompt keep their seeds.
    others = draw(prompts, [7, 90, 91, 92, 7])
    assert same([others[0], others[-1]], [drawn[0], drawn[-1]])
    assert sameness(drawn[1:2], others[1:2]).unlike


def test_sameness_sees_one_other_token(drawn):
    changed = [part.copy() for part in drawn[0].tokens]
    changed[1][3] += 1
    other = dataclasses.replace(drawn[0], tokens=tuple(changed))
    assert sameness(drawn[:1], [other]).unlike == 1
    cut = dataclasses.replace(drawn[0], tokens=(drawn[0].tokens[0][:-1], *drawn[0].tokens[1:]))
    assert sameness(drawn[:1], [cut]).unlike == 1
