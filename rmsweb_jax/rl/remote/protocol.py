"""Requests to vLLM, or to our own server, for responses with their tokens, and the answers.

`POST /v1/chat/completions` with `return_token_ids` (vLLM 0.10.2 or newer), and vLLM's routes for adapters.
https://docs.vllm.ai/en/latest/serving/openai_compatible_server/
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from rmsweb_jax.decoding.requests import Sampling
from rmsweb_jax.records.schema import ImagePart, Message

CHAT = "/v1/chat/completions"
LOAD_ADAPTERS = "/v1/load_lora_adapter"
UNLOAD_ADAPTERS = "/v1/unload_lora_adapter"
# The lowest bias that the API allows; the token's probability is then practically 0 in float32.
_BAN = -100
# vLLM's value for a missing log-probability.
_MISSING = -9999.0


@dataclasses.dataclass(frozen=True)
class Ask:
    """A request for the responses to one prompt.

    Attributes:
      policy: name of the adapters at the server.
      messages: messages of the prompt.
      images: data URLs of the messages' images, in order.
      prompt_tokens: our tokens of the prompt, images expanded.
      seed: None lets the server choose.
      eos: the end token, which is part of a response.
      banned: tokens that are never drawn.
    """

    policy: str
    messages: Sequence[Message]
    images: Sequence[str]
    prompt_tokens: Sequence[int]
    sampling: Sampling
    seed: int | None
    eos: int
    banned: tuple[int, ...]


class _LogProb(BaseModel):
    logprob: float


class _LogProbs(BaseModel):
    content: list[_LogProb] | None = None


class Choice(BaseModel):
    """One response, as the server gives it.

    Attributes:
      finish_reason: "stop", "length", or the server's reason for an abort.
      stop_reason: the stop token, if the server names it.
    """

    index: int = 0
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None
    logprobs: _LogProbs | None = None


class _Usage(BaseModel):
    prompt_tokens: int


class Answer(BaseModel):
    """The responses to a prompt, and the server's tokens of the prompt, if it returns them."""

    choices: list[Choice] = Field(min_length=1)
    prompt_token_ids: list[int] | None = None
    usage: _Usage


def chat_body(ask: Ask) -> dict[str, Any]:
    """Makes the request for all responses to a prompt, which so travels once."""
    body = {
        "model": ask.policy,
        "messages": _chat(ask.messages, ask.images),
        "n": ask.sampling.num_samples,
        "max_tokens": ask.sampling.max_response_tokens,
        "temperature": ask.sampling.temperature,
        **chat_fields(ask.eos, ask.banned),
    }
    return body if ask.seed is None else body | {"seed": ask.seed}


def chat_fields(eos: int, banned: Sequence[int]) -> dict[str, Any]:
    """Makes the fields of a chat request with which replies are drawn freely and come with their tokens.

    All are written out: servers take missing ones from the model's generation config, and Qwen3-VL's limits
    sampling to a nucleus.
    """
    return {
        "logprobs": True,
        "return_token_ids": True,
        # Without it the end tokens of the model's generation config would end a response, too.
        "ignore_eos": True,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "stop_token_ids": [eos],
        "logit_bias": {str(token): _BAN for token in banned},
    }


def _chat(messages: Sequence[Message], images: Sequence[str]) -> list[dict[str, Any]]:
    """Converts messages to the protocol's form, with images in place."""
    urls = iter(images)
    chat = []
    for message in messages:
        parts = [
            {"type": "image_url", "image_url": {"url": next(urls)}}
            if isinstance(part, ImagePart)
            else {"type": "text", "text": part.text}
            for part in message.content
        ]
        has_image = any(isinstance(part, ImagePart) for part in message.content)
        chat.append({"role": message.role, "content": parts if has_image else message.text})
    return chat


class BadAnswerError(Exception):
    """The response cannot be trained on; the message says why and what to do."""


class Sample(NamedTuple):
    """One checked response; `truncated` means without an end token."""

    tokens: list[int]
    log_probs: list[float]
    truncated: bool


