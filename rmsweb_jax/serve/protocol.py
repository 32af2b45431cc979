"""The requests of the OpenAI API that are served: what is honoured, what is ignored, and what is refused.

What SDKs send and what cannot change a reply is ignored (`IGNORED`). A field that would change it and is not
supported is refused with one line: an evaluation whose settings were silently dropped would look like a valid
result. docs/serve.md lists all fields.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import itertools
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rmsweb_jax.decoding.requests import Sampling
from rmsweb_jax.records.schema import ImagePart, Message, Part, TextPart
from rmsweb_jax.serve.tools import RESULT_CLOSE, RESULT_OPEN, call_text, signatures

MAX_CHOICES = 128
MAX_STOPS = 4
MAX_TOP = 20
END = "<|im_end|>"
_MOST_FIELDS = 200
# Fields that the engine's settings have under the same names, with the API's defaults.
_SAMPLING = ["temperature", "top_p", "presence_penalty", "frequency_penalty"]
_ERROR_TYPES = {401: "authentication_error", 403: "permission_error"}
# Fields of requests that cannot change a reply here.
IGNORED = (
    "add_special_tokens", "chat_template_kwargs", "metadata", "prediction", "priority", "prompt_cache_key",
    "prompt_cache_options", "prompt_cache_retention", "reasoning_effort", "request_id", "safety_identifier",
    "service_tier", "spaces_between_special_tokens", "store", "user", "verbosity",
)  # fmt: skip


class ApiError(Exception):
    """An error that the client gets with a status, as an error object in OpenAI's form.

    Args:
      param: the field that is to blame.
      code: OpenAI's name of the error, where clients look at it.
    """

    def __init__(self, message: str, param: str | None = None, status: int = 400, code: str | None = None):
        super().__init__(message)
        self.status = status
        kind = _ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, values: Any) -> Any:
        # Each unknown field would be an error of its own.
        if isinstance(values, dict) and len(values) > _MOST_FIELDS:
            raise ValueError(f"{len(values)} fields, at most {_MOST_FIELDS} are read")
        return values


_Body = TypeVar("_Body", bound=_Strict)
_Item = TypeVar("_Item")
# Ends at its first error: one of each item would take long.
_List = Annotated[list[_Item], Field(fail_fast=True)]


class _ImageUrl(_Strict):
    url: str
    detail: str | None = None


class _TextContent(_Strict):
    type: Literal["text"]
    text: str


class _RefusalContent(_Strict):
    type: Literal["refusal"]
    refusal: str


class _ImageContent(_Strict):
    type: Literal["image_url"]
    image_url: _ImageUrl


_Content = Annotated[_TextContent | _RefusalContent | _ImageContent, Field(discriminator="type")]


class _FunctionCall(_Strict):
    name: str
    arguments: str = "{}"


class _ToolCall(_Strict):
    id: str = ""
    type: Literal["function"] = "function"
    function: _FunctionCall
    # SDKs send back what they got.
    index: int | None = None
    provider_specific_fields: Any = None


class ChatMessage(_Strict):
    """One message; content is text or a list of text and image parts."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | _List[_Content] | None = None
    tool_calls: _List[_ToolCall] | None = None
    tool_call_id: str | None = None
    # SDKs send back what they got; these are not read.
    name: str | None = None
    reasoning_content: Any = None
    provider_specific_fields: Any = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    annotations: list[Any] | None = None


class _Function(_Strict):
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(_Strict):
    """A function that the model may call."""

    type: Literal["function"]
    function: _Function

    def signature(self) -> dict[str, Any]:
        """Returns the tool as the prompt shows it."""
        function = self.function.model_dump(exclude={"strict"}, exclude_none=True)
        return {"type": "function", "function": function}


class _FunctionName(_Strict):
    name: str


