"""Settings of rollouts at an inference server, and the guard against a sampler that drifts away."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from rmsweb_jax.errors import UserError

DIALECTS = ("vllm", "sglang")


@dataclasses.dataclass(frozen=True)
class EndpointConfig:
    """An inference server that draws the responses.

    Attributes:
      base_url: of the server, for example `http://10.0.0.7:8000`; a `/v1` at its end is left out.
      dialect: "vllm" (also our own server) or "sglang".
      model: what the server calls the model that training began with.
      adapter_folder: adapters are written below it; the server must see it under the same path.
      concurrency: requests under way at once.
      timeout_s: seconds without a sign of the server; a whole response must be drawn within them.
      retries: further calls of a request that failed for a passing reason.
      api_key_env: environment variable that holds the API key; empty sends none.
      seeded: send seeds. Servers without seeds of their own for each request (vLLM on TPU) refuse them;
        without seeds a run cannot be repeated.
      max_gap: largest mean difference between the sampler's and the trainer's probabilities of a token.

    Raises:
      UserError: a value is missing or out of range.
    """

    base_url: str
    dialect: str
    model: str
    adapter_folder: str
    concurrency: int
    timeout_s: float
    retries: int
    api_key_env: str
    seeded: bool
    max_gap: float

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise UserError(
                f"config.endpoint.base_url is {self.base_url!r}: give the server's address, such as "
                "http://127.0.0.1:8000"
            )
        if self.dialect not in DIALECTS:
            known = ", ".join(DIALECTS)
            raise UserError(f"config.endpoint.dialect is {self.dialect!r}: use one of {known}")
        if not self.model:
            raise UserError("config.endpoint.model is empty: give the name under which the server lists it")
        if not self.adapter_folder:
            raise UserError(
                "config.endpoint.adapter_folder is empty: give a folder that the server sees under the same "
                "path"
            )
        for name, least in (("concurrency", 1), ("retries", 0)):
            if getattr(self, name) < least:
                value = getattr(self, name)
                raise UserError(f"config.endpoint.{name} is {value}: make it {least} or more")
        for name in ("timeout_s", "max_gap"):
            if not getattr(self, name) > 0:
                raise UserError(f"config.endpoint.{name} is {getattr(self, name)}: make it more than 0")

    @property
    def root(self) -> str:
        """Address without the version."""
        return self.base_url.rstrip("/").removesuffix("/v1").rstrip("/")


def check_gap(metrics: Mapping[str, float], max_gap: float) -> None:
    """Stops a run whose sampler draws from another policy than the one that is trained.

    Args:
      metrics: of an iteration; `sampler/gap_mean` is the mean of |exp(old) - exp(sampled)| over the tokens.

    Raises:
      UserError: it is larger than `max_gap`, or not a number.
    """
    gap = metrics.get("sampler/gap_mean")
    if gap is not None and not gap <= max_gap:
        raise UserError(
            f"the sampler's and the trainer's probabilities differ by {gap:.4f} a token, more than "
            f"config.endpoint.max_gap ({max_gap:g}): check that the server holds the same base weights in "
            "the same precision and gives log-probabilities at the sampling temperature, or raise it"
        )
