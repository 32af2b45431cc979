"""Any chat-completions endpoint as the actor: API models, inference servers, our own policy server."""

from __future__ import annotations

import base64
import time
from typing import Any

import httpx
from pydantic import BaseModel, ValidationError

from collection.llm.base import (
    ImageSource,
    Prices,
    ReflectionRequest,
    TeacherReply,
    TeacherRequest,
    TransientError,
    call_seed,
    with_retries,
)
from collection.llm.messages import reflection_messages
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import CallUsage, ImagePart, Message, Part

_TRANSIENT = frozenset((408, 409, 425, 429, 500, 502, 503, 504))


class _Content(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Content


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Completion(BaseModel):
    choices: list[_Choice]
    usage: _Usage | None = None


class ChatTeacher:
    """A model behind `POST {base_url}/chat/completions`.

    Args:
      base_url: up to and including the version, for example `http://127.0.0.1:8000/v1`.
      model: what the endpoint calls it; empty asks for whatever is served.
      name: for records; `model` by default.
      api_key: sent as a bearer token when not empty.
      json_mode: ask the endpoint for a JSON object (our own server knows no such option).
      first_wait_s: longest wait before the first retry.
    """

    def __init__(
        self,
        base_url: str,
        model: str = "",
        name: str = "",
        api_key: str = "",
        temperature: float = 1.0,
        max_tokens: int = 2048,
        timeout_s: float = 120.0,
        attempts: int = 5,
        prices: Prices | None = None,
        json_mode: bool = False,
        first_wait_s: float = 1.0,
    ):
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._settings: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens}
        if model:
            self._settings["model"] = model
        self._name = name or model
        self._json_mode = json_mode
        self._attempts, self._first_wait_s = attempts, first_wait_s
        self._prices = prices or Prices()
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.Client(timeout=timeout_s, headers=headers)

    @property
    def name(self) -> str:
        return self._name

    def reply(self, request: TeacherRequest) -> TeacherReply:
        chat = [_to_chat(message, request.images) for message in request.messages]
        seed = call_seed("reply", request.task_id, request.attempt, request.step)
        options = {"response_format": {"type": "json_object"}} if self._json_mode else {}
        return self._complete({"messages": chat, "seed": seed, **options})

    def reflect(self, request: ReflectionRequest) -> TeacherReply:
        chat = [{"role": message.role, "content": message.text} for message in reflection_messages(request)]
        return self._complete(
            {"messages": chat, "seed": call_seed("reflect", request.task_id, request.attempt)}
        )

    def _complete(self, body: dict[str, Any]) -> TeacherReply:
        start = time.monotonic()
        completion = with_retries(
            lambda: self._call(self._settings | body), self._url, self._attempts, self._first_wait_s
        )
        usage = completion.usage or _Usage()
        return TeacherReply(
            text=completion.choices[0].message.content or "",
            usage=CallUsage(
                prompt_tokens=usage.prompt_tokens,
                response_tokens=usage.completion_tokens,
                seconds=time.monotonic() - start,
                cost=self._prices.cost(usage.prompt_tokens, usage.completion_tokens),
            ),
        )

    def _call(self, body: dict[str, Any]) -> _Completion:
        try:
            response = self._client.post(self._url, json=body)
        except httpx.TransportError as error:
            raise TransientError(f"{type(error).__name__}: {error}") from error
        except httpx.InvalidURL as error:
            raise UserError(
                f"{self._url}: not a valid address ({error}); see config.actor.base_url"
            ) from error
        if response.status_code in _TRANSIENT and not _is_quota(response):
            raise TransientError(_reason(response), _retry_after(response))
        if response.status_code != 200:
            raise UserError(f"{self._url}: {_reason(response)}; {_remedy(response)}")
        try:
            completion = _Completion.model_validate_json(response.content)
        except ValidationError as error:
            raise UserError(
                f"{self._url}: the answer is no chat completion; see config.actor.base_url"
            ) from error
        if not completion.choices:
            raise TransientError("an answer without choices")
        return completion


def _to_chat(message: Message, images: ImageSource) -> dict[str, Any]:
    if all(part.type == "text" for part in message.content):
        return {"role": message.role, "content": message.text}
    return {"role": message.role, "content": [_to_part(part, images) for part in message.content]}


def _to_part(part: Part, images: ImageSource) -> dict[str, Any]:
    if not isinstance(part, ImagePart):
        return {"type": "text", "text": part.text}
    data = base64.b64encode(images.get(part.sha256)).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def _reason(response: httpx.Response) -> str:
    text = response.text
    try:
        error = response.json()["error"]
        text = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        pass  # Proxies and older servers answer with plain text.
    return f"status {response.status_code}: {' '.join(text.split())[:200]}"


def _is_quota(response: httpx.Response) -> bool:
    """An exhausted quota also comes as 429, but waiting does not help."""
    return response.status_code == 429 and "insufficient_quota" in response.text


def _remedy(response: httpx.Response) -> str:
    if response.status_code in (401, 403):
        return "check the API key"
    if response.status_code in (402, 429):
        return "the quota is used up: raise it or wait, then run the same command again"
    if response.status_code == 404:
        return "check config.actor.base_url and config.actor.model"
    return "check config.actor"


def _retry_after(response: httpx.Response) -> float | None:
    value = response.headers.get("retry-after", "")
    return float(value) if value.replace(".", "", 1).isdigit() else None