class _ToolChoice(_Strict):
    type: Literal["function"]
    function: _FunctionName


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
          ApiError: the schema is missing.
        """
        if self.type == "text":
            return None
        if self.type == "json_object":
            return {"type": "object"}
        if self.json_schema is None:
            raise ApiError("response_format.json_schema: Field required", "response_format")
        return self.json_schema.body


class _StreamOptions(_Strict):
    include_usage: bool = False
    include_obfuscation: bool | None = None


class ChatRequest(_Strict):
    """Body of POST /v1/chat/completions, with vLLM's additions.

    Attributes:
      stop: texts that end a reply, as `<|im_end|>` always does; the reply ends before them.
      return_token_ids: return the tokens of the prompt, images expanded, and of the replies.
      logprobs: return the log-probability of every token, under the model at this temperature.
      logit_bias: -100, for tokens that are always banned.
      ignore_eos: never draw the end token, unless `stop_token_ids` names it.
      parallel_tool_calls: False keeps the first call of a reply.
    """

    messages: _List[ChatMessage] = Field(min_length=1)
    model: str | None = None
    temperature: float | None = Field(default=None, ge=0.0, le=5.0, allow_inf_nan=False)
    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    top_k: int | None = Field(default=None, ge=-1)
    presence_penalty: float | None = Field(default=None, ge=-2.0, le=2.0)
    frequency_penalty: float | None = Field(default=None, ge=-2.0, le=2.0)
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    stop: str | _List[str] | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP)
    tools: _List[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | _ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    return_token_ids: bool | None = None
    stop_token_ids: _List[int] | None = None
    ignore_eos: bool | None = None
    logit_bias: dict[int, Annotated[float, Field(ge=-100, le=-100)]] | None = Field(
        default=None, max_length=1000
    )
    # Fields of which only the value that changes nothing is served: clients of vLLM write them out, since its
    # defaults are those of the model's folder.
    min_p: float | None = Field(default=None, ge=0.0, le=0.0)
    repetition_penalty: float | None = Field(default=None, ge=1.0, le=1.0)
    modalities: _List[Literal["text"]] | None = None
    add_generation_prompt: Literal[True] | None = None
    include_stop_str_in_output: Literal[False] | None = None
    skip_special_tokens: Literal[False] | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_ignored(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if name not in IGNORED}

    @model_validator(mode="after")
    def _consistent(self) -> ChatRequest:
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs=true")
        return self

    @property
    def stop_texts(self) -> tuple[str, ...]:
        """Stop texts of the request, without the end token, which always ends a reply."""
        texts = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(text for text in texts if text != END)

    @property
    def token_limit(self) -> int | None:
        """Smaller value of the two names for this limit; None if neither is given."""
        limits = (self.max_tokens, self.max_completion_tokens)
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def num_top(self) -> int | None:
        """Likely tokens that are reported with each token's log-probability; None reports neither."""
        return self.top_logprobs or 0 if self.logprobs else None

    def last_turn(self) -> ChatRequest:
        """Keeps the system messages, and the last user message or the tool results that are in its place."""
        turns = itertools.groupby(self.messages, key=lambda message: message.role)
        asked = [list(turn) for role, turn in turns if role in ("user", "tool")]
        if not asked:
            return self
        last = asked[-1] if asked[-1][0].role == "tool" else asked[-1][-1:]
        system = [message for message in self.messages if message.role in ("system", "developer")]
        return self.model_copy(update={"messages": [*system, *last]})

    def sampling(self, most: int) -> Sampling:
        """Makes the settings of the engine.

        Args:
          most: limit for a reply, which holds if the request names none.
        """
        given = {name: value for name in _SAMPLING if (value := getattr(self, name)) is not None}
        return Sampling(
            num_samples=self.n or 1,
            max_response_tokens=self.token_limit or most,
            top_k=max(self.top_k or 0, 0),
            **given,
            top_log_probs=self.num_top or 0,
            ignore_eos=bool(self.ignore_eos and not self.stop_token_ids),
        )

    def check(self, end_id: int, banned: Collection[int], most: int) -> None:
        """Checks limits and token numbers against the server's.

        Args:
          end_id: the token that ends a reply.
          banned: tokens that are never drawn.
          most: limit for a reply.

        Raises:
          ApiError: a limit is exceeded, or the request names other end tokens or banned tokens.
        """
        if self.token_limit is not None and self.token_limit > most:
            raise ApiError(
                f"max_tokens: {self.token_limit} is over this server's limit of {most}", "max_tokens"
            )
        if "" in self.stop_texts or len(self.stop_texts) > MAX_STOPS:
            raise ApiError(f"stop: give at most {MAX_STOPS} texts, none of them empty", "stop")
        if self.stop_token_ids not in (None, [], [end_id]):
            raise ApiError(
                f"stop_token_ids: only [{end_id}] is supported, which always stops a reply", "stop_token_ids"
            )
        # Sampling bans these tokens for every request; a bias on another one would have no effect.
        others = sorted(set(self.logit_bias or ()) - set(banned))
        if others:
            raise ApiError(
                f"logit_bias: token {others[0]} is served; only tokens that are banned anyway may be named",
                "logit_bias",
            )

    @property
    def offered(self) -> list[Tool]:
        """Tools that the prompt shows."""
        return [] if self.tool_choice == "none" else self.tools or []

    @property
    def forced(self) -> list[Tool]:
        """Tools of which one must be called; empty if none must.

        Raises:
          ApiError: the named tool, or any, is missing.
        """
        if self.tool_choice in (None, "none", "auto"):
            return []
        name = self.tool_choice.function.name if isinstance(self.tool_choice, _ToolChoice) else None
        found = [tool for tool in self.offered if name in (None, tool.function.name)]
        if not found:
            missing = "there are no tools" if name is None else f"there is no tool {name!r}"
            raise ApiError(f"tool_choice: {missing}", "tool_choice")
        return found


