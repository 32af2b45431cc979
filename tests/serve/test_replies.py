"""Replies of two servers: what is the same, what a tie explains, and what it does not."""

import math

import pytest

from rmsweb_jax.decoding.requests import Sampling
from rmsweb_jax.rl.remote.protocol import Ask
from tests.serve.replies import TIE, Reply, compare

PROMPT = [1, 2]
ASKS = {"p": Ask("", (), (), PROMPT, Sampling(1, 8, 0.0), None, 9, ())}
OURS = {"p": Reply(PROMPT, [5, 6, 9], [-0.1, -0.7, -0.2], [])}


def theirs(tokens: list[int], second: dict[int, float], prompt: list[int] = PROMPT) -> dict[str, Reply]:
    """A reply of 5 tokens, and log-probabilities of the two best at the next one."""
    best = [{5: -0.1, 4: -3.0}, second, {9: -0.2, 4: -3.0}]
    return {"p": Reply(prompt, tokens, [-0.1, -0.7, -0.25][: len(tokens)], best[: len(tokens)])}


def test_the_same_reply_is_compared_to_its_end():
    found = compare("x", ASKS, OURS, theirs([5, 6, 9], {6: -0.7, 7: -0.8}))
    assert found.counts == {"prompts": 1, "read_the_same": 1, "the_same": 1, "tokens": 3}
    assert found.apart == pytest.approx(0.05)
    assert (found.different, found.wrong) == ([], [])


@pytest.mark.parametrize(
    ("second", "gap", "wrong"),
    [
        ({7: -0.7, 6: -0.7 - TIE / 2}, TIE / 2, False),
        ({7: -0.7, 6: -0.7 - TIE * 2}, TIE * 2, True),
        ({7: -0.7, 8: -0.7}, math.inf, True),
    ],
)
def test_another_token_is_wrong_unless_ours_was_as_likely(second, gap, wrong):
    found = compare("x", ASKS, OURS, theirs([5, 7, 9], second))
    assert found.counts == {"prompts": 1, "read_the_same": 1, "the_same": 0, "tokens": 1}
    assert found.different == [f"x: p: from token 1 on; its own is {gap:.1e} likelier than ours"]
    assert found.wrong == (found.different if wrong else [])


def test_a_reply_that_ends_sooner_is_wrong():
    assert compare("x", ASKS, OURS, theirs([5, 6], {6: -0.7, 7: -0.8})).wrong


def test_a_prompt_of_other_tokens_is_wrong():
    found = compare("x", ASKS, OURS, theirs([5, 6, 9], {6: -0.7, 7: -0.8}, prompt=[1, 3]))
    assert found.wrong == ["x: p: another prompt was read"]
