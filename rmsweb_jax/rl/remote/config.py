"""Settings of an inference server that generates the responses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import safe


@dataclasses.dataclass(frozen=True)
class EndpointConfig:
    """An inference server that generates the responses.

    Attributes:
      base_url: URL of the server, for example `http://10.0.0.7:8000`; a `/v1` at its end is ignored.
      protocol: that of the server: "vllm" (also our own server) or "sglang".
      model: the server's name for the model with which training began.
      adapter_folder: adapters are written below it, and what an earlier run has left there is removed; the
        server must see it under the same path.
      concurrency: largest number of prompts under way at once.
      timeout_s: seconds that the server may be silent; it must generate a whole response within them.
      retries: retries of a request after a temporary failure.
      api_key_env: environment variable that holds the API key; empty sends none.
      seeded: True sends seeds. Servers without a seed for each request (vLLM on TPU) refuse them; without
        seeds a run cannot be repeated.
      max_gap: largest mean difference between the sampler's and the trainer's probabilities of a token.
    """

    base_url: str = safe("")
    protocol: Literal["vllm", "sglang"] = "vllm"
    model: str = ""
    adapter_folder: str = ""
    concurrency: int = safe(64)
    timeout_s: float = safe(600.0)
    retries: int = safe(4)
    api_key_env: str = ""
    seeded: bool = True
    max_gap: float = 0.05

    def check(self) -> None:
        """Checks the values; not done on creation, because most runs have no endpoint.

        Raises:
          UserError: a value is missing or out of range.
        """
        if not self.base_url.startswith(("http://", "https://")):
            raise UserError(
                f"config.endpoint.base_url is {self.base_url!r}: give the server's address, such as "
                "http://127.0.0.1:8000"
            )
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
        """The URL without `/v1`."""
        return self.base_url.rstrip("/").removesuffix("/v1").rstrip("/")


def check_gap(metrics: Mapping[str, float], max_gap: float) -> None:
    """Stops a run whose sampler uses another policy than the one that is trained.

    Args:
      metrics: metrics of an iteration; `sampler/gap_mean` is the token mean of |exp(old) - exp(sampled)|.

    Raises:
      UserError: the gap is larger than `max_gap`, or not a number.
    """
    gap = metrics.get("sampler/gap_mean")
    # `not <=` instead of `>`, which is False for NaN.
    if gap is not None and not gap <= max_gap:
        raise UserError(
            f"the sampler's and the trainer's probabilities differ by {gap:.4f} a token, more than "
            f"config.endpoint.max_gap ({max_gap:g}): check that the server holds the same base weights in "
            "the same precision and gives log-probabilities at the sampling temperature, or raise it"
        )
