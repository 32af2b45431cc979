"""Whole responses out of the engine's reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Bool, Float32, Int32

from rmsweb_jax.decoding.engine import Engine
from rmsweb_jax.decoding.requests import Drawn, PromptScores, Request
from rmsweb_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Responses:
    """All responses to one prompt.

    Attributes:
      tokens: for each sample, with the end token.
      log_probs: for each sample, as the sampler computed them.
      truncated: True where a response has no end token within the limit.
      versions: for each sample, the version of the policy that drew each token.
    """

    tokens: tuple[Int32[np.ndarray, " _"], ...]
    log_probs: tuple[Float32[np.ndarray, " _"], ...]
    truncated: Bool[np.ndarray, " samples"]
    versions: tuple[Int32[np.ndarray, " _"], ...]


class Collector:
    """Joins reports until all responses of a request have ended."""

    def __init__(self) -> None:
        self._parts: dict[Request, dict[int, list[Drawn]]] = {}

    def take(self, reports: Iterable[Drawn | PromptScores]) -> list[tuple[Request, Responses]]:
        """Adds reports; returns the requests that are complete, in order of completion.

        Raises:
          UserError: a response ended with an error.
        """
        complete = []
        for report in reports:
            if isinstance(report, PromptScores):
                continue
            if report.finish == "error":
                name = report.request.prompt.sample_id
                raise UserError(f"{name}: {report.error.removeprefix(f'{name}: ')}")
            parts = self._parts.setdefault(report.request, {})
            parts.setdefault(report.sample, []).append(report)
            ended = [drawn[-1].finish is not None for drawn in parts.values()]
            if len(ended) == report.request.sampling.num_samples and all(ended):
                complete.append((report.request, _joined(self._parts.pop(report.request))))
        return complete

    def drop(self, request: Request) -> None:
        """Forgets a request that was cancelled."""
        self._parts.pop(request, None)


def _joined(parts: dict[int, list[Drawn]]) -> Responses:
    samples = [parts[sample] for sample in sorted(parts)]

    def join(name: str, dtype: type) -> tuple[np.ndarray, ...]:
        return tuple(
            np.asarray([value for drawn in sample for value in getattr(drawn, name)], dtype)
            for sample in samples
        )

    return Responses(
        tokens=join("tokens", np.int32),
        log_probs=join("log_probs", np.float32),
        truncated=np.asarray([sample[-1].finish != "stop" for sample in samples]),
        versions=join("versions", np.int32),
    )


def generate(engine: Engine, requests: Sequence[Request]) -> list[Responses]:
    """Draws all responses to the requests; returns them in order.

    Raises:
      UserError: a request does not fit the engine, or a response ended with an error.
    """
    for request in requests:
        engine.add(request)
    collector, found = Collector(), {}
    while engine.busy:
        found |= dict(collector.take(engine.advance()))
    return [found[request] for request in requests]