def check_answer(answer: Answer, ask: Ask, vocab_size: int) -> list[Sample]:
    """Checks the responses to a request, and returns them in order.

    A finished response must end with the end token. If the server leaves it out of the tokens but not out of
    the log-probabilities, it is added again. A response that ended by another token (some servers know
    further end tokens) counts as truncated.

    Raises:
      BadAnswerError: the server has other prompt tokens, a response, token or log-probability is missing or
        impossible, or a response was cut too early or continues too long.
    """
    # Otherwise the policy would be trained on another prompt than the one that it answered.
    _check_prompt(answer, ask.prompt_tokens)
    if len(answer.choices) != ask.sampling.num_samples:
        raise BadAnswerError(f"{len(answer.choices)} responses, not {ask.sampling.num_samples}")
    choices = sorted(answer.choices, key=lambda choice: choice.index)
    return [_check_choice(choice, ask, vocab_size) for choice in choices]


def _check_choice(choice: Choice, ask: Ask, vocab_size: int) -> Sample:
    tokens = choice.token_ids
    if tokens is None:
        raise BadAnswerError("the answer has no token ids; serve with vLLM 0.10.2 or newer")
    if choice.logprobs is None or choice.logprobs.content is None:
        raise BadAnswerError("the answer has no log-probabilities; let the server return them")
    log_probs = [entry.logprob for entry in choice.logprobs.content]
    if choice.finish_reason == "stop" and len(log_probs) == len(tokens) + 1 and ask.eos not in tokens:
        tokens = [*tokens, ask.eos]
    if len(tokens) != len(log_probs) or not tokens:
        raise BadAnswerError(
            f"{len(tokens)} tokens came with {len(log_probs)} log-probabilities; take another server version"
        )
    for token, value in zip(tokens, log_probs, strict=True):
        if not 0 <= token < vocab_size:
            raise BadAnswerError(
                f"token {token} is not in the vocabulary of {vocab_size}; serve the model of config.model"
            )
        if token in ask.banned:
            raise BadAnswerError(
                f"token {token} is banned and was drawn; take a server that honours logit_bias"
            )
        # Rounding may leave the log-probability of a certain token slightly above 0.
        if not _MISSING < value <= 1e-3 or not math.isfinite(value):
            raise BadAnswerError(f"{value} is not a log-probability; take another server version")
    return Sample(tokens, log_probs, _is_truncated(choice, tokens, ask))


def _check_prompt(answer: Answer, prompt: Sequence[int]) -> None:
    remedy = "give the server the same tokenizer, chat template and image sizes as config.model has"
    count, ids = answer.usage.prompt_tokens, answer.prompt_token_ids
    if count != len(prompt):
        raise BadAnswerError(f"{count} prompt tokens there, {len(prompt)} here; {remedy}")
    if ids is not None and ids != list(prompt):
        pairs = zip(ids, prompt, strict=False)
        place = next((place for place, (there, here) in enumerate(pairs) if there != here), len(prompt))
        raise BadAnswerError(
            f"{len(ids)} prompt tokens there, {len(prompt)} here, other ones from place {place} on; {remedy}"
        )


def _is_truncated(choice: Choice, tokens: list[int], ask: Ask) -> bool:
    limit, reason = ask.sampling.max_response_tokens, choice.finish_reason or ""
    if ask.eos in tokens[:-1] or len(tokens) > limit:
        raise BadAnswerError(
            f"the response of {len(tokens)} tokens continues after its end token or the limit of {limit}; "
            "take a server that honours stop_token_ids and the token limit"
        )
    if tokens[-1] == ask.eos:
        return False
    # At the limit, or by another stop token than ours: the policy did not end its response.
    if (reason == "stop" and choice.stop_reason == tokens[-1]) or (
        reason == "length" and len(tokens) == limit
    ):
        return True
    if reason == "length":
        raise BadAnswerError(
            f"the response was cut after {len(tokens)} of {limit} tokens; raise the server's context length "
            "or lower config.max_response_tokens"
        )
    raise BadAnswerError(
        f"the response of {len(tokens)} tokens has no end token though its finish_reason is {reason!r}; let "
        "the server return the end token's log-probability"
    )
