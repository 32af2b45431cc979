"""HTTP calls to an inference server: bounded in number, and repeated after passing failures."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import httpx
import orjson
import tenacity
from pydantic import BaseModel, ValidationError

from rmsweb_jax.errors import UserError
from rmsweb_jax.rl.endpoint import EndpointConfig

_PASSING = frozenset((408, 409, 425, 429, 500, 502, 503, 504))
_MAX_WAIT_S = 60.0


class PassingError(Exception):
    """A call that may work if made again; `retry_after_s` is the server's own wish, if it told one."""

    def __init__(self, message: str, retry_after_s: float | None = None):
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RefusedError(UserError):
    """The server answered that it will not; `status` tells how."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


class Client:
    """Calls one server; to be used in one event loop.

    Args:
      first_wait_s: longest wait before the first retry; doubles each time, up to a minute.

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
        # What waits is counted above: nothing waits for a connection.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=config.concurrency)
        self._http = httpx.AsyncClient(timeout=config.timeout_s, headers=headers, limits=limits)

    async def close(self) -> None:
        await self._http.aclose()

    async def models(self) -> list[str]:
        """What the server serves, adapters included.

        Raises:
          UserError: as `call`, or the answer is no list of models.
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
        """POSTs `body`, or GETs when there is none; returns what was answered with status 200.

        Args:
          attempts: calls at most; by default as configured.

        Raises:
          RefusedError: the server will not.
          UserError: it does not answer, or still fails after the last attempt.
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
    """The line about an answer of another form."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    return (
        f"{url}: the answer is not understood ({where}: {first['msg']}); check config.endpoint.base_url and "
        "config.endpoint.dialect"
    )


def _reason(response: httpx.Response) -> str:
    text = response.text
    try:
        answer = response.json()
        # vLLM and OpenAI; SGLang.
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
