"""The supported part of the chat-completions protocol, checked strictly.

Unsupported parameters (streaming, tools, nucleus sampling, ...) are refused with one line instead of being
ignored: an evaluation whose settings were silently dropped would look like a valid result.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from collections.abc import Collection
from typing import Annotated, Any, Literal, TypeVar

from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.processor import open_image
from rmsweb_jax.records.schema import ImagePart, Message, Part, TextPart

MAX_CHOICES = 16
MAX_STOPS = 4
END = "<|im_end|>"


class BadRequestError(Exception):
    """The request cannot be served; the message goes to the client with status 400."""

    def __init__(self, message: str, param: str | None = None):
        super().__init__(message)
        self.param = param


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


_Body = TypeVar("_Body", bound=_Strict)


class _ImageUrl(_Strict):
    url: str
    detail: str | None = None


class _TextContent(_Strict):
    type: Literal["text"]
    text: str


class _ImageContent(_Strict):
    type: Literal["image_url"]
    image_url: _ImageUrl


_Content = Annotated[_TextContent | _ImageContent, Field(discriminator="type")]


class ChatMessage(_Strict):
    """One message; content is text or a list of text and image parts."""

    role: Literal["system", "user", "assistant"]
    content: str | list[_Content]


class _NamedSchema(_Strict):
    name: str = ""
    description: str | None = None
    # Not named `schema`, which is a method of pydantic's models.
    body: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(_Strict):
    """Constraint on replies: none, any JSON object, or a JSON schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: _NamedSchema | None = None

    def as_schema(self) -> dict[str, Any] | None:
        """Returns the JSON schema, or None for text.

        Raises:
          BadRequestError: the schema is missing.
        """
        if self.type == "text":
            return None
        if self.type == "json_object":
            return {"type": "object"}
        if self.json_schema is None:
            raise BadRequestError("response_format.json_schema: Field required", "response_format")
        return self.json_schema.body


class ChatRequest(_Strict):
    """Body of POST /v1/chat/completions, with vLLM's additions for reinforcement learning.

    Many parameters are accepted only with their neutral values: no nucleus, penalties or streaming. Tokens
    that cannot be decoded are never drawn.

    Attributes:
      stop: texts that end a reply, as `<|im_end|>` always does; the reply ends before them.
      logprobs: return the log-probability of every token, under the model at this temperature.
      return_token_ids: return the tokens of the prompt, images expanded, and of the replies.
      logit_bias: -100, for tokens that are always banned.
      ignore_eos: only with `stop_token_ids`, which are then the only end tokens.
    """

    messages: list[ChatMessage] = Field(min_length=1)
    model: str | None = None
    temperature: float = Field(default=1.0, ge=0.0, le=5.0, allow_inf_nan=False)
    n: int = Field(default=1, ge=1, le=MAX_CHOICES)
    seed: int = Field(default_factory=lambda: secrets.randbits(31), ge=0, lt=2**63)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    top_p: float | None = Field(default=None, ge=1.0, le=1.0)
    stream: Literal[False] | None = None
    stop: str | list[str] | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool = False
    top_logprobs: Literal[0] | None = None
    return_token_ids: bool = False
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    logit_bias: dict[int, Annotated[float, Field(ge=-100, le=-100)]] | None = None
    top_k: Literal[-1, 0] | None = None
    min_p: float | None = Field(default=None, ge=0.0, le=0.0)
    presence_penalty: float | None = Field(default=None, ge=0.0, le=0.0)
    frequency_penalty: float | None = Field(default=None, ge=0.0, le=0.0)
    repetition_penalty: float | None = Field(default=None, ge=1.0, le=1.0)
    user: str | None = None

    @property
    def token_limit(self) -> int | None:
        """Smaller value of the two names for this limit; None if neither is given."""
        limits = [limit for limit in (self.max_tokens, self.max_completion_tokens) if limit is not None]
        return min(limits) if limits else None

    @property
    def stop_texts(self) -> tuple[str, ...]:
        """Stop texts of the request, without the end token, which always ends a reply."""
        texts = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(text for text in texts if text != END)


