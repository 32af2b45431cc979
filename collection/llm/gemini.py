"""Gemini models, through google-genai."""

from __future__ import annotations

import os
from typing import Any

import httpx2
from google import genai
from google.genai import errors, types
from pydantic import ValidationError

from collection.llm.calls import Calls
from collection.llm.config import GEMINI_KEY, ModelConfig
from collection.llm.http import (
    HttpClient,
    is_about_this_request,
    is_quota,
    is_transient,
    one_line,
    remedy,
)
from collection.llm.model import Model, ModelReply, ModelRequest, TransientError, attempts
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import CallUsage, ImagePart, Message

# Waits of 1, 4, 16 and 60 s: five attempts outlast a quota per minute.
_BACKOFF = 4.0
_COMPLETE = (types.FinishReason.STOP, types.FinishReason.FINISH_REASON_UNSPECIFIED, None)
_TRUNCATED = (types.FinishReason.MAX_TOKENS, types.FinishReason.CONTINUATION)


class GeminiModel(Model):
    """A Gemini model, without streaming. Arguments as of `Model`."""

    def __init__(self, config: ModelConfig, calls: Calls | None = None):
        super().__init__(config, calls)
        self._endpoint = f"Gemini ({config.model})"
        options = types.HttpOptions(
            base_url=config.base_url or None,
            # Only v1beta serves preview models.
            api_version="v1beta",
            # In ms. Without it the library calls our client with no timeout at all.
            timeout=round(config.timeout_s * 1000),
            # Our client also determines which library's exceptions are raised.
            httpx_client=HttpClient(timeout=config.timeout_s),
        )
        self._client = genai.Client(api_key=os.environ[GEMINI_KEY], vertexai=False, http_options=options)

    def _answer(self, request: ModelRequest, calls: int) -> ModelReply:
        if request.chat is not None:
            raise UserError(f"{self._endpoint}: a chat-completions request needs a model of kind=chat")
        system = "".join(message.text for message in request.messages if message.role == "system")
        contents: list[Any] = [
            _content(message, request) for message in request.messages if message.role != "system"
        ]
        retries = types.HttpRetryOptions(attempts=calls, exp_base=_BACKOFF)
        fields: dict[str, Any] = {
            "system_instruction": system or None,
            "temperature": self._config.temperature,
            "max_output_tokens": self._config.max_tokens,
            "seed": request.seed,
            "http_options": types.HttpOptions(retry_options=retries),
        }
        if request.schema is not None and self._config.constraint != "off":
            fields["response_mime_type"] = "application/json"
            if self._config.constraint != "json":
                fields["response_json_schema"] = request.schema
        try:
            config = types.GenerateContentConfig(**fields | dict(self._config.parameters))
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"]))
            raise UserError(f"config.actor.parameters: {where}: Gemini has no such parameter") from error
        try:
            response = self._client.models.generate_content(
                model=self._config.model, contents=contents, config=config
            )
        except httpx2.RequestError as error:
            raise TransientError(f"{self._endpoint}: {type(error).__name__}: {error}") from error
        except errors.APIError as error:
            return self._handle_status(error)
        except (ValidationError, ValueError, AttributeError, TypeError, RecursionError) as error:
            # The library raises these for an answer that is not JSON, or of another shape or depth.
            attempts.lost += 1
            return ModelReply("", problem=f"a malformed answer ({one_line(str(error))})")
        text, problem = _read(response, self._config.longest)
        return ModelReply(
            text, _usage(response), problem, _cached(response), model_version=response.model_version or ""
        )

    def _handle_status(self, error: errors.APIError) -> ModelReply:
        """Raises for an error status; returns a reply with a problem if only this request is at fault.

        Raises:
          TransientError, UserError: as for `Model`.
        """
        message = one_line(str(error.message or error.details))
        reason = f"{self._endpoint}: status {error.code}: {message}"
        if is_transient(error.code) and not is_quota(str(error.details)):
            raise TransientError(reason) from error
        if is_about_this_request(error.code, message):
            return ModelReply("", problem=f"the model refused the request: status {error.code}: {message}")
        raise UserError(f"{reason}; {remedy(error.code, message, GEMINI_KEY)}") from error


def _content(message: Message, request: ModelRequest) -> types.Content:
    parts = []
    for part in message.content:
        if isinstance(part, ImagePart):
            assert request.images is not None
            data = request.images.get(part.sha256)
            parts.append(types.Part.from_bytes(data=data, mime_type="image/png"))
        else:
            parts.append(types.Part.from_text(text=part.text))
    return types.Content(role="model" if message.role == "assistant" else "user", parts=parts)


def _read(response: types.GenerateContentResponse, max_tokens: int) -> tuple[str, str]:
    """Returns the answer's text, and its problem (empty if there is none)."""
    if not response.candidates:
        feedback = response.prompt_feedback
        if feedback and feedback.block_reason:
            detail = f" ({feedback.block_reason_message})" if feedback.block_reason_message else ""
            return "", one_line(f"the prompt was blocked: {feedback.block_reason.value}{detail}")
        return "", "the model sent no candidate"
    candidate = response.candidates[0]
    parts = (candidate.content.parts if candidate.content else None) or []
    text = "".join(part.text for part in parts if part.text and not part.thought)
    reason = candidate.finish_reason
    if reason in _TRUNCATED:
        return text, f"the reply was cut off after {max_tokens} tokens (thinking included)"
    if reason not in _COMPLETE:
        ratings = [
            f"{rating.category.value}: {rating.probability.value if rating.probability else 'unknown'}"
            for rating in candidate.safety_ratings or ()
            if rating.blocked and rating.category
        ]
        detail = ", ".join(filter(None, (candidate.finish_message, *ratings)))
        return text, one_line(f"the reply was blocked: {reason.value}" + (f" ({detail})" if detail else ""))
    if not text.strip():
        kinds = sorted({kind for part in parts for kind in part.model_dump(exclude_none=True)} - {"text"})
        return "", "the reply holds no text" + (f" but {', '.join(kinds)}" if kinds else "")
    return text, ""


def _usage(response: types.GenerateContentResponse) -> CallUsage:
    usage = response.usage_metadata or types.GenerateContentResponseUsageMetadata()
    return CallUsage(
        prompt_tokens=usage.prompt_token_count or 0,
        # Thinking is billed as output.
        response_tokens=(usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
    )


def _cached(response: types.GenerateContentResponse) -> int:
    return (response.usage_metadata and response.usage_metadata.cached_content_token_count) or 0
