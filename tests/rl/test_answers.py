import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsweb_jax.decoding.requests import Sampling
from rmsweb_jax.rl.remote.protocol import Answer, Ask, BadAnswerError, check_answer

EOS, BANNED, OTHER_END, VOCAB, LIMIT = 9, 8, 7, 10, 4
PROMPT = [1, 2, 3]
ASK = Ask("", (), (), PROMPT, Sampling(1, LIMIT), None, EOS, (BANNED,))
GOOD: dict[str, Any] = {
    "prompt_tokens": 3,
    "prompt_ids": PROMPT,
    "tokens": [4, 5, EOS],
    "log_probs": [-1.0, -2.0, -0.5],
    "finish_reason": "stop",
    "matched": EOS,
}


def check(**changes):
    values = GOOD | changes
    log_probs = values["log_probs"]
    choice = {
        "token_ids": values["tokens"],
        "logprobs": None if log_probs is None else {"content": [{"logprob": value} for value in log_probs]},
        "finish_reason": values["finish_reason"],
        "stop_reason": values["matched"],
    }
    usage = {"prompt_tokens": values["prompt_tokens"]}
    answer = {"choices": [choice], "prompt_token_ids": values["prompt_ids"], "usage": usage}
    (sample,) = check_answer(Answer.model_validate(answer), ASK, VOCAB)
    return sample


def test_a_finished_response():
    assert check() == ([4, 5, EOS], [-1.0, -2.0, -0.5], False)
    # Some servers tell how many tokens alone; vLLM names no stop token where it is the tokenizer's own.
    assert check(prompt_ids=None, matched=None) == check()


def test_an_end_token_that_was_left_out_is_put_back():
    assert check(tokens=[4, 5]) == check()


def test_what_has_no_end_token_is_truncated():
    full = {"tokens": [4, 5, 6, 4], "log_probs": [-1.0] * 4}
    assert check(**full, finish_reason="length", matched=None).truncated
    assert check(tokens=[4, 5, OTHER_END], matched=OTHER_END).truncated
    # The limit and the end at once.
    assert not check(finish_reason="length", matched=None).truncated


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"prompt_tokens": 4}, "4 prompt tokens there, 3 here"),
        ({"prompt_tokens": 4, "prompt_ids": None}, "4 prompt tokens there, 3 here"),
        ({"prompt_ids": [1, 2, 4]}, "other ones from place 2 on"),
        ({"prompt_ids": [1, 2]}, "2 prompt tokens there, 3 here, other ones from place 3 on"),
        ({"tokens": None}, "no token ids"),
        ({"log_probs": None}, "no log-probabilities"),
        ({"log_probs": []}, "3 tokens came with 0 log-probabilities"),
        ({"log_probs": [-1.0, -1.0]}, "3 tokens came with 2 log-probabilities"),
        ({"log_probs": [-1.0] * 4}, "3 tokens came with 4 log-probabilities"),
        ({"tokens": [4, 5], "finish_reason": "length"}, "2 tokens came with 3 log-probabilities"),
        ({"tokens": [], "log_probs": []}, "0 tokens came with 0"),
        ({"tokens": [4, VOCAB, EOS]}, "token 10 is not in the vocabulary"),
        ({"tokens": [4, -1, EOS]}, "token -1 is not in the vocabulary"),
        ({"tokens": [4, BANNED, EOS]}, "token 8 is banned and was drawn"),
        ({"log_probs": [-1.0, -9999.0, -1.0]}, "-9999.0 is not a log-probability"),
        ({"log_probs": [-1.0, math.nan, -1.0]}, "nan is not a log-probability"),
        ({"log_probs": [-1.0, 0.5, -1.0]}, "0.5 is not a log-probability"),
        ({"tokens": [EOS, 5, EOS]}, "continues after its end token"),
        ({"tokens": [4, 5, 4, 5, EOS], "log_probs": [-1.0] * 5}, "continues after .* the limit of 4"),
        ({"tokens": [4, 5, 6], "matched": None}, "no end token though its finish_reason is 'stop'"),
        ({"tokens": [4, 5, 6], "finish_reason": "abort"}, "no end token though its finish_reason is 'abort'"),
        ({"tokens": [4, 5, 6], "finish_reason": "length"}, "was cut after 3 of 4 tokens"),
    ],
)
def test_what_cannot_be_trained_on(changes, reason):
    with pytest.raises(BadAnswerError, match=reason) as raised:
        check(**changes)
    assert "\n" not in str(raised.value)


numbers = st.one_of(st.floats(-20, 0), st.sampled_from([math.nan, math.inf, -math.inf, -9999.0, 0.5]))
answers = st.builds(
    dict,
    prompt_tokens=st.integers(2, 4),
    prompt_ids=st.none() | st.lists(st.integers(1, 3), min_size=2, max_size=4) | st.just(PROMPT),
    tokens=st.none() | st.lists(st.integers(-1, VOCAB), max_size=LIMIT + 1),
    log_probs=st.none() | st.lists(numbers, max_size=LIMIT + 1),
    finish_reason=st.sampled_from(["stop", "length", "abort", ""]),
    matched=st.none() | st.integers(0, VOCAB) | st.just("x"),
)
finished = st.lists(st.integers(0, OTHER_END), max_size=LIMIT - 1).map(
    lambda tokens: GOOD | {"tokens": [*tokens, EOS], "log_probs": [-1.0] * (len(tokens) + 1)}
)


@given(answers | finished)
def test_what_passes_can_be_trained_on(answer):
    try:
        sample = check(**answer)
    except BadAnswerError:
        return
    assert answer["prompt_tokens"] == len(PROMPT) and answer["prompt_ids"] in (None, PROMPT)
    assert 1 <= len(sample.tokens) == len(sample.log_probs) <= LIMIT
    assert all(0 <= token < VOCAB and token != BANNED for token in sample.tokens)
    assert all(math.isfinite(value) and value < 0.01 for value in sample.log_probs)
    assert EOS not in sample.tokens[:-1]
    assert sample.truncated == (sample.tokens[-1] != EOS)


@given(finished)
def test_every_finished_response_passes(answer):
    assert check(**answer) == (answer["tokens"], answer["log_probs"], False)
