"""The Responses API through the openai client: the same replies as by chat completions, in its form."""

import json
from typing import Any, Literal

import httpx
import openai
import pydantic
import pytest

from tests.serve.test_app import image_url

PICTURE = image_url(1)
PICK = {
    "type": "object",
    "properties": {"row": {"enum": [1, 2]}},
    "required": ["row"],
    "additionalProperties": False,
}
TOOLS: Any = [{"type": "function", "name": "pick", "parameters": PICK, "strict": True}]
CHAT_TOOLS = [{"type": "function", "function": {"name": "pick", "parameters": PICK}}]
NAMED: Any = {"type": "function", "name": "pick"}
SEED = {"seed": 1}
FILE = {"type": "input_file"}


class Row(pydantic.BaseModel):
    row: Literal[1, 2]


@pytest.fixture
def client(roomy_url) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{roomy_url}/v1", api_key="none", max_retries=0)


def chat(client: openai.OpenAI, messages: Any, **settings: Any) -> Any:
    return client.chat.completions.create(model="tiny", messages=messages, seed=1, **settings)


def test_a_conversation_is_the_chat_that_it_means(client):
    """Instructions, a picture, a call and its result, as agents send them back."""
    parts: Any = [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": PICTURE}]
    conversation: Any = [
        {"role": "user", "content": parts},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
            {"type": "output_text", "text": "So:", "annotations": []}
        ]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "id": "fc_1", "call_id": "1", "name": "pick", "arguments": '{"row": 1}'},
        {"type": "function_call_output", "call_id": "1", "output": "done"},
    ]  # fmt: skip
    answer = client.responses.create(
        model="tiny", instructions="Be brief.", input=conversation, tools=TOOLS, max_output_tokens=9,
        extra_body=SEED, store=False, include=["reasoning.encrypted_content"],
    )  # fmt: skip
    call = {"id": "1", "type": "function", "function": {"name": "pick", "arguments": '{"row": 1}'}}
    picture = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
    same = chat(
        client,
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": picture},
            {"role": "assistant", "content": "So:", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "done"},
        ],
        tools=CHAT_TOOLS,
        max_tokens=9,
    )
    assert answer.output_text == same.choices[0].message.content
    assert answer.usage is not None and same.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (
        same.usage.prompt_tokens,
        same.usage.completion_tokens,
    )
    cut = same.choices[0].finish_reason == "length"
    assert answer.status == ("incomplete" if cut else "completed")
    assert (answer.incomplete_details is not None) == cut and (answer.error, answer.store) == (None, False)


def test_a_stream_is_the_answer_in_pieces(client):
    settings: Any = {"model": "tiny", "input": "go", "extra_body": SEED, "max_output_tokens": 20}
    whole = client.responses.create(**settings)
    pieces, kinds = "", []
    with client.responses.stream(**settings) as stream:
        for event in stream:
            kinds.append(event.type)
            pieces += event.delta if event.type == "response.output_text.delta" else ""
        final = stream.get_final_response() if whole.status == "completed" else None
    assert pieces == whole.output_text
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == f"response.{whole.status}"
    assert final is None or final.output_text == pieces


def test_a_forced_tool_is_called_and_its_call_comes_back(client):
    settings: Any = {"model": "tiny", "tools": TOOLS, "tool_choice": NAMED, "extra_body": SEED}
    asked: Any = [{"role": "user", "content": "go"}]
    answer = client.responses.create(input=asked, **settings)
    (call,) = answer.output
    assert call.type == "function_call" and json.loads(call.arguments)["row"] in (1, 2)
    with client.responses.stream(input=asked, **settings) as stream:
        (streamed,) = stream.get_final_response().output
    assert streamed.type == "function_call" and streamed.arguments == call.arguments
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
    after = client.responses.create(
        input=[*asked, *answer.output, result], **settings | {"tool_choice": "auto"}
    )
    assert after.usage is not None and answer.usage is not None
    assert after.usage.input_tokens > answer.usage.input_tokens


def test_text_follows_a_schema(client):
    answer = client.responses.parse(model="tiny", input="go", text_format=Row, extra_body=SEED)
    assert answer.output_parsed is not None and answer.output_parsed.row in (1, 2)
    free = client.responses.create(
        model="tiny",
        input="go",
        text={"format": {"type": "json_object"}, "verbosity": "low"},
        extra_body=SEED,
    )
    same = chat(client, [{"role": "user", "content": "go"}], response_format={"type": "json_object"})
    assert free.output_text == same.choices[0].message.content


def test_a_forced_call_that_is_cut_is_an_error(client):
    settings: Any = {"model": "tiny", "input": "go", "tools": TOOLS, "tool_choice": "required"}
    with pytest.raises(openai.BadRequestError, match="the call is cut after 4 tokens: allow more"):
        client.responses.create(**settings, max_output_tokens=4)
    with pytest.raises(openai.APIError, match="the call is cut after 4 tokens: allow more"):
        for _ in client.responses.create(**settings, max_output_tokens=4, stream=True):
            pass
    messages = [{"role": "user", "content": "go"}]
    with pytest.raises(openai.BadRequestError, match="the call is cut after 4 tokens: allow more"):
        chat(client, messages, tools=CHAT_TOOLS, tool_choice="required", max_tokens=4)


@pytest.mark.parametrize(
    ("change", "reason", "param"),
    [
        ({"previous_response_id": "resp_1"}, "nothing is stored here: send the whole conversation", None),
        ({"input": [{"type": "computer_call", "id": "1"}]}, "only items of type message", "input.0"),
        ({"input": [{"role": "user", "content": [FILE]}]}, "input_file", "input.0.message.content.0"),
        ({"input": [{"role": "robot", "content": "x"}]}, "role", "input.0.message.role"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type", "tools.0.type"),
        ({"max_output_tokens": 129}, "max_output_tokens: 129 is over", "max_output_tokens"),
        ({"text": {"format": {"type": "json_schema"}}}, "schema", "text.format.json_schema.schema"),
        ({"temperature": 9}, "temperature", "temperature"),
        ({"truncation": "auto"}, "truncation", "truncation"),
        ({"unheard_of": 1}, "unheard_of", "unheard_of"),
    ],
)  # fmt: skip
def test_invalid_requests_are_refused_in_one_line_with_the_names_of_this_api(
    roomy_url, change, reason, param
):
    body = {"model": "tiny", "input": "go"} | change
    answer = httpx.post(f"{roomy_url}/v1/responses", json=body, timeout=3000)
    error = answer.json()["error"]
    assert answer.status_code == 400 and reason in error["message"] and "\n" not in error["message"]
    assert error["param"] == param
