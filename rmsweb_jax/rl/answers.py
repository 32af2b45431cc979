"""What a server's response must be before it is trained on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rmsweb_jax.rl.dialects import Answer
from rmsweb_jax.sampling import Sampling

# What vLLM writes for a log-probability that it does not have.
_MISSING = -9999.0


class BadAnswerError(Exception):
    """The response cannot be trained on; the message says why and what to do."""


class Sample(NamedTuple):
    """One checked response: its tokens, their log-probabilities, and whether it has no end token."""

    tokens: list[int]
    log_probs: list[float]
    truncated: bool


def check_answer(answer: Answer, prompt: Sequence[int], sampling: Sampling, vocab_size: int) -> Sample:
    """Compares a response with what was asked for.

    A response that the server says is finished must end with the end token. Where the server leaves that
    out of the tokens but not out of the log-probabilities, it is put back; a response that another token has
    ended (some servers know further ones) counts as truncated.

    Args:
      prompt: our tokens of it, images expanded.

    Raises:
      BadAnswerError: the prompt has other tokens there, a token or log-probability is missing or impossible,
        or the response was cut or goes on where it must not.
    """
    _check_prompt(answer, prompt)
    tokens, log_probs = answer.tokens, answer.log_probs
    if tokens is None:
        raise BadAnswerError("the answer has no token ids; serve with vLLM 0.10.2 or newer, or SGLang")
    if log_probs is None:
        raise BadAnswerError("the answer has no log-probabilities; let the server return them")
    finished = answer.finish_reason == "stop"
    if finished and len(log_probs) == len(tokens) + 1 and sampling.eos not in tokens:
        tokens = [*tokens, sampling.eos]
    if len(tokens) != len(log_probs) or not tokens:
        raise BadAnswerError(
            f"{len(tokens)} tokens came with {len(log_probs)} log-probabilities; take another server version"
        )
    _check_values(tokens, log_probs, sampling, vocab_size)
    return Sample(tokens, log_probs, _is_truncated(answer, tokens, sampling))


def _check_prompt(answer: Answer, prompt: Sequence[int]) -> None:
    remedy = "give the server the same tokenizer, chat template and image sizes as config.model has"
    if answer.prompt_tokens != len(prompt):
        raise BadAnswerError(f"{answer.prompt_tokens} prompt tokens there, {len(prompt)} here; {remedy}")
    if answer.prompt_ids is not None and answer.prompt_ids != list(prompt):
        pairs = zip(answer.prompt_ids, prompt, strict=False)
        place = next((place for place, (there, here) in enumerate(pairs) if there != here), len(prompt))
        raise BadAnswerError(
            f"{len(answer.prompt_ids)} prompt tokens there, {len(prompt)} here, other ones from place "
            f"{place} on; {remedy}"
        )


def _check_values(tokens: list[int], log_probs: list[float], sampling: Sampling, vocab_size: int) -> None:
    for token in tokens:
        if not 0 <= token < vocab_size:
            raise BadAnswerError(
                f"token {token} is not in the vocabulary of {vocab_size}; serve the model of config.model"
            )
    banned = set(sampling.banned).intersection(tokens)
    if banned:
        raise BadAnswerError(
            f"token {min(banned)} is banned and was drawn; take a server that honours logit_bias"
        )
    for value in log_probs:
        if not _MISSING < value <= 1e-3 or not math.isfinite(value):
            raise BadAnswerError(f"{value} is no log-probability; take another server version")


def _is_truncated(answer: Answer, tokens: list[int], sampling: Sampling) -> bool:
    limit, ended = sampling.max_response_tokens, tokens[-1] == sampling.eos
    if sampling.eos in tokens[:-1] or len(tokens) > limit:
        raise BadAnswerError(
            f"the response of {len(tokens)} tokens goes on after its end token or the limit of {limit}; take "
            "a server that honours stop_token_ids and the token limit"
        )
    if ended:
        return False
    if answer.finish_reason == "stop" and answer.matched == tokens[-1]:
        return True
    if answer.finish_reason == "length" and len(tokens) == limit:
        return True
    if answer.finish_reason == "length":
        raise BadAnswerError(
            f"the response was cut after {len(tokens)} of {limit} tokens; raise the server's context length "
            "or lower config.max_response_tokens"
        )
    raise BadAnswerError(
        f"the response of {len(tokens)} tokens has no end token though its finish_reason is "
        f"{answer.finish_reason!r}; let the server return the end token's log-probability"
    )
