"""Models behind a chat-completions endpoint (APIs, vLLM, our policy server), through the openai client."""

from __future__ import annotations

import base64
import json
import re
import sys
import time
from collections.abc import Mapping
from typing import Any

import httpx2
import openai
from pydantic import BaseModel, ValidationError

from collection.llm.http import (
    HttpClient,
    is_about_this_request,
    is_quota,
    is_transient,
    one_line,
    retry_after,
    transport_error,
)
from collection.llm.model import (
    ImageSource,
    ModelReply,
    ModelRequest,
    ReasoningEffort,
    Structured,
    TransientError,
)
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import CallUsage, ImagePart, Message, Part, SampledTokens

# Endpoints differ in the parameters that they take. One that an endpoint refuses is sent under its other
# name, or not at all.
_OTHER_NAME = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
    "temperature": "",
    "seed": "",
}
# Wordings of OpenAI, Anthropic, LiteLLM and pydantic. A value out of range is refused in other words.
_UNSUPPORTED = re.compile(
    r"unsupported|n[o']t support|unrecognized|unknown|unexpected|not permitted|deprecated", re.IGNORECASE
)


class _ResponseMessage(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _LogProb(BaseModel):
    logprob: float


class _LogProbs(BaseModel):
    content: list[_LogProb] | None = None


class _CompletionChoice(BaseModel):
    message: _ResponseMessage
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    logprobs: _LogProbs | None = None


class _PromptTokenDetails(BaseModel):
    cached_tokens: int | None = None


class _CompletionUsage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int | None = None
    prompt_tokens_details: _PromptTokenDetails | None = None


class _Completion(BaseModel):
    model: str | None = None
    choices: list[_CompletionChoice]
    usage: _CompletionUsage | None = None


class ChatModel:
    """A model behind `POST {base_url}/chat/completions`.

    A parameter that the endpoint refuses is not sent again by this object; the refused call is repeated.

    Args:
      base_url: address up to and including the version, for example `http://127.0.0.1:8000/v1`.
      model: the endpoint's name of the model; if empty, no model is named in requests.
      name: name in records; `model` by default.
      api_key: sent as a bearer token if not empty.
      max_tokens: maximum length of a response.
      timeout_s: timeout of a call.
      structured: how answers are constrained to a request's schema; `off` sends no constraint.
      reasoning_effort: sent as it is, unless `auto`.
      extra_body: further fields of every request. With `logprobs` and vLLM's `return_token_ids` replies have
        their tokens.
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
        reasoning_effort: ReasoningEffort = "auto",
        extra_body: Mapping[str, Any] | None = None,
    ):
        # OpenAI's models that think refuse the older name of the limit; many other servers ignore the newer.
        openai_api = base_url.startswith("https://api.openai.com/")
        limit = "max_completion_tokens" if openai_api else "max_tokens"
        self._parameters: dict[str, Any] = {"temperature": temperature, limit: max_tokens}
        if model:
            self._parameters["model"] = model
        if reasoning_effort != "auto":
            self._parameters["reasoning_effort"] = reasoning_effort
        self._extra_body = dict(extra_body or {})
        self._refused: set[str] = set()
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
        body = {"messages": [_to_chat(message, request.images) for message in request.messages]}
        body = dict(request.chat) if request.chat is not None else body | self._format(request)
        while True:
            parameters = self._accepted({"seed": request.seed} | self._parameters)
            try:
                return self._read(self._post(parameters | self._extra_body | body))
            except openai.APIStatusError as error:
                if not self._is_refused(parameters, error):
                    return self._handle_status(error)

    def _post(self, body: dict[str, Any]) -> httpx2.Response:
        try:
            # The raw response, because the client's own types accept any JSON as a completion.
            return self._client.post(
                "/chat/completions", body=body, cast_to=httpx2.Response, options={"headers": self._headers}
            )
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, httpx2.TransportError):
                if isinstance(error.__cause__, httpx2.UnsupportedProtocol):
                    raise self._invalid(error.__cause__) from error
                raise transport_error(self._url, error.__cause__) from error
            raise self._invalid(error.__cause__ or error) from error
        except httpx2.InvalidURL as error:
            raise self._invalid(error) from error

    def _accepted(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Returns the parameters with those that the endpoint refuses renamed or left out."""
        names = {name: _OTHER_NAME[name] if name in self._refused else name for name in parameters}
        return {names[name]: value for name, value in parameters.items() if names[name]}

    def _is_refused(self, sent: dict[str, Any], error: openai.APIStatusError) -> bool:
        """Returns True if the endpoint refuses a parameter that can be changed; the next call changes it."""
        name = _refused_parameter(error) if error.status_code in (400, 422) else ""
        # Each change is made once, so that repeated calls come to an end.
        if name not in sent or _OTHER_NAME[name] in self._refused:
            return False
        # Another thread may have met it first.
        if name not in self._refused:
            self._refused.add(name)
            other = f"sends {_OTHER_NAME[name]}" if _OTHER_NAME[name] else "leaves it to the model"
            print(f"{self._url}: refuses {name}; this run {other}", file=sys.stderr, flush=True)
        return True

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
        # Some endpoints count thinking in the total alone.
        answered = max(usage.completion_tokens, (usage.total_tokens or 0) - usage.prompt_tokens)
        return ModelReply(
            text=choice.message.content or "",
            usage=CallUsage(prompt_tokens=usage.prompt_tokens, response_tokens=answered),
            problem=self._problem(choice),
            cached_tokens=(details and details.cached_tokens) or 0,
            model_version=completion.model or "",
            sampled=_sampled(choice, completion.model or ""),
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
        if is_transient(status) and not is_quota(error.response.text):
            raise TransientError(reason, retry_after(error.response.headers, body, time.time())) from error
        if is_about_this_request(status, message):
            return ModelReply("", problem=f"the model refused the request: status {status}: {message}")
        raise UserError(f"{reason}; {_remedy(status, error.response.text)}") from error

    def _invalid(self, error: BaseException) -> UserError:
        return UserError(
            f"{self._url}: not a valid address ({one_line(str(error))}); check config.actor.base_url"
        )


def _sampled(choice: _CompletionChoice, policy: str) -> SampledTokens | None:
    """Returns the tokens of a reply; None if the endpoint does not return all of them."""
    tokens, content = choice.token_ids, choice.logprobs.content if choice.logprobs else None
    if not tokens or content is None or len(content) != len(tokens):
        return None
    log_probs = tuple(one.logprob for one in content)
    return SampledTokens(tokens=tuple(tokens), log_probs=log_probs, policy=policy)


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


def _error(body: Any) -> Any:
    first = body[0] if isinstance(body, list) and body else body
    return first.get("error") if isinstance(first, dict) else None


def _message(body: Any) -> str:
    error = _error(body)
    return str(error.get("message", "") if isinstance(error, dict) else error or "")


def _refused_parameter(error: openai.APIStatusError) -> str:
    """Returns the parameter that an answer calls unsupported; "" if it names none that can be changed."""
    body = _json(error.response)
    text = _message(body) or error.response.text
    if not _UNSUPPORTED.search(text):
        return ""
    details = _error(body)
    named = details.get("param") if isinstance(details, dict) else None
    # The parameter comes first; advice on what to send instead comes after it.
    words = [named] if isinstance(named, str) else re.findall(r"\w+", text)
    return next((word for word in words if word in _OTHER_NAME), "")


def _remedy(status: int, message: str) -> str:
    if status in (401, 403) or "API key" in message:
        return "check the API key"
    if status in (402, 429) or is_quota(message):
        return "the quota is used up: raise it or wait, then run the same command again"
    if status == 404:
        return "check config.actor.base_url and config.actor.model"
    if "reasoning_effort" in message:
        return "this model does not take this config.actor.reasoning_effort"
    if "response_format" in message or "schema" in message.lower():
        return "this endpoint does not support the schema: set config.actor.structured=json or off"
    return "check config.actor"
