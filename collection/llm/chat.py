"""Models behind a chat-completions endpoint (APIs, vLLM, our policy server), through the openai client."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import httpx2
import openai
from pydantic import BaseModel, ValidationError

from collection.llm.http import (
    HttpClient,
    error_details,
    is_about_this_request,
    one_line,
    retry_after,
    transport_error,
)
from collection.llm.model import ImageSource, ModelReply, ModelRequest, Structured, TransientError
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import CallUsage, ImagePart, Message, Part

# Timeouts, conflicts, rate limits, and server or gateway errors: a retry may succeed.
_TRANSIENT = frozenset((408, 409, 425, 429, 500, 502, 503, 504))


class _ResponseMessage(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _CompletionChoice(BaseModel):
    message: _ResponseMessage
    finish_reason: str | None = None


class _PromptTokenDetails(BaseModel):
    cached_tokens: int | None = None


class _CompletionUsage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _PromptTokenDetails | None = None


class _Completion(BaseModel):
    choices: list[_CompletionChoice]
    usage: _CompletionUsage | None = None


class ChatModel:
    """A model behind `POST {base_url}/chat/completions`.

    Args:
      base_url: address up to and including the version, for example `http://127.0.0.1:8000/v1`.
      model: the endpoint's name of the model; if empty, no model is named in requests.
      name: name in records; `model` by default.
      api_key: sent as a bearer token if not empty.
      max_tokens: maximum length of a response.
      timeout_s: timeout of a call.
      structured: how answers are constrained to a request's schema; `off` sends no constraint.
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
        structured: Structured = "off",
    ):
        self._settings: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens}
        if model:
            self._settings["model"] = model
        self._name, self._max_tokens = name or model, max_tokens
        self._structured: Structured = structured
        self._headers = {} if api_key else {"Authorization": openai.omit}
        self._url = base_url.rstrip("/") + "/chat/completions"
        try:
            self._client = openai.OpenAI(
                base_url=base_url,
                # With no key the client would send the one that it finds in the environment.
                api_key=api_key or "none",
                max_retries=0,
                http_client=HttpClient(timeout_s),
                timeout=timeout_s,
            )
        except httpx2.InvalidURL as error:
            raise self._invalid(error) from error

    @property
    def name(self) -> str:
        return self._name

    def complete(self, request: ModelRequest) -> ModelReply:
        chat = [_to_chat(message, request.images) for message in request.messages]
        body = self._settings | {"messages": chat, "seed": request.seed} | self._format(request)
        try:
            # The raw response, because the client's own types accept any JSON as a completion.
            response = self._client.post(
                "/chat/completions", body=body, cast_to=httpx2.Response, options={"headers": self._headers}
            )
        except openai.APIStatusError as error:
            return self._handle_status(error)
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, httpx2.TransportError):
                if isinstance(error.__cause__, httpx2.UnsupportedProtocol):
                    raise self._invalid(error.__cause__) from error
                raise transport_error(self._url, error.__cause__) from error
            raise self._invalid(error.__cause__ or error) from error
        except httpx2.InvalidURL as error:
            raise self._invalid(error) from error
        return self._read(response)

    def _format(self, request: ModelRequest) -> dict[str, Any]:
        if request.schema is None or self._structured == "off":
            return {}
        if self._structured == "json":
            return {"response_format": {"type": "json_object"}}
        schema = {"name": request.purpose, "schema": request.schema}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}

    def _read(self, response: httpx2.Response) -> ModelReply:
        try:
            completion = _Completion.model_validate_json(response.content)
        except ValidationError as error:
            raise UserError(
                f"{self._url}: the answer is not a chat completion; check config.actor.base_url"
            ) from error
        if not completion.choices:
            raise TransientError(f"{self._url}: an answer without choices")
        choice, usage = completion.choices[0], completion.usage or _CompletionUsage()
        details = usage.prompt_tokens_details
        return ModelReply(
            text=choice.message.content or "",
            usage=CallUsage(prompt_tokens=usage.prompt_tokens, response_tokens=usage.completion_tokens),
            problem=self._problem(choice),
            cached_tokens=(details and details.cached_tokens) or 0,
        )

    def _problem(self, choice: _CompletionChoice) -> str:
        if choice.finish_reason == "length":
            return f"the reply was cut off after {self._max_tokens} tokens"
        if choice.finish_reason == "content_filter":
            return "the reply was blocked: content_filter"
        if choice.message.refusal:
            return one_line(f"the model refused: {choice.message.refusal}")
        return "" if (choice.message.content or "").strip() else "the reply holds no text"

    def _handle_status(self, error: openai.APIStatusError) -> ModelReply:
        """Raises for an error status; returns a reply with a problem if only this request is at fault."""
        status, body = error.status_code, _json(error.response)
        message = one_line(_message(body) or error.response.text)
        reason = f"{self._url}: status {status}: {message}"
        if status in _TRANSIENT and not _is_quota(error.response.text, body):
            raise TransientError(reason, retry_after(error.response.headers, body, time.time())) from error
        if is_about_this_request(status, message):
            return ModelReply("", problem=f"the model refused the request: status {status}: {message}")
        raise UserError(f"{reason}; {_remedy(status, message)}") from error

    def _invalid(self, error: BaseException) -> UserError:
        return UserError(
            f"{self._url}: not a valid address ({one_line(str(error))}); check config.actor.base_url"
        )


def _to_chat(message: Message, images: ImageSource | None) -> dict[str, Any]:
    # Plain strings, because not all text-only endpoints accept lists of parts.
    if all(part.type == "text" for part in message.content):
        return {"role": message.role, "content": message.text}
    return {"role": message.role, "content": [_to_part(part, images) for part in message.content]}


def _to_part(part: Part, images: ImageSource | None) -> dict[str, Any]:
    if not isinstance(part, ImagePart):
        return {"type": "text", "text": part.text}
    assert images is not None
    data = base64.b64encode(images.get(part.sha256)).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def _json(response: httpx2.Response) -> Any:
    try:
        return json.loads(response.content)
    except ValueError:
        return None  # Proxies and older servers send plain text.


def _message(body: Any) -> str:
    first = body[0] if isinstance(body, list) and body else body
    error = first.get("error") if isinstance(first, dict) else None
    return str(error.get("message", "") if isinstance(error, dict) else error or "")


def _is_quota(text: str, body: Any) -> bool:
    """Returns True for an exhausted quota, which has status 429 as well, but which waiting does not help."""
    # OpenAI's error code, and the quota id of Google's OpenAI-compatible endpoint.
    return "insufficient_quota" in text or "PerDay" in str(list(error_details(body)))


def _remedy(status: int, message: str) -> str:
    if status in (401, 403) or "API key" in message:
        return "check the API key"
    if status in (402, 429):
        return "the quota is used up: raise it or wait, then run the same command again"
    if status == 404:
        return "check config.actor.base_url and config.actor.model"
    if "response_format" in message or "schema" in message.lower():
        return "this endpoint does not support the schema: set config.actor.structured=json or off"
    return "check config.actor"
