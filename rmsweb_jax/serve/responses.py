"""The Responses API, as a translation to chat completions and back.

Nothing is stored: a conversation is sent whole, and `previous_response_id` is refused. Of the items that
clients send back, what is around their content (ids, states, annotations) is not read.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, Discriminator, Field, Tag, model_validator

from rmsweb_jax.serve.protocol import IGNORED, ApiError, ChatRequest, ListOf, Strict, parse_body
from rmsweb_jax.serve.replies import Generation, known_error

# What the errors of the translated request call a field.
_NAMES = {"messages": "input", "max_tokens": "max_output_tokens", "response_format": "text.format"}
# Fields that would change a reply, and whose reason is worth a sentence.
_STORED = "nothing is stored here: send the whole conversation as input"
_REFUSED = {"previous_response_id": _STORED, "conversation": _STORED, "prompt": _STORED}
_SAME = ("model", "temperature", "top_p", "seed", "stream", "parallel_tool_calls")


class _Text(BaseModel):
    type: Literal["input_text", "output_text"]
    text: str

    def chat(self) -> dict[str, Any]:
        return {"type": "text", "text": self.text}


class _Refusal(BaseModel):
    type: Literal["refusal"]
    refusal: str

    def chat(self) -> dict[str, Any]:
        return {"type": "refusal", "refusal": self.refusal}


class _Image(BaseModel):
    type: Literal["input_image"]
    image_url: str

    def chat(self) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": self.image_url}}


_Content = str | ListOf[Annotated[_Text | _Refusal | _Image, Field(discriminator="type")]]


class _Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant"]
    content: _Content


class _Call(BaseModel):
    call_id: str
    name: str
    arguments: str


class _Result(BaseModel):
    call_id: str
    output: _Content


class _Reasoning(BaseModel):
    """Of another model; chat templates leave it out."""


_ITEMS = "only items of type message, function_call, function_call_output and reasoning are read"
_Item = Annotated[
    Annotated[_Message, Tag("message")]
    | Annotated[_Call, Tag("function_call")]
    | Annotated[_Result, Tag("function_call_output")]
    | Annotated[_Reasoning, Tag("reasoning")],
    Discriminator(
        lambda item: (item.get("type") or "message") if isinstance(item, dict) else None,
        custom_error_type="item",
        custom_error_message=_ITEMS,
    ),
]


class _Tool(Strict):
    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _ToolChoice(Strict):
    type: Literal["function"]
    name: str


class _Format(Strict):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    # Not named `schema`, which is a method of pydantic's models.
    body: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class _TextSettings(Strict):
    format: _Format | None = None
    verbosity: Any = None


class ResponsesRequest(Strict):
    """Body of POST /v1/responses."""

    input: str | ListOf[_Item]
    instructions: str | None = None
    model: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stream: bool | None = None
    text: _TextSettings = _TextSettings()
    tools: ListOf[_Tool] = Field(default_factory=list)
    tool_choice: Literal["none", "auto", "required"] | _ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    # The model has no such mode, and encrypted reasoning is asked for by SDKs that store nothing.
    reasoning: Any = None
    include: ListOf[Literal["reasoning.encrypted_content"]] | None = None
    stream_options: Any = None
    background: Literal[False] | None = None
    truncation: Literal["disabled"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_ignored(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        for name, reason in _REFUSED.items():
            if values.get(name) is not None:
                raise ValueError(f"{name}: {reason}")
        dropped = {*IGNORED, *_REFUSED}
        return {name: value for name, value in values.items() if name not in dropped and value is not None}

    def as_chat(self) -> ChatRequest:
        """Translates the request.

        Raises:
          ApiError: a value is out of range.
        """
        messages: list[dict[str, Any]] = []
        if self.instructions:
            messages.append({"role": "system", "content": self.instructions})
        items = [_Message(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        for item in items:
            if isinstance(item, _Message):
                messages.append({"role": item.role, "content": _chat_content(item.content)})
            elif isinstance(item, _Result):
                content = _chat_content(item.output)
                messages.append({"role": "tool", "tool_call_id": item.call_id, "content": content})
            elif isinstance(item, _Call):
                # Calls are a part of the assistant's message before them.
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": None})
                function = {"name": item.name, "arguments": item.arguments}
                messages[-1].setdefault("tool_calls", []).append({"id": item.call_id, "function": function})
        chat: dict[str, Any] = {name: value for name in _SAME if (value := getattr(self, name)) is not None}
        chat |= {"messages": messages, "max_tokens": self.max_output_tokens}
        chat["tools"] = [
            {"type": "function", "function": tool.model_dump(exclude={"type"})} for tool in self.tools
        ]
        choice = self.tool_choice
        named = isinstance(choice, _ToolChoice)
        chat["tool_choice"] = {"type": "function", "function": {"name": choice.name}} if named else choice
        if (form := self.text.format) is not None:
            schema = form.model_dump(by_alias=True, exclude={"type"}, exclude_none=True)
            named_schema = {"json_schema": schema} if form.type == "json_schema" else {}
            chat["response_format"] = {"type": form.type} | named_schema
        return parse_body(ChatRequest, orjson.dumps(chat))


def _chat_content(content: _Content) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else [part.chat() for part in content]


@contextlib.contextmanager
def named_as_here() -> Iterator[None]:
    """Gives the fields in errors the names that they have in this API."""
    try:
        yield
    except ApiError as error:
        body = error.body["error"]
        for name, here in _NAMES.items():
            if str(body["param"]).partition(".")[0] == name:
                body["param"] = body["param"].replace(name, here, 1)
                body["message"] = body["message"].replace(name, here, 1)
        raise


class ResponsesGeneration(Generation):
    """A request under way, and its answer in the form of this API.

    Args:
      given: what the client sent; the other arguments are those of `Generation`.
    """

    def __init__(self, given: ResponsesRequest, *arguments: Any):
        super().__init__(*arguments)
        self._given = given
        (self._reply,) = self.replies
        self._id, self._message_id = (f"{kind}_{uuid.uuid4().hex}" for kind in ("resp", "msg"))

    def body(self) -> dict[str, Any]:
        return self._response(self._status, [*self._messages(), *self._calls()], self._usage())

    @property
    def _status(self) -> str:
        return "incomplete" if self._reply.finish == "length" else "completed"

    def _response(self, status: str, output: list[Any], usage: dict[str, int] | None) -> dict[str, Any]:
        asked = self._given
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        counts = usage and {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        }
        given = asked.model_dump(by_alias=True, exclude_none=True, include={"text", "tools", "tool_choice"})
        given["text"] = {"format": {"type": "text"}} | given["text"]
        given |= {"instructions": asked.instructions, "max_output_tokens": asked.max_output_tokens}
        defaults = {"tool_choice": "auto", "parallel_tool_calls": asked.parallel_tool_calls is not False}
        defaults |= {
            name: 1.0 if (value := getattr(asked, name)) is None else value
            for name in ("temperature", "top_p")
        }
        head = {"id": self._id, "object": "response", "created_at": self._created, "status": status}
        head |= {"model": self.name, "output": output, "usage": counts, "error": None}
        head |= {"incomplete_details": cut, "metadata": {}, "previous_response_id": None, "store": False}
        return head | {"truncation": "disabled"} | defaults | given

    def _message(self, status: str, content: list[Any]) -> dict[str, Any]:
        head = {"type": "message", "id": self._message_id, "role": "assistant", "status": status}
        return head | {"content": content}

    def _messages(self) -> list[dict[str, Any]]:
        """Makes the item of the text; none if the reply is calls alone."""
        text = self._reply.text
        return [self._message(self._status, [_part(text)])] if text or not self._reply.calls else []

    def _calls(self) -> list[dict[str, Any]]:
        return [
            {
                "type": "function_call",
                "id": f"fc_{call['id'].removeprefix('call_')}",
                "call_id": call["id"],
                "status": "completed",
                **call["function"],
            }
            for call in self._reply.calls
        ]

    async def events(self, changes: AsyncIterator[int]) -> AsyncIterator[bytes]:
        """Writes a stream of server-sent events; an error ends it as an event."""
        count = 0

        def event(kind: str, **fields: Any) -> bytes:
            nonlocal count
            count += 1
            body = {"type": kind, "sequence_number": count - 1, **fields}
            return f"event: {kind}\ndata: ".encode() + orjson.dumps(body) + b"\n\n"

        try:
            start = self._response("in_progress", [], None)
            yield event("response.created", response=start)
            yield event("response.in_progress", response=start)
            text = {"item_id": self._message_id, "output_index": 0, "content_index": 0}
            opening = [
                ("response.output_item.added", {"output_index": 0, "item": self._message("in_progress", [])}),
                ("response.content_part.added", {**text, "part": _part("")}),
            ]
            async for _ in changes:
                if new := self._new_text(self._reply):
                    for kind, fields in opening:
                        yield event(kind, **fields)
                    opening = []
                    yield event("response.output_text.delta", **text, delta=new, logprobs=[])
            output = self._messages()
            for item in output:
                whole = item["content"][0]["text"]
                for kind, fields in opening:
                    yield event(kind, **fields)
                yield event("response.output_text.done", **text, text=whole, logprobs=[])
                yield event("response.content_part.done", **text, part=_part(whole))
                yield event("response.output_item.done", output_index=0, item=item)
            for item in self._calls():
                place = {"output_index": len(output), "item_id": item["id"]}
                empty = item | {"arguments": "", "status": "in_progress"}
                yield event("response.output_item.added", output_index=len(output), item=empty)
                kind = "response.function_call_arguments"
                yield event(f"{kind}.delta", **place, delta=item["arguments"])
                yield event(f"{kind}.done", **place, name=item["name"], arguments=item["arguments"])
                yield event("response.output_item.done", output_index=len(output), item=item)
                output.append(item)
            whole = self._response(self._status, output, self._usage())
            yield event(f"response.{self._status}", response=whole)
        except Exception as error:
            problem = known_error(error).body["error"]
            # In both forms that clients look for.
            yield event("error", **problem | {"type": "error"}, error=problem)


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
