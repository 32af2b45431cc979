"""Gemini through google-genai, which retries nothing by itself."""

from __future__ import annotations

import re
import time

import httpx
from google import genai
from google.genai import errors, types

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
from rmsweb_jax.records.schema import CallUsage, ImagePart, Message

_TRANSIENT = frozenset((408, 429, 500, 502, 503, 504))
_RETRY_DELAY = re.compile(r"'retryDelay': '([\d.]+)s'")


class GeminiTeacher:
    """A Gemini model that answers in JSON.

    Args:
      base_url: another address of the API; empty for Google's own.
      first_wait_s: longest wait before the first retry.
    """

    def __init__(
        self,
        api_key: str,
        model: str,
        temperature: float = 1.0,
        max_tokens: int = 8192,
        timeout_s: float = 120.0,
        attempts: int = 5,
        prices: Prices | None = None,
        base_url: str = "",
        first_wait_s: float = 1.0,
    ):
        self._model, self._temperature, self._max_tokens = model, temperature, max_tokens
        self._attempts, self._first_wait_s = attempts, first_wait_s
        self._prices = prices or Prices()
        # A client of our own fixes which library's exceptions come out.
        client = httpx.Client(timeout=timeout_s)
        # Preview models are served under v1beta alone.
        options = types.HttpOptions(base_url=base_url or None, api_version="v1beta", httpx_client=client)
        self._client = genai.Client(api_key=api_key, vertexai=False, http_options=options)

    @property
    def name(self) -> str:
        return self._model

    def reply(self, request: TeacherRequest) -> TeacherReply:
        system = "".join(message.text for message in request.messages if message.role == "system")
        contents = [
            _content(message, request.images) for message in request.messages if message.role != "system"
        ]
        config = types.GenerateContentConfig(
            system_instruction=system,
            temperature=self._temperature,
            max_output_tokens=self._max_tokens,
            seed=call_seed("reply", request.task_id, request.attempt, request.step),
            response_mime_type="application/json",
        )
        return self._generate(contents, config)

    def reflect(self, request: ReflectionRequest) -> TeacherReply:
        parts = [types.Part.from_text(text=message.text) for message in reflection_messages(request)]
        config = types.GenerateContentConfig(
            temperature=self._temperature,
            max_output_tokens=self._max_tokens,
            seed=call_seed("reflect", request.task_id, request.attempt),
        )
        return self._generate([types.Content(role="user", parts=parts)], config)

    def _generate(self, contents: list[types.Content], config: types.GenerateContentConfig) -> TeacherReply:
        start = time.monotonic()
        endpoint = f"Gemini ({self._model})"
        response = with_retries(
            lambda: self._call(contents, config, endpoint), endpoint, self._attempts, self._first_wait_s
        )
        usage = response.usage_metadata or types.GenerateContentResponseUsageMetadata()
        prompt_tokens = usage.prompt_token_count or 0
        # Thinking is billed as output.
        response_tokens = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
        return TeacherReply(
            text=response.text or "",
            usage=CallUsage(
                prompt_tokens=prompt_tokens,
                response_tokens=response_tokens,
                seconds=time.monotonic() - start,
                cost=self._prices.cost(prompt_tokens, response_tokens),
            ),
        )

    def _call(
        self, contents: list[types.Content], config: types.GenerateContentConfig, endpoint: str
    ) -> types.GenerateContentResponse:
        try:
            return self._client.models.generate_content(model=self._model, contents=contents, config=config)
        except httpx.TransportError as error:
            raise TransientError(f"{type(error).__name__}: {error}") from error
        except errors.APIError as error:
            reason = f"status {error.code}: {' '.join(str(error.message).split())[:200]}"
            if error.code in _TRANSIENT and not _is_daily_quota(error):
                delay = _RETRY_DELAY.search(str(error.details))
                raise TransientError(reason, float(delay[1]) if delay else None) from error
            raise UserError(f"{endpoint}: {reason}; {_remedy(error)}") from error


def _content(message: Message, images: ImageSource) -> types.Content:
    parts = [
        types.Part.from_bytes(data=images.get(part.sha256), mime_type="image/png")
        if isinstance(part, ImagePart)
        else types.Part.from_text(text=part.text)
        for part in message.content
    ]
    return types.Content(role="model" if message.role == "assistant" else "user", parts=parts)


def _is_daily_quota(error: errors.APIError) -> bool:
    """A used-up daily quota comes as 429 too, but does not pass within a run."""
    return error.code == 429 and "PerDay" in str(error.details)


def _remedy(error: errors.APIError) -> str:
    if error.code in (401, 403) or "API key" in str(error.message):
        return "check GEMINI_API_KEY"
    if error.code == 429:
        return "the day's quota is used up: continue tomorrow with the same command, or raise it"
    return "check config.actor.model"
