"""Gemini models, through google-genai; the library retries nothing by itself."""

from __future__ import annotations

import time
from typing import Any

import httpx2
from google import genai
from google.genai import errors, types
from pydantic import ValidationError

from collection.llm.http import (
    HttpClient,
    is_about_this_request,
    is_quota,
    is_transient,
    one_line,
    retry_after,
    transport_error,
)
from collection.llm.model import ModelReply, ModelRequest, ReasoningEffort, Structured, TransientError
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import CallUsage, ImagePart, Message

_COMPLETE = (types.FinishReason.STOP, types.FinishReason.FINISH_REASON_UNSPECIFIED, None)
_TRUNCATED = (types.FinishReason.MAX_TOKENS, types.FinishReason.CONTINUATION)


class GeminiModel:
    """A Gemini model; the library's own retries and streaming are off.

    Args:
      max_tokens: maximum length of a response, including thinking.
      timeout_s: timeout of a call.
      structured: how answers are constrained to a request's schema.
      base_url: another address of the API; empty for Google's own.
      reasoning_effort: the thinking level; `none` is a thinking budget of 0, which not every model allows.
    """

    def __init__(
        self,
        api_key: str,
        model: str,
        temperature: float = 1.0,
        max_tokens: int = 8192,
        timeout_s: float = 120.0,
        structured: Structured = "schema",
        base_url: str = "",
        reasoning_effort: ReasoningEffort = "auto",
    ):
        self._model, self._temperature, self._max_tokens = model, temperature, max_tokens
        self._thinking = _thinking(reasoning_effort)
        self._structured: Structured = structured
        self._endpoint = f"Gemini ({model})"
        options = types.HttpOptions(
            base_url=base_url or None,
            # Only v1beta serves preview models.
            api_version="v1beta",
            # In ms. Without it the library calls our client with no timeout at all.
            timeout=round(timeout_s * 1000),
            # Our client also determines which library's exceptions are raised.
            httpx_client=HttpClient(timeout_s),
        )
        self._client = genai.Client(api_key=api_key, vertexai=False, http_options=options)

    @property
    def name(self) -> str:
        return self._model

    def complete(self, request: ModelRequest) -> ModelReply:
        if request.chat is not None:
            raise UserError(f"{self._endpoint}: a chat-completions request needs a model of kind=chat")
        system = "".join(message.text for message in request.messages if message.role == "system")
        contents: list[Any] = [
            _content(message, request) for message in request.messages if message.role != "system"
        ]
        structured = {}
        if request.schema is not None and self._structured != "off":
            structured["response_mime_type"] = "application/json"
            if self._structured == "schema":
                structured["response_json_schema"] = request.schema
        config = types.GenerateContentConfig(
            system_instruction=system or None,
            temperature=self._temperature,
            max_output_tokens=self._max_tokens,
            seed=request.seed,
            thinking_config=self._thinking,
            **structured,
        )
        try:
            response = self._client.models.generate_content(
                model=self._model, contents=contents, config=config
            )
        except httpx2.TransportError as error:
            raise transport_error(self._endpoint, error) from error
        except errors.APIError as error:
            return self._handle_status(error)
        except (ValidationError, ValueError, AttributeError, TypeError, RecursionError) as error:
            # The library raises these for an answer that is not JSON, or of another shape or depth.
            raise TransientError(
                f"{self._endpoint}: a malformed answer ({one_line(str(error))})", billed=True
            ) from error
        text, problem = _read(response, self._max_tokens)
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
            headers = getattr(error.response, "headers", None) or {}
            raise TransientError(reason, retry_after(headers, error.details, time.time())) from error
        if is_about_this_request(error.code, message):
            return ModelReply("", problem=f"the model refused the request: status {error.code}: {message}")
        raise UserError(f"{reason}; {_remedy(error)}") from error


def _thinking(effort: ReasoningEffort) -> types.ThinkingConfig | None:
    if effort == "auto":
        return None
    if effort == "none":
        return types.ThinkingConfig(thinking_budget=0)
    return types.ThinkingConfig(thinking_level=types.ThinkingLevel(effort.upper()))


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


def _remedy(error: errors.APIError) -> str:
    if error.code in (401, 403) or "API key" in str(error.message):
        return "check GEMINI_API_KEY"
    if error.code == 429:
        return "the quota is used up: continue tomorrow with the same command, or raise it"
    if "thinking" in str(error.message).lower():
        return "this model does not take this config.actor.reasoning_effort"
    if "schema" in str(error.message).lower():
        return "this model does not support the schema: set config.actor.structured=json"
    return "check config.actor.model"