class LoadAdapterRequest(_Strict):
    """Body of POST /v1/load_lora_adapter: a PEFT folder, and a name for it."""

    lora_name: str = Field(min_length=1)
    lora_path: str = Field(min_length=1)


class UnloadAdapterRequest(_Strict):
    """Body of POST /v1/unload_lora_adapter."""

    lora_name: str


def parse_body(kind: type[_Body], body: bytes) -> _Body:
    """Reads a request body.

    Raises:
      ApiError: invalid JSON, an unknown parameter, or a value out of range.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        # Content is text or a list of parts, and pydantic reports an error for each. The one with the deepest
        # location is about the part itself.
        deepest = max(error.errors(include_url=False), key=lambda problem: len(problem["loc"]))
        names: list[str] = []
        for name in map(str, deepest["loc"]):
            # Leave out names of types, and a part's type before its field of the same name.
            if not ("[" in name or name.startswith("_") or name in ("str", *names[-1:])):
                names.append(name)
        where, reason = ".".join(names), deepest["msg"].removeprefix("Value error, ")
        raise ApiError(f"{where or 'body'}: {reason}", where or None) from None


def to_messages(request: ChatRequest, max_images: int) -> tuple[tuple[Message, ...], Mapping[str, bytes]]:
    """Converts the chat to records, with tools in Qwen's form, and its images to a dictionary by SHA-256.

    Raises:
      ApiError: there are too many images, or one is not a data URL (nothing is downloaded).
    """
    images: dict[str, bytes] = {}
    messages: list[Message] = []
    last_was_result = False
    contents = [message.content for message in request.messages if isinstance(message.content, list)]
    count = sum(isinstance(part, _ImageContent) for content in contents for part in content)
    if count > max_images:
        raise ApiError(f"messages: {count} images, at most {max_images} are served", "messages")
    for message in request.messages:
        content = message.content
        if isinstance(content, list):
            parts = [_to_part(part, images) for part in content]
        else:
            parts = [TextPart(text=content)] if content else []
        if message.role == "tool":
            parts = [TextPart(text=RESULT_OPEN), *parts, TextPart(text=RESULT_CLOSE)]
            if last_was_result:
                # The results of one turn are one message.
                parts = [*messages.pop().content, TextPart(text="\n"), *parts]
        for number, call in enumerate(message.tool_calls or ()):
            lead, function = "\n" if parts or number else "", call.function
            parts.append(TextPart(text=lead + call_text(function.name, function.arguments or "{}")))
        last_was_result = message.role == "tool"
        role = {"developer": "system", "tool": "user"}.get(message.role, message.role)
        messages.append(Message(role=cast(Any, role), content=tuple(parts)))
    if request.offered:
        parts = [TextPart(text=signatures([tool.signature() for tool in request.offered]))]
        if messages[0].role == "system":
            parts = [*messages.pop(0).content, TextPart(text="\n\n"), *parts]
        messages.insert(0, Message(role="system", content=tuple(parts)))
    return tuple(messages), images


def _to_part(part: _TextContent | _RefusalContent | _ImageContent, images: dict[str, bytes]) -> Part:
    if isinstance(part, _TextContent):
        return TextPart(text=part.text)
    if isinstance(part, _RefusalContent):
        return TextPart(text=part.refusal)
    url = part.image_url.url
    header, comma, data = url.partition(",")
    # Only data URLs: a server that fetches URLs for clients could be used to reach its own network.
    if not (comma and header.startswith("data:image/") and header.endswith(";base64")):
        raise ApiError(
            f"image_url: only data:image/...;base64,... URLs are served, got {url[:40]!r}", "messages"
        )
    try:
        content = base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ApiError(f"image_url: {error}", "messages") from None
    sha256 = hashlib.sha256(content).hexdigest()
    # Decoded when it is cut into patches, one after the other: a few kilobytes may become 200 MB.
    images[sha256] = content
    return ImagePart(sha256=sha256)
