"""Models behind a chat-completions endpoint (APIs, vLLM, our policy server), through the openai client."""

from __future__ import annotations

import base64
import os
import re
import sys
from typing import Any

import httpx2
import openai
from openai.types.chat import ChatCompletion

from collection.llm.calls import BudgetError, Calls
from collection.llm.config import ModelConfig
from collection.llm.http import (
    HttpClient,
    is_about_this_request,
    is_quota,
    is_transient,
    one_line,
    remedy,
    takes_text_alone,
)
from collection.llm.model import ImageSource, Model, ModelReply, ModelRequest, TransientError
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import CallUsage, ImagePart, Message, Part, SampledTokens

# What an endpoint says of a `response_format` that it does not take.
_FORMAT = re.compile(r"response_format|json_schema|json_object|schema|grammar|structured", re.IGNORECASE)
_WEAKER = {"schema": "json", "json": "off"}


class ChatModel(Model):
    """A model behind `POST {base_url}/chat/completions`. Arguments as of `Model`.

    Attributes:
      constraint: how replies are held to their schema now: `schema`, `json` or `off`.
    """

    def __init__(self, config: ModelConfig, calls: Calls | None = None):
        super().__init__(config, calls)
        adapters = getattr(config, "adapters", "")
        self.name = adapters or config.model
        self.constraint = config.constraint
        # Our server serves one model, so requests need not name it; adapters have names.
        model = adapters if config.kind == "policy" else config.model
        # OpenAI's models that think refuse the older name; many other servers ignore the newer.
        openai_api = config.base_url.startswith("https://api.openai.com/")
        limit = "max_completion_tokens" if openai_api else "max_tokens"
        fields = {"model": model or None, "temperature": config.temperature, limit: config.max_tokens}
        self._fields = fields | dict(config.parameters)
        key = os.environ.get(config.api_key_env, "") if config.api_key_env else ""
        self._headers = {} if key else {"Authorization": openai.omit}
        self._url = config.base_url.rstrip("/") + "/chat/completions"
        try:
            self._client = openai.OpenAI(
                base_url=config.base_url,
                # With no key the client would send the one that it finds in the environment.
                api_key=key or "none",
                http_client=HttpClient(timeout=config.timeout_s),
                timeout=config.timeout_s,
            )
        except httpx2.InvalidURL as error:
            raise self._invalid(error) from error

    def _answer(self, request: ModelRequest, calls: int) -> ModelReply:
        body: dict[str, Any] = {"seed": request.seed} | self._fields
        body = {name: value for name, value in body.items() if value is not None}
        if request.chat is not None:
            body |= request.chat
        else:
            body["messages"] = [to_chat(message, request.images) for message in request.messages]
        constraint = self.constraint
        try:
            completion = self._client.post(
                "/chat/completions",
                body=body | _format(request, constraint),
                cast_to=ChatCompletion,
                options={"headers": self._headers, "max_retries": calls - 1},
            )
        except openai.APIStatusError as error:
            status, held = error.status_code, request.schema is not None and constraint != "off"
            about_format = held and status in (400, 422, 501) and _FORMAT.search(error.response.text)
            if about_format and self.weaken(constraint, f"status {status}"):
                return self._answer(request, calls)
            return self._handle_status(error)
        except openai.APIConnectionError as error:
            cause = error.__cause__
            if isinstance(cause, BudgetError):
                raise cause from None
            if isinstance(cause, httpx2.RequestError) and not isinstance(cause, httpx2.UnsupportedProtocol):
                raise TransientError(f"{self._url}: {type(cause).__name__}: {cause}") from error
            raise self._invalid(cause or error) from error
        except httpx2.InvalidURL as error:
            raise self._invalid(error) from error
        except ValueError as error:
            raise self._other_answer() from error
        try:
            return self._read(completion)
        except (AttributeError, TypeError, ValueError, IndexError) as error:
            # The client takes any JSON as a completion, and even text.
            raise self._other_answer() from error

    def weaken(self, constraint: str, reason: str) -> bool:
        """Takes the next weaker constraint than one that the endpoint does not keep, and says so.

        Returns:
          False if the config sets the constraint.
        """
        if self._config.structured != "auto":
            return False
        if self.constraint == constraint:  # Else another thread was first.
            self.constraint = _WEAKER[constraint]
            line = f"{self._url}: structured={constraint} does not work here ({reason})"
            print(f"{line}; {self.constraint} is used", file=sys.stderr, flush=True)
        return True

    def _read(self, completion: Any) -> ModelReply:
        if not completion.choices:
            return ModelReply("", problem="the answer holds no choice")
        choice, usage = completion.choices[0], completion.usage
        text, refusal = choice.message.content or "", getattr(choice.message, "refusal", None)
        if not isinstance(text, str):
            raise TypeError(text)
        problem = "" if text.strip() else "the reply holds no text"
        if refusal:
            problem = one_line(f"the model refused: {refusal}")
        if choice.finish_reason == "content_filter":
            problem = "the reply was blocked: content_filter"
        elif choice.finish_reason == "length":
            problem = f"the reply was cut off after {self._config.longest} tokens"
        prompt = (usage.prompt_tokens or 0) if usage else 0
        details = usage.prompt_tokens_details if usage else None
        # Some endpoints count thinking in the total alone.
        answered = max(usage.completion_tokens or 0, (usage.total_tokens or 0) - prompt) if usage else 0
        return ModelReply(
            text=text,
            usage=CallUsage(prompt_tokens=prompt, response_tokens=answered),
            problem=problem,
            cached_tokens=int(getattr(details, "cached_tokens", None) or 0),
            model_version=str(completion.model or ""),
            sampled=_sampled(choice, str(completion.model or "")),
        )

    def _handle_status(self, error: openai.APIStatusError) -> ModelReply:
        """Raises for an error status; returns a reply with a problem if only this request is at fault."""
        status, body = error.status_code, error.response.text
        message = one_line(_message(error.body) or body)
        reason = f"{self._url}: status {status}: {message}"
        lasts = is_quota(body) or takes_text_alone(message)
        if is_transient(status) and not lasts:
            raise TransientError(reason) from error
        if not lasts and is_about_this_request(status, message):
            return ModelReply("", problem=f"the model refused the request: status {status}: {message}")
        raise UserError(f"{reason}; {remedy(status, body, 'the API key')}") from error

    def _other_answer(self) -> UserError:
        return UserError(f"{self._url}: the answer is not a chat completion; check config.actor.base_url")

    def _invalid(self, error: BaseException) -> UserError:
        return UserError(
            f"{self._url}: not a valid address ({one_line(str(error))}); check config.actor.base_url"
        )


def _format(request: ModelRequest, constraint: str) -> dict[str, Any]:
    if request.schema is None or constraint == "off":
        return {}
    if constraint == "json":
        return {"response_format": {"type": "json_object"}}
    schema = {"name": request.purpose, "schema": request.schema}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _sampled(choice: Any, policy: str) -> SampledTokens | None:
    """Returns the tokens of a reply; None if the endpoint does not return all of them."""
    tokens, logprobs = getattr(choice, "token_ids", None), getattr(choice, "logprobs", None)
    content = logprobs.content if logprobs else None
    if not tokens or content is None or len(content) != len(tokens):
        return None
    log_probs = tuple(one.logprob for one in content)
    return SampledTokens(tokens=tuple(tokens), log_probs=log_probs, policy=policy)


def to_chat(message: Message, images: ImageSource | None) -> dict[str, Any]:
    """Returns a message as chat-completions endpoints take it, with its images in it."""
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


def _message(body: Any) -> str:
    """Returns the message of an error's body, which the client has taken out of `error` if it is there."""
    first = body[0] if isinstance(body, list) and body else body
    error = first.get("error", first) if isinstance(first, dict) else first
    return str(error.get("message", "") if isinstance(error, dict) else error or "")
