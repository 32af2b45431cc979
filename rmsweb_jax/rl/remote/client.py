"""HTTP calls to an inference server: limited in number, and retried after temporary failures."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Mapping
from typing import Any, Literal

import httpx
import orjson
import tenacity
from pydantic import BaseModel, ValidationError

from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import safe


@dataclasses.dataclass(frozen=True)
class EndpointConfig:
    """An inference server that generates the responses.

    Attributes:
      base_url: URL of the server, for example `http://10.0.0.7:8000`; a `/v1` at its end is ignored.
      protocol: that of the server: "vllm" (also our own server) or "sglang".
      model: the server's name for the model with which training began.
      adapter_folder: adapters are written below it; the server must see it under the same path.
      concurrency: largest number of requests at once.
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


# HTTP statuses of temporary failures: time-outs, rate limits, overload, a server that is starting.
_PASSING = frozenset((408, 409, 425, 429, 500, 502, 503, 504))
_MAX_WAIT_S = 60.0


class PassingError(Exception):
    """A call that may succeed on retry; `retry_after_s` is the server's Retry-After, if given."""

    def __init__(self, message: str, retry_after_s: float | None = None):
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RefusedError(UserError):
    """The server refused the call; `status` is its HTTP status."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


class Client:
    """HTTP client of one server; must be used in one event loop.

    Args:
      first_wait_s: longest wait before the first retry; doubles with each retry, up to a minute.

    Raises:
      UserError: the environment variable of the API key is not set.
    """

    def __init__(self, config: EndpointConfig, first_wait_s: float):
        headers = {"Content-Type": "application/json"}
        if config.api_key_env:
            key = os.environ.get(config.api_key_env)
            if not key:
                raise UserError(
                    f"config.endpoint.api_key_env: {config.api_key_env} is not set; export the server's key"
                )
            headers["Authorization"] = f"Bearer {key}"
        self._root, self._attempts = config.root, config.retries + 1
        self._backoff = tenacity.wait_random_exponential(multiplier=first_wait_s, max=_MAX_WAIT_S)
        self._gate = asyncio.Semaphore(config.concurrency)
        # The semaphore limits the requests. A limit on connections would count waiting for one as a time-out.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=config.concurrency)
        self._http = httpx.AsyncClient(timeout=config.timeout_s, headers=headers, limits=limits)

    async def close(self) -> None:
        await self._http.aclose()

    async def models(self) -> list[str]:
        """Returns the names of the served models, adapters included.

        Raises:
          UserError: as `call`, or the answer is not a list of models.
        """
        path = "/v1/models"
        try:
            served = _Models.model_validate_json(await self.call(path))
        except ValidationError as error:
            raise UserError(not_understood(self._root + path, error)) from None
        return [model.id for model in served.data]

    async def call(
        self, path: str, body: dict[str, Any] | None = None, *, attempts: int | None = None
    ) -> bytes:
        """POSTs `body`, or GETs without a body; returns the content of an answer with status 200.

        Args:
          attempts: largest number of calls; by default as configured.

        Raises:
          RefusedError: the server refuses the call.
          UserError: the server does not answer, or still fails after the last attempt.
        """
        url, attempts = self._root + path, attempts or self._attempts
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(PassingError),
            stop=tenacity.stop_after_attempt(attempts),
            wait=self._wait,
            reraise=True,
        )
        content = None if body is None else orjson.dumps(body)
        async with self._gate:
            try:
                return await retrying(self._once, url, content)
            except PassingError as error:
                raise UserError(
                    f"{url}: no answer after {attempts} calls ({' '.join(str(error).split())}); check "
                    "config.endpoint.base_url and that the server is up, then run the same command again"
                ) from error

    def _wait(self, state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        wished = error.retry_after_s if isinstance(error, PassingError) else None
        return self._backoff(state) if wished is None else min(wished, _MAX_WAIT_S)

    async def _once(self, url: str, content: bytes | None) -> bytes:
        try:
            response = await self._http.request("GET" if content is None else "POST", url, content=content)
        except httpx.TransportError as error:
            raise PassingError(f"{type(error).__name__} {error}") from error
        except httpx.InvalidURL as error:
            raise UserError(f"{url}: not a valid address ({error}); see config.endpoint.base_url") from error
        if response.status_code in _PASSING:
            raise PassingError(_reason(response), _retry_after(response))
        if response.status_code != 200:
            message = f"{url}: {_reason(response)}; {_remedy(response.status_code)}"
            raise RefusedError(message, response.status_code)
        return response.content


class _Model(BaseModel):
    id: str


class _Models(BaseModel):
    data: list[_Model]


def not_understood(url: str, error: ValidationError) -> str:
    """Writes the error line for an answer of an unexpected form."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    return (
        f"{url}: the answer is not understood ({where}: {first['msg']}); check config.endpoint.base_url and "
        "config.endpoint.protocol"
    )


def _reason(response: httpx.Response) -> str:
    text = response.text
    try:
        answer = response.json()
        # `error` is vLLM's and OpenAI's key, `error_message` SGLang's.
        error = answer.get("error", answer.get("error_message", answer))
        text = str(error["message"] if isinstance(error, dict) and "message" in error else error)
    except (ValueError, AttributeError):
        pass  # Proxies answer with plain text.
    return f"status {response.status_code}: {' '.join(text.split())[:300]}"


def _remedy(status: int) -> str:
    if status in (401, 403):
        return "check the API key (config.endpoint.api_key_env)"
    if status == 404:
        return (
            "check config.endpoint, and that the server lets adapters be loaded (vLLM: --enable-lora and "
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1; SGLang: --enable-lora; ours: --config.allow_adapters=True)"
        )
    return "check config.endpoint and the server's settings"


def _retry_after(response: httpx.Response) -> float | None:
    value = response.headers.get("retry-after", "")
    return float(value) if value.replace(".", "", 1).isdigit() else None