class LoadAdapterRequest(_Strict):
    """Body of POST /v1/load_lora_adapter: a PEFT folder, and a name for it."""

    lora_name: str = Field(min_length=1)
    lora_path: str = Field(min_length=1)


class UnloadAdapterRequest(_Strict):
    """Body of POST /v1/unload_lora_adapter."""

    lora_name: str


def parse_request(body: bytes) -> ChatRequest:
    """Reads and checks the body of a chat request.

    Raises:
      BadRequestError: invalid JSON, an unknown or unsupported parameter, or a value out of range.
    """
    request = parse_body(ChatRequest, body)
    if "" in request.stop_texts or len(request.stop_texts) > MAX_STOPS:
        raise BadRequestError(f"stop: give at most {MAX_STOPS} texts, none of them empty", "stop")
    return request


def parse_body(kind: type[_Body], body: bytes) -> _Body:
    """Reads a request body.

    Raises:
      BadRequestError: invalid JSON, an unknown parameter, or a value out of range.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        # Content is text or a list of parts, and pydantic reports an error for each. The one with the deepest
        # location is about the part itself.
        deepest = max(error.errors(include_url=False), key=lambda problem: len(problem["loc"]))
        where = ".".join(str(name) for name in deepest["loc"] if "[" not in str(name))
        raise BadRequestError(f"{where or 'body'}: {deepest['msg']}", where or None) from None


def check_tokens(request: ChatRequest, end_id: int, banned: Collection[int]) -> None:
    """Checks the token numbers of a request against the model's.

    Args:
      end_id: the token that ends a reply.
      banned: tokens that are never drawn.

    Raises:
      BadRequestError: the request names other end tokens or banned tokens.
    """
    if request.stop_token_ids not in (None, [], [end_id]):
        raise BadRequestError(
            f"stop_token_ids: only [{end_id}] is supported, which always stops a reply", "stop_token_ids"
        )
    if request.ignore_eos and not request.stop_token_ids:
        raise BadRequestError(f"ignore_eos: give stop_token_ids=[{end_id}] with it", "ignore_eos")
    # Sampling bans these tokens for every request; a bias on another one would have no effect.
    others = sorted(set(request.logit_bias or ()) - set(banned))
    if others:
        raise BadRequestError(
            f"logit_bias: token {others[0]} is served; only tokens that are banned anyway may be named",
            "logit_bias",
        )


def to_messages(request: ChatRequest) -> tuple[tuple[Message, ...], dict[str, Image.Image]]:
    """Converts the chat to records, and its images to a dictionary by SHA-256.

    Raises:
      BadRequestError: an image URL is not a data URL (nothing is downloaded), or does not hold an image.
    """
    images: dict[str, Image.Image] = {}
    messages = []
    for message in request.messages:
        if isinstance(message.content, str):
            parts: list[Part] = [TextPart(text=message.content)]
        else:
            parts = [_to_part(part, images) for part in message.content]
        messages.append(Message(role=message.role, content=tuple(parts)))
    return tuple(messages), images


def _to_part(part: _TextContent | _ImageContent, images: dict[str, Image.Image]) -> Part:
    if isinstance(part, _TextContent):
        return TextPart(text=part.text)
    # Only data URLs: a server that fetches URLs for clients could be used to reach its own network.
    data = _data_url_bytes(part.image_url.url)
    sha256 = hashlib.sha256(data).hexdigest()
    try:
        images[sha256] = open_image(data)
    except UserError as error:
        raise BadRequestError(f"image_url: {error}", "messages") from None
    return ImagePart(sha256=sha256)


def _data_url_bytes(url: str) -> bytes:
    header, comma, data = url.partition(",")
    if not (comma and header.startswith("data:image/") and header.endswith(";base64")):
        raise BadRequestError(
            f"image_url: only data:image/...;base64,... URLs are served, got {url[:40]!r}", "messages"
        )
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise BadRequestError(f"image_url: {error}", "messages") from None


def error_body(message: str, kind: str, param: str | None = None) -> dict[str, Any]:
    """Makes the body of an error response in the form that clients of the protocol expect."""
    return {"error": {"message": message, "type": kind, "param": param, "code": None}}
