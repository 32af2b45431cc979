import dataclasses

import numpy as np
import pytest

from rmsweb_jax.decoding.generator import Generator
from rmsweb_jax.decoding.sampler import PromptShapes, Sampler, SamplingParams
from rmsweb_jax.training.mesh import make_mesh
from tests.qwen3_vl.random_models import random_model
from tests.sft.conftest import make_example
from tests.tiny import TINY

CONFIG = dataclasses.replace(TINY, text=dataclasses.replace(TINY.text, num_hidden_layers=1))
EOS = 7
SAMPLING = SamplingParams(
    num_samples=6, max_response_tokens=5, temperature=1.0, eos=EOS, banned=(60, 61, 62, 63)
)
EXAMPLES = [make_example(number, 8 + 2 * number, 3, number != 2) for number in range(5)]
SEEDS = [3, 1, 4, 1, 5]


@pytest.fixture(scope="module")
def policy() -> Generator:
    return Generator(random_model(CONFIG, embedding_std=0.2))


@pytest.fixture(scope="module")
def sampler() -> Sampler:
    shapes = PromptShapes(rows=2, widths=(16,), images=1, window=8)
    return Sampler(CONFIG, shapes, make_mesh())


def tokens(drawn) -> list[list[int]]:
    return [part.tolist() for responses in drawn for part in responses.tokens]


def test_responses_end_with_the_end_token_or_are_truncated(policy, sampler):
    drawn = sampler.generate(policy, EXAMPLES, SEEDS, SAMPLING)
    assert len(drawn) == 5 and all(len(responses.tokens) == 6 for responses in drawn)
    truncated = []
    for responses in drawn:
        for part, log_probs, cut in zip(
            responses.tokens, responses.log_probs, responses.truncated, strict=True
        ):
            assert 1 <= len(part) == len(log_probs) <= 5 and (log_probs < 0).all()
            assert EOS not in part[:-1] and (part[-1] == EOS) == (not cut) and (len(part) == 5 or not cut)
            assert not set(part.tolist()) & set(SAMPLING.banned)
            truncated.append(cut)
    assert 0 < np.mean(truncated) < 1


def test_a_response_depends_on_its_prompt_and_seed_alone(policy, sampler):
    drawn = tokens(sampler.generate(policy, EXAMPLES, SEEDS, SAMPLING))
    backwards = sampler.generate(policy, EXAMPLES[::-1], SEEDS[::-1], SAMPLING)
    assert tokens(backwards[::-1]) == drawn
    other_target = dataclasses.replace(
        EXAMPLES[3], tokens=np.concatenate([EXAMPLES[3].tokens[:-3], np.ones(9, np.int32)])
    )
    assert tokens(sampler.generate(policy, [other_target], [SEEDS[3]], SAMPLING)) == drawn[18:24]
    assert tokens(sampler.generate(policy, [other_target], [99], SAMPLING)) != drawn[18:24]
