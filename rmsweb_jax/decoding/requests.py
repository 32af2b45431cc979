"""What the engine is asked for and what it answers: its interface to RL, evaluation and serving."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float32, Int32

from rmsweb_jax.data.batching import Encodable
from rmsweb_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How the responses to a prompt are drawn; the defaults draw from the whole distribution.

    Attributes:
      num_samples: responses to the prompt; any number, lanes take them as they become free.
      max_response_tokens: a response is cut there and has no end token.
      temperature: 0 selects greedy decoding.
      top_p, top_k: restrict each draw to likely tokens; 1 and 0 switch them off.
      presence_penalty, frequency_penalty: subtracted from logits of tokens of the response so far.
      top_log_probs: number of most likely tokens that are reported with each token.
      ignore_eos: never draw the end token, so that each response has `max_response_tokens` (load tests).
    """

    num_samples: int = 1
    max_response_tokens: int = 2048
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_log_probs: int = 0
    ignore_eos: bool = False


@runtime_checkable
class Constraint(Protocol):
    """Decides which tokens may follow in one response (a grammar)."""

    def allowed(self, mask: Int32[np.ndarray, " words"]) -> None:
        """Writes the bits of the tokens that may follow, 32 a word, lowest bit first."""
        ...

    def take(self, tokens: Sequence[int]) -> None:
        """Consumes tokens that were drawn."""
        ...


@dataclasses.dataclass(eq=False)
class Request:
    """A prompt to which responses are drawn.

    Attributes:
      prompt: encoded when its prefill begins or before, by the processes that need it.
      seed, prompt_id: with the index of a sample they determine its random numbers; taken modulo 2**32.
      adapter: slot of the adapters to use, see `Engine.load_adapters`; 0 is the model without adapters.
      constrain: makes the constraint of each sample; None draws freely.
      host: the process that reads the prompt, one of `Engine.hosts`; None lets the engine choose.
    """

    prompt: Encodable
    sampling: Sampling
    seed: int = 0
    prompt_id: int = 0
    adapter: int = 0
    constrain: Callable[[], Constraint] | None = None
    host: int | None = None


@dataclasses.dataclass(frozen=True)
class TopTokens:
    """The most likely tokens at one place of a response, most likely first."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Tokens that one step of the engine has drawn for a sample.

    Attributes:
      sample: index among the request's responses.
      tokens: with the end token.
      log_probs: of the tokens under the model at the sampling temperature (at 1 for greedy decoding), before
        any restriction, as the training forward computes them.
      versions: version of the adapters that drew each token; earlier ones may have read the prompt.
      top: the most likely tokens at each place, if the request asks for them.
      finish: "stop" after the end token, "length" at the limit, "error" if `error` says why; else None.
    """

    request: Request
    sample: int
    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    versions: tuple[int, ...] = ()
    top: tuple[TopTokens, ...] = ()
    finish: str | None = None
    error: str = ""


@dataclasses.dataclass(frozen=True)
class Responses:
    """All responses to one prompt.

    Attributes:
      tokens: for each sample, with the end token.
      log_probs: for each sample, as the sampler computed them.
      truncated: True where a response has no end token within the limit.
      versions: for each sample, the version of the policy that drew each token; at an endpoint, that which
        the request was sent to.
    """

    tokens: tuple[Int32[np.ndarray, " _"], ...]
    log_probs: tuple[Float32[np.ndarray, " _"], ...]
    truncated: Bool[np.ndarray, " samples"]
    versions: tuple[Int32[np.ndarray, " _"], ...]


def join(drawn: Iterable[Drawn]) -> Iterator[tuple[Request, Responses]]:
    """Joins what is drawn; yields each request and its responses when all of them have ended.

    Raises:
      UserError: a response ended with an error.
    """
    parts: defaultdict[Request, defaultdict[int, list[Drawn]]] = defaultdict(lambda: defaultdict(list))
    for one in drawn:
        if one.finish == "error":
            name = one.request.prompt.sample_id
            raise UserError(f"{name}: {one.error.removeprefix(f'{name}: ')}")
        samples = parts[one.request]
        samples[one.sample].append(one)
        ended = sum(part[-1].finish is not None for part in samples.values())
        if ended == one.request.sampling.num_samples:
            yield one.request, _responses(parts.pop(one.request))


def _responses(parts: dict[int, list[Drawn]]) -> Responses:
    samples = [parts[sample] for sample in sorted(parts)]

    def joined(name: str, dtype: type) -> tuple[np.ndarray, ...]:
        return tuple(
            np.asarray([value for drawn in sample for value in getattr(drawn, name)], dtype)
            for sample in samples
        )

    return Responses(
        tokens=joined("tokens", np.int32),
        log_probs=joined("log_probs", np.float32),
        truncated=np.asarray([sample[-1].finish != "stop" for sample in samples]),
        versions=joined("versions", np.int32),
    )
