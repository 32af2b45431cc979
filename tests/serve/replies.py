"""Greedy replies of two servers to the same prompts, and differences that rounding explains."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from rmsweb_jax.rl.remote.protocol import CHAT, Answer, Ask, chat_body
from tests.training.runs import largest_difference

CLIENTS = 4
# Two tokens whose log-probabilities are no further apart may change places by rounding.
TIE = 1e-3
# What is asked of vLLM alone: the two best tokens of each place, as numbers.
TWO_BEST = {"top_logprobs": 2, "return_tokens_as_token_ids": True}


@dataclasses.dataclass(frozen=True)
class Reply:
    """A reply.

    Attributes:
      best: log-probabilities of the likeliest tokens at each place, where they were asked for.
    """

    prompt_ids: list[int]
    tokens: list[int]
    log_probs: list[float]
    best: list[dict[int, float]]


@dataclasses.dataclass(frozen=True)
class Compared:
    """A server's replies compared with ours.

    Attributes:
      counts: prompts read the same and replies that are the same, of how many, and tokens compared.
      apart: largest difference of a log-probability, as far as the tokens are the same.
      different: a line about each reply that is another one.
      wrong: those of them that rounding does not explain, and prompts that were read otherwise.
    """

    counts: dict[str, int]
    apart: float
    different: list[str]
    wrong: list[str]


def ask_all(url: str, model: str, asks: Mapping[str, Ask], more: Mapping[str, Any]) -> dict[str, Reply]:
    """The replies by the ids of the prompts.

    Args:
      more: of the request.
    """

    def ask_one(ask: Ask) -> Reply:
        body = chat_body(dataclasses.replace(ask, policy=model)) | dict(more)
        response = httpx.post(url + CHAT, json=body, timeout=300).raise_for_status()
        answer = Answer.model_validate_json(response.content)
        (choice,) = answer.choices
        assert answer.prompt_token_ids is not None
        assert choice.token_ids is not None
        assert choice.logprobs is not None and choice.logprobs.content is not None
        log_probs = [one.logprob for one in choice.logprobs.content]
        places = response.json()["choices"][0]["logprobs"]["content"] if more else []
        best = [
            {int(one["token"].removeprefix("token_id:")): one["logprob"] for one in place["top_logprobs"]}
            for place in places
        ]
        return Reply(answer.prompt_token_ids, choice.token_ids, log_probs, best)

    with ThreadPoolExecutor(CLIENTS) as pool:
        return dict(zip(asks, pool.map(ask_one, asks.values()), strict=True))


def compare(
    name: str, asks: Mapping[str, Ask], ours: Mapping[str, Reply], theirs: Mapping[str, Reply]
) -> Compared:
    """Prompts by their tokens in training, replies by ours."""
    read, tokens, apart, different, wrong = 0, 0, 0.0, [], []
    for prompt_id, ask in asks.items():
        one, other = ours[prompt_id], theirs[prompt_id]
        if one.prompt_ids == other.prompt_ids == list(ask.prompt_tokens):
            read += 1
        else:
            wrong.append(f"{name}: {prompt_id}: another prompt was read")
        length = min(len(one.tokens), len(other.tokens))
        place = next((at for at in range(length) if one.tokens[at] != other.tokens[at]), length)
        tokens += place
        if place:
            apart = max(apart, largest_difference(one.log_probs[:place], other.log_probs[:place]))
        if one.tokens != other.tokens:
            gap = _gap(one, other, place)
            different.append(
                f"{name}: {prompt_id}: from token {place} on; its own is {gap:.1e} likelier than ours"
            )
            if gap > TIE:
                wrong.append(different[-1])
    counts = {"prompts": len(asks), "read_the_same": read, "the_same": len(asks) - len(different)}
    return Compared(counts | {"tokens": tokens}, apart, different, wrong)


def _gap(one: Reply, other: Reply, place: int) -> float:
    """Lead of the other's log-probability of its own token; infinite if it is not reported."""
    if place == min(len(one.tokens), len(other.tokens)):
        return math.inf
    best = other.best[place]
    return best[other.tokens[place]] - best.get(one.tokens[place], -math.inf)
