import base64
import contextlib
import io
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
from flax import nnx
from PIL import Image
from pydantic import ValidationError
from starlette.routing import Route

from configs.serve import get_config
from experiments.serve import main as serve
from rmsweb_jax.data.batching import Branch, Example, Tree, lay_out
from rmsweb_jax.data.packing import Part, RowShape
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.checkpoint import load_model
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.processor import EncodedPrompt, Processor
from rmsweb_jax.serve.app import make_app
from rmsweb_jax.serve.config import ServeSettings
from rmsweb_jax.serve.http import bind
from rmsweb_jax.serve.protocol import ChatRequest, parse_body, to_messages
from rmsweb_jax.serve.replies import Generation
from rmsweb_jax.serve.tools import closed
from rmsweb_jax.settings import from_config
from tests.qwen.rows import token_log_probs
from tests.serve.conftest import CONFIG, serving
from tests.virtual_devices import device_environment

ROOT = Path(__file__).parents[2]
JSON = {"Content-Type": "application/json"}
ASK = {"messages": [{"role": "user", "content": "go"}], "seed": 1}
# Requests whose client has gone away.
GONE = 'rmsweb_responses_total{status="499"}'


def encoded(processor: Processor, body: dict) -> EncodedPrompt:
    messages, images = to_messages(parse_body(ChatRequest, json.dumps(body).encode()), 1)
    return processor.encode_prompt(messages, images.__getitem__)


def post(url: str, body: dict) -> httpx.Response:
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=3000)


def schema(body: dict) -> dict:
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": body}}


TOOLS = [{"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}}]
VIDEO = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}


def image_url(seed: int) -> str:
    pixels = np.random.default_rng(seed).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def with_image(image: str) -> dict:
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": image}}]
    return {"messages": [{"role": "user", "content": parts}], "seed": 1}


def test_the_openai_client_gets_its_choices_and_usage(url):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    answer = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "go"}],
        n=4,
        seed=7,
        temperature=1.0,
        max_tokens=5,
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert all(choice.finish_reason in ("stop", "length") for choice in answer.choices)
    assert answer.usage is not None
    # One token a byte: three headers, two texts, the control tokens and newlines around them.
    text = "system\nBe brief.\nuser\ngo\nassistant\n"
    assert answer.usage.prompt_tokens == len(text) + 5
    assert 4 <= answer.usage.completion_tokens <= 20
    assert client.models.list().data[0].id == "tiny"


def test_the_image_is_seen(url):
    replies = [post(url, with_image(image_url(seed))).json() for seed in (1, 2, 1)]
    texts = [reply["choices"][0]["message"]["content"] for reply in replies]
    assert texts[0] == texts[2] != texts[1]
    # 64 x 32 pixels in 32-pixel tokens, and the two marks around them, are longer than text alone.
    assert replies[0]["usage"]["prompt_tokens"] == len("user\nsee\nassistant\n") + 3 + 2 * 2 + 2


def test_only_the_last_turn_is_read_where_the_server_is_set_so(url, engine, processor):
    system, last = {"role": "system", "content": "Be brief."}, with_image(image_url(2))["messages"]
    # With more pictures than a request may have.
    grown = [system, *with_image(image_url(1))["messages"], {"role": "assistant", "content": "a"}, *last]
    with serving(engine, processor, turns="last") as trimmed:
        answers = [post(trimmed, ASK | {"messages": grown}), post(url, ASK | {"messages": [system, *last]})]
        results = [{"role": "tool", "content": text} for text in "bc"]
        answers += [
            post(trimmed, ASK | {"messages": [*grown, *results]}),
            post(url, ASK | {"messages": [system, *results]}),
        ]
    choices = [answer.json()["choices"] for answer in answers]
    assert choices[0] == choices[1] != choices[2] == choices[3]
    assert post(url, ASK | {"messages": grown}).status_code == 400


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"messages": []}, "messages"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"min_p": 0.1}, "min_p"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
        ({"unheard_of": 1}, "unheard_of"),
        ({"max_tokens": 13}, "over this server's limit of 12"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "b"}}}, "no tool 'b'"),
        ({"n": 0}, "n: "),
        ({"n": 129}, "n: "),
        ({"seed": 2**63}, "seed"),
        ({"stop": ["a", ""]}, "none of them empty"),
        ({"stop": list("abcde")}, "at most 4"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "json_schema: Field required"),
        ({"response_format": schema({"type": "foo"})}, "response_format: Invalid type"),
        ({"response_format": schema({"not": {}})}, 'response_format: Unimplemented keys: ["not"]'),
        ({"response_format": schema({"$ref": "http://x/y"})}, "response_format: Resource"),
        ({"stop_token_ids": [0]}, "stop_token_ids: only"),
        ({"ignore_eos": True, "response_format": {"type": "json_object"}}, "ignore_eos"),
        ({"logit_bias": {"5": -100}}, "token 5 is served"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "role"),
        ({"messages": [{"role": "user", "content": "x" * 500}]}, "128"),
        ({"messages": [{"role": "user", "content": "x" * 5000}]}, "5,000 characters do not fit"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content: Input"),
        (with_image("https://example.test/a.png"), "only data:image"),
        (with_image("data:video/mp4;base64,AAAA"), "only data:image"),
        ({"messages": [{"role": "user", "content": [VIDEO]}]}, "messages.0.content.0: Input tag 'video_url'"),
        (with_image("data:image/png;base64,!!!"), "image_url"),
        (with_image("data:image/png;base64,aGVsbG8="), "cannot be read"),
    ],
)
def test_invalid_requests_are_refused_in_one_line(url, change, reason):
    response = post(url, ASK | change)
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert reason in message
    assert "\n" not in message


def test_tokens_and_log_probs_of_prompt_and_replies(url, processor):
    end, banned = processor.end_id, processor.banned_ids
    plain = {"stop_token_ids": [end], "ignore_eos": True, "logit_bias": dict.fromkeys(banned, -100)}
    plain |= {"top_k": -1, "top_p": 1, "min_p": 0, "presence_penalty": 0, "repetition_penalty": 1}
    answer = post(url, ASK | plain | {"n": 4, "logprobs": True, "return_token_ids": True}).json()
    prompt = encoded(processor, ASK)
    assert answer["prompt_token_ids"] == prompt.tokens.tolist()
    bare = post(url, ASK | {"n": 4}).json()
    for choice, other in zip(answer["choices"], bare["choices"], strict=True):
        entries = choice["logprobs"]["content"]
        assert len(entries) == len(choice["token_ids"])
        assert all(entry["logprob"] < 0 for entry in entries)
        ended = choice["finish_reason"] == "stop"
        assert (choice["token_ids"][-1] == end) == ended
        assert choice["message"] == other["message"]
        assert other["logprobs"] is None
        assert "token_ids" not in other
    assert "prompt_token_ids" not in bare


def test_log_probs_are_those_of_the_training_forward(url, processor, model_folder):
    """Four replies to a picture, by the openai client."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    body = with_image(image_url(3))
    answer = client.chat.completions.create(
        model="tiny", messages=body["messages"], n=4, seed=1, logprobs=True,
        extra_body={"return_token_ids": True},
    )  # fmt: skip
    prompt = encoded(processor, body)
    model = load_model(model_folder)
    assert len(answer.choices) == 4
    for choice in answer.choices:
        tokens = np.asarray(choice.model_extra["token_ids"], np.int32)
        assert choice.logprobs is not None and choice.logprobs.content is not None
        served = [entry.logprob for entry in choice.logprobs.content]
        np.testing.assert_allclose(served, trained_log_probs(model, prompt, tokens), atol=1e-4)


def trained_log_probs(model: Qwen3VL, prompt: EncodedPrompt, tokens: np.ndarray) -> np.ndarray:
    """Log-probabilities of a response, as SFT and RL compute them."""
    example = Example(
        "", np.concatenate([prompt.tokens, tokens]), len(prompt.tokens), np.zeros(len(tokens), bool),
        patches=prompt.patches, grids=prompt.grids,
    )  # fmt: skip
    window = max(len(patches) for patches in prompt.patches)
    tree = Tree(example, (Branch(example.target),))
    row = RowShape(width=128, rows=1, images=1, window=window)
    inputs = lay_out(lambda _: tree, [(Part(0, (0,)),)], row, model.config).inputs
    start = len(prompt.tokens)
    return np.asarray(_score(model, inputs))[0, start : start + len(tokens)]


_score = nnx.jit(lambda model, inputs: token_log_probs(model, inputs).log_probs)


def test_a_stream_is_the_reply_in_pieces(url):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    settings = {"model": "tiny", "messages": ASK["messages"], "seed": 3, "n": 2, "logprobs": True}
    whole = client.chat.completions.create(**settings)
    texts, values, reasons, usage = ["", ""], [[], []], [None, None], None
    more = {"stream": True, "stream_options": {"include_usage": True}}
    for chunk in client.chat.completions.create(**settings, **more):
        usage = chunk.usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            if choice.logprobs:
                values[choice.index] += [entry.logprob for entry in choice.logprobs.content]
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
    assert usage == whole.usage
    for choice, text, log_probs, reason in zip(whole.choices, texts, values, reasons, strict=True):
        assert (text, reason) == (choice.message.content, choice.finish_reason)
        assert log_probs == pytest.approx([entry.logprob for entry in choice.logprobs.content], abs=1e-5)


@pytest.mark.slow
def test_the_openai_client_of_the_proof_works(roomy_url):
    """The script that `make proof-clients` runs with the newest client, with the one installed here."""
    command = [sys.executable, "tests/serve/third_party/openai_client.py", f"{roomy_url}/v1", "tiny"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("REPORT ")]
    checks = json.loads(line.removeprefix("REPORT "))["checks"]
    assert [check for check in checks if not check["works"]] == [] and len(checks) == 8


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "pick"}}])
def test_a_forced_tool_is_called(roomy_url, choice):
    """A grammar holds an untrained model to the form of a call."""
    parameters = {
        "type": "object",
        "properties": {"row": {"enum": [1, 2]}},
        "required": ["row"],
        "additionalProperties": False,
    }
    tools = [{"type": "function", "function": {"name": "pick", "parameters": parameters}}]
    client = openai.OpenAI(base_url=f"{roomy_url}/v1", api_key="none", max_retries=0)
    settings = {"model": "tiny", "messages": ASK["messages"], "seed": 1}
    settings |= {"tools": tools, "tool_choice": choice}
    answer = client.chat.completions.create(**settings).choices[0]
    chunks = [chunk.choices[0] for chunk in client.chat.completions.create(**settings, stream=True)]
    # The conversation goes on with the call and its result.
    (call,) = answer.message.tool_calls
    more = [answer.message, {"role": "tool", "tool_call_id": call.id, "content": "done"}]
    after = client.chat.completions.create(
        model="tiny", messages=[*settings["messages"], *more], tools=tools, max_tokens=4
    )
    assert answer.finish_reason == "tool_calls" == chunks[-1].finish_reason
    assert call.function.name == "pick" and json.loads(call.function.arguments)["row"] in (1, 2)
    (streamed,) = [one for chunk in chunks for one in chunk.delta.tool_calls or ()]
    assert streamed.function.arguments == call.function.arguments
    assert not any(chunk.delta.content for chunk in chunks)
    assert after.choices[0].finish_reason


def test_stop_texts_and_limits_cut_a_reply(url):
    full = post(url, ASK | {"return_token_ids": True}).json()["choices"][0]
    text = full["message"]["content"]
    # Over two of the byte-sized tokens, inside the reply.
    stop = text[4:6]
    cut = post(url, ASK | {"stop": ["never", stop], "return_token_ids": True}).json()["choices"][0]
    assert (cut["message"]["content"], cut["finish_reason"]) == (text[: text.index(stop)], "stop")
    assert cut["token_ids"] == full["token_ids"][: len(cut["token_ids"])] != full["token_ids"]
    late = post(url, ASK | {"max_tokens": 3, "return_token_ids": True}).json()["choices"][0]
    assert (late["token_ids"], late["finish_reason"]) == (full["token_ids"][:3], "length")


@pytest.mark.parametrize("limit", [{"top_k": 1}, {"top_p": 1e-6}])
def test_the_narrowest_limit_is_the_greedy_reply(url, limit):
    greedy, limited = (post(url, ASK | more).json() for more in ({"temperature": 0}, limit))
    assert limited["choices"][0]["message"] == greedy["choices"][0]["message"]


def test_other_hosts_and_origins_are_refused(url):
    foreign = [("Host", "example.test"), ("Host", "[")]
    foreign += [("Origin", value) for value in ("https://example.test", "http://[", "null")]
    for header in foreign:
        answer = httpx.post(f"{url}/v1/chat/completions", json=ASK, headers=[header], timeout=3000)
        assert (answer.status_code, "is not this machine" in answer.text) == (403, True)
    plain = httpx.post(f"{url}/v1/chat/completions", content=json.dumps(ASK), timeout=3000)
    assert plain.status_code == 415


def adapters(url: str, verb: str, **body: str) -> httpx.Response:
    return httpx.post(f"{url}/v1/{verb}_lora_adapter", json=body, timeout=3000)


def test_adapters_come_and_go(url, adapter_folder):
    assert post(url, ASK | {"model": "v1"}).status_code == 404
    loaded = adapters(url, "load", lora_name="v1", lora_path=str(adapter_folder))
    assert (loaded.status_code, loaded.text) == (200, "Success: LoRA adapter 'v1' added successfully.")
    again = adapters(url, "load", lora_name="v1", lora_path=str(adapter_folder))
    assert (again.status_code, "already been loaded" in again.text) == (400, True)
    listed = httpx.get(f"{url}/v1/models", timeout=3000).json()["data"]
    assert [(entry["id"], entry["parent"]) for entry in listed] == [("tiny", None), ("v1", "tiny")]
    base, other = (post(url, ASK | {"model": model}).json() for model in ("tiny", "v1"))
    assert (base["model"], other["model"]) == ("tiny", "v1")
    assert base["choices"] != other["choices"]
    assert adapters(url, "unload", lora_name="v1").status_code == 200
    assert post(url, ASK | {"model": "v1"}).status_code == 404


@pytest.mark.parametrize(
    ("verb", "body", "reason"),
    [
        ("load", {"lora_name": "x"}, "lora_path: Field required"),
        ("load", {"lora_name": "", "lora_path": "p"}, "lora_name"),
        ("load", {"lora_name": "tiny", "lora_path": "p"}, "is the model itself"),
        ("load", {"lora_name": "x", "lora_path": "/nowhere"}, "cannot read the adapters' settings"),
        ("unload", {"lora_name": "x"}, "'x' is not loaded"),
        ("unload", {"lora_name": ""}, "'' is not loaded"),
    ],
)
def test_bad_adapters_are_refused_in_one_line(url, verb, body, reason):
    response = adapters(url, verb, **body)
    assert response.status_code == 400
    assert reason in response.json()["error"]["message"]


def test_adapters_are_off_by_default(engine, processor):
    app = make_app(engine, processor, CONFIG.model_copy(update={"adapters": 0}))
    paths = {route.path for route in app.routes if isinstance(route, Route)}
    assert "/v1/chat/completions" in paths and not any("lora" in path for path in paths)


def test_two_images_are_one_too_many(url):
    body = with_image(image_url(1))
    # Counted before any is decoded.
    body["messages"] += with_image("data:image/png;base64,!!!")["messages"]
    assert "at most 1" in post(url, body).json()["error"]["message"]


def test_invalid_json_another_model_and_an_unknown_path(url):
    broken = httpx.post(f"{url}/v1/chat/completions", content=b"{", headers=JSON, timeout=3000)
    assert (broken.status_code, "JSON" in broken.json()["error"]["message"]) == (400, True)
    assert post(url, ASK | {"model": "gpt"}).status_code == 404
    assert httpx.get(f"{url}/v1/nothing", timeout=3000).status_code == 404


def test_a_taken_port_is_a_user_error():
    with bind(0) as sock:
        sock.listen()
        with pytest.raises(UserError, match=r"--config\.port=0"):
            bind(sock.getsockname()[1])


def test_health_and_metrics(url):
    before = metric(url, 'rmsweb_responses_total{status="200"}')
    post(url, ASK | {"n": 3})
    post(url, ASK | {"n": 0})
    assert metric(url, 'rmsweb_responses_total{status="200"}') == before + 1
    assert metric(url, 'rmsweb_responses_total{status="400"}') >= 1
    assert metric(url, "rmsweb_generated_tokens_total") > 0
    assert metric(url, "rmsweb_request_seconds_count") > 0


def metric(url: str, name: str) -> float:
    lines = httpx.get(f"{url}/metrics", timeout=3000).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_a_missing_or_wrong_key_is_refused(engine, processor):
    with serving(engine, processor, api_key="schlüssel") as url:
        for given in (b"", b"Bearer other", "schlüssel".encode()):
            headers = {b"Authorization": given}
            answer = httpx.post(f"{url}/v1/chat/completions", json=ASK, headers=headers, timeout=3000)
            assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")
        assert httpx.get(f"{url}/v1/models", timeout=3000).status_code == 401
        assert httpx.get(f"{url}/health", timeout=3000).status_code == 200
        right = {b"Authorization": "Bearer schlüssel".encode()}
        answer = httpx.post(f"{url}/v1/chat/completions", json=ASK, headers=right, timeout=3000)
        assert answer.status_code == 200
        with pytest.raises(openai.AuthenticationError, match="missing or wrong"):
            openai.OpenAI(base_url=f"{url}/v1", api_key="other", max_retries=0).models.list()


def test_a_body_that_is_too_large_is_refused_before_it_is_read(engine, processor):
    large = json.dumps(ASK).encode() + b" " * 5000
    with serving(engine, processor, max_body_mb=4096 / 2**20) as url:
        sized = httpx.post(f"{url}/v1/chat/completions", content=large, headers=JSON, timeout=3000)
        # Without a Content-Length the size is known only at the end.
        parts = iter([large[:3000], large[3000:]])
        chunked = httpx.post(f"{url}/v1/chat/completions", content=parts, headers=JSON, timeout=3000)
        assert (sized.status_code, chunked.status_code) == (413, 413)
        assert "limit of 4096" in sized.json()["error"]["message"]
        assert post(url, ASK).status_code == 200


def test_a_client_that_goes_away_is_not_computed_for(make, processor):
    idle = make()
    with serving(idle, processor) as url:
        # The engine has not begun, so that the answer cannot come first.
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/v1/chat/completions", json=ASK, timeout=0.5)
        wait_for(lambda: metric(url, GONE) == 1)
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=ASK | {"stream": True}):
            pass
        wait_for(lambda: metric(url, "rmsweb_cancelled_requests_total") == 2)
        idle.start()
        assert post(url, ASK | {"seed": 2}).status_code == 200
        assert metric(url, "rmsweb_replies_total") == 1
    idle.close()


def wait_for(condition: Callable[[], bool]) -> None:
    """Looks again and again, for as long as a slow machine may take."""
    deadline = time.monotonic() + 3000
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)


def test_sixty_four_clients_at_once(url):
    bodies = [ASK | {"seed": seed, "n": 1 + 3 * (seed % 2)} for seed in range(64)]
    with ThreadPoolExecutor(64) as pool:
        replies = list(pool.map(lambda body: post(url, body), bodies))
    assert [reply.status_code for reply in replies] == [200] * 64
    assert [len(reply.json()["choices"]) for reply in replies] == [body["n"] for body in bodies]
    assert len({reply.text for reply in replies}) == 64


def test_a_schema_in_the_request_is_held_to(url):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    answer = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "go"}],
        n=4,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "count", "schema": {"type": "integer", "minimum": 10, "maximum": 99}},
        },
    )
    assert all(10 <= int(choice.message.content or "") <= 99 for choice in answer.choices)
    assert all(choice.finish_reason == "stop" for choice in answer.choices)
    some = post(url, ASK | {"response_format": {"type": "json_object"}, "max_tokens": 2}).json()
    assert some["choices"][0]["message"]["content"].startswith("{")


def start(model: Path, workdir: Path, *more: str, devices: int = 1) -> subprocess.Popen:
    settings = (f"model={model}", "lanes=2", "samples=1", "prompt_tokens=64", "max_pixels=4096", *more)
    flags = [f"--config.{setting}" for setting in settings]
    command = [sys.executable, "-m", "experiments.serve", "--config=configs/serve.py:demo", *flags]
    return subprocess.Popen(
        [*command, f"--workdir={workdir}"],
        cwd=ROOT,
        env=device_environment(devices),
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_the_script_serves_from_two_devices_until_sigterm_and_answers_all_it_has_taken(
    model_folder, url, tmp_path
):
    process = start(model_folder, tmp_path, "max_new_tokens=128", "mesh.tensor=2", devices=2)
    endpoint = tmp_path / "endpoint.json"
    wait_for(lambda: endpoint.exists() or process.poll() is not None)
    state = json.loads(endpoint.read_text())
    assert state["pid"] == process.pid
    with ThreadPoolExecutor(6) as pool:
        bodies = [ASK | {"seed": seed} for seed in range(6)]
        futures = [
            pool.submit(httpx.post, f"{state['url']}/chat/completions", json=body, timeout=3000)
            for body in bodies
        ]
        # All of them are in the only slot or wait for it.
        root = state["url"].removesuffix("/v1")
        held = ("rmsweb_running_requests", "rmsweb_replies_total")
        wait_for(lambda: sum(metric(root, name) for name in held) >= 6)
        os.kill(process.pid, signal.SIGTERM)
        replies = [future.result() for future in futures]
    assert [reply.status_code for reply in replies] == [200] * 6
    # What one device says.
    expected = [post(url, body).json()["choices"][0]["message"]["content"] for body in bodies]
    texts = [reply.json()["choices"][0]["message"]["content"] for reply in replies]
    assert all(text.startswith(start) for text, start in zip(texts, expected, strict=True))
    assert {reply.json()["model"] for reply in replies} == {str(model_folder)} == {state["model"]}
    _, errors = process.communicate(timeout=3000)
    assert (process.returncode, endpoint.exists()) == (0, False)
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("host=0.0.0.0", "name a variable with a key"),
        ("host=example", "not an IP address"),
        ("api_key_env=RMSWEB_NO_SUCH_KEY", "export RMSWEB_NO_SUCH_KEY=KEY"),
    ],
)
def test_invalid_settings_are_reported(setting, reason, model_folder, tmp_path):
    config = get_config("demo")
    name, value = setting.split("=")
    config.update({"model": str(model_folder), name: value})
    with pytest.raises(UserError, match=reason):
        serve(from_config(ServeSettings, config), tmp_path)


def test_a_bad_model_folder_gives_one_line(tmp_path):
    (tmp_path / "model").mkdir()
    process = start(tmp_path / "model", tmp_path / "work")
    _, errors = process.communicate(timeout=3000)
    assert process.returncode == 2
    assert errors.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in errors


def test_a_reply_that_ignores_the_end_token_has_all_its_tokens(url, processor):
    end = processor.end_id
    for seed in range(4):
        body = {"seed": seed, "n": 4, "ignore_eos": True, "return_token_ids": True, "temperature": 2.0}
        for choice in post(url, ASK | body).json()["choices"]:
            assert len(choice["token_ids"]) == 12 and end not in choice["token_ids"]
            assert choice["finish_reason"] == "length"


def events(url: str, body: dict) -> list[str]:
    """The events of a stream."""
    with httpx.stream(
        "POST", f"{url}/v1/chat/completions", json=body | {"stream": True}, timeout=3000
    ) as answer:
        assert answer.status_code == 200
        return [line.removeprefix("data: ") for line in answer.iter_lines() if line]


def test_a_log_probability_that_is_not_a_number_is_an_error_object(make, processor, monkeypatch):
    engine = make()
    run = engine.engine._run_decode

    def damaged(*arguments):
        out = run(*arguments)
        return out._replace(log_probs=np.full(out.log_probs.shape, np.nan, np.float32))

    engine.start()
    with serving(engine, processor) as url:
        monkeypatch.setattr(engine.engine, "_run_decode", damaged)
        answer = post(url, ASK)
        *_, last, done = events(url, ASK)
        monkeypatch.undo()
        # The request failed, and not the server.
        assert post(url, ASK).status_code == 200
        assert metric(url, "rmsweb_replies_total") == 1
    engine.close()
    for error in (answer.json()["error"], json.loads(last)["error"]):
        assert (error["type"], "not a number" in error["message"]) == ("server_error", True)
    assert (answer.status_code, done) == (500, "[DONE]")


def test_a_stream_that_fails_ends_with_an_error_object(url, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr(Generation, "chunk", fail)
    error, done = events(url, ASK)
    assert (json.loads(error)["error"]["type"], done) == ("server_error", "[DONE]")
    assert "a bug" in caplog.text


def test_requests_that_run_when_the_drain_ends_get_an_error_object(make, processor, monkeypatch, caplog):
    engine = make()
    monkeypatch.setattr(engine.engine, "_step", lambda: time.sleep(0.01))
    engine.start()
    with ThreadPoolExecutor(1) as pool:
        with serving(engine, processor, drain_seconds=0.2) as url:
            future = pool.submit(post, url, ASK)
            wait_for(lambda: len(engine._pending) == 1)
        answer = future.result()
    assert (answer.status_code, "has stopped" in answer.json()["error"]["message"]) == (503, True)
    assert "Traceback" not in caplog.text


def test_requests_under_way_get_an_error_object_when_the_engine_dies(make, processor, monkeypatch):
    engine = make()
    step, calls = engine.engine._step, iter(range(100))

    def dies():
        if next(calls) > 1:
            raise MemoryError("no room")
        step()

    monkeypatch.setattr(engine.engine, "_step", dies)
    body = ASK | {"ignore_eos": True}
    with serving(engine, processor) as url, ThreadPoolExecutor(3) as pool:
        plain = [pool.submit(post, url, body) for _ in range(2)]
        streamed = pool.submit(events, url, body)
        wait_for(lambda: len(engine._pending) == 3)
        engine.start()
        answers = [future.result() for future in plain]
        *_, last, done = streamed.result()
        with pytest.raises(openai.InternalServerError, match="has stopped"):
            openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0).chat.completions.create(
                model="tiny", messages=ASK["messages"]
            )
        assert httpx.get(f"{url}/health", timeout=3000).status_code == 503
    assert [answer.status_code for answer in answers] == [503, 503]
    assert all(answer.headers["retry-after"] for answer in answers)
    assert ("has stopped" in json.loads(last)["error"]["message"], done) == (True, "[DONE]")


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("/v1/nothing", b"{}", 404),
        ("/v1/embeddings", b"{}", 404),
        ("/v1/models", b"{}", 405),
        ("/v1/chat/completions", b"[]", 400),
        ("/v1/chat/completions", b"", 400),
        ("/v1/chat/completions", b"[" * 100_000, 400),
        ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "\xff"}]}', 400),
        ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 400),
        ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "x"}], "top_p": NaN}', 400),
        ("/v1/completions", b'{"prompt": "x"}', 404),
    ],
)
def test_every_error_is_an_error_object(url, path, content, status):
    answer = httpx.post(url + path, content=content, headers=JSON, timeout=3000)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["message"] and error["type"] == "invalid_request_error" and "\n" not in error["message"]


def nested(depth: int) -> dict:
    inner: dict = {"type": "string"}
    for _ in range(depth):
        inner = {"type": "array", "items": inner}
    return inner


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"$ref": "#"}, "no text follows this schema"),
        (nested(400), "recursion"),
        ({"enum": [f"number {index}" for index in range(100_000)]}, "at most 200,000"),
    ],
)
def test_recursive_and_huge_schemas_are_refused(url, body, reason):
    answer = post(url, ASK | {"response_format": schema(body)})
    assert (answer.status_code, reason in answer.json()["error"]["message"]) == (400, True)


def test_headers_and_bodies_must_arrive_in_time(engine, processor, caplog):
    with serving(engine, processor, read_seconds=2.0) as url:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        whole = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        for before in (b"", whole):
            # Also for the second request of a connection.
            with socket.create_connection(address, timeout=3000) as sock:
                sock.sendall(before + b"POST /v1/chat")
                while sock.recv(4096):
                    pass
        with socket.create_connection(address, timeout=3000) as sock:
            head = (
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            )
            sock.sendall(head + b"Content-Length: 100\r\n\r\n{")
            assert b" 408 " in sock.recv(4096).splitlines()[0]
        # A body that goes on, or is broken, after the answer.
        for how, more in ((b"Content-Length: 100", b"{"), (b"Transfer-Encoding: chunked", b"zz\r\n")):
            with socket.create_connection(address, timeout=60) as sock:
                sock.sendall(b"POST /v1/nothing HTTP/1.1\r\nHost: 127.0.0.1\r\n" + how + b"\r\n\r\n")
                assert b" 404 " in sock.recv(4096).splitlines()[0]
                with contextlib.suppress(ConnectionError):
                    sock.sendall(more)
                    while sock.recv(4096):
                        pass
        assert "Traceback" not in caplog.text
        assert post(url, ASK).status_code == 200


def test_uploads_that_break_off_leave_no_traceback(url, caplog):
    address = ("127.0.0.1", int(url.rpartition(":")[2]))
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    before = metric(url, GONE)
    for reset in (False, True):
        with socket.create_connection(address, timeout=3000) as sock:
            sock.sendall(head + b'Content-Length: 100000\r\n\r\n{"messages": [')
            if reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_for(lambda: metric(url, GONE) == before + 2)
    assert "Traceback" not in caplog.text
    assert post(url, ASK).status_code == 200


def test_objects_have_only_the_properties_that_a_schema_names():
    inner = {"type": "object", "properties": {"properties": {"type": "string"}}}
    open_ones = ({"properties": {}, "additionalProperties": {"type": "string"}}, {"allOf": [inner, inner]})
    # Closed parts would forbid each other's properties.
    open_ones += (inner | {"anyOf": [inner, {"properties": {"b": {}}}]},)
    named = inner | {"additionalProperties": False}
    assert closed({"items": inner, "$defs": {"a": inner}}) == {"items": named, "$defs": {"a": named}}
    assert closed({"anyOf": [inner, inner]}) == {"anyOf": [named, named]}
    assert [closed(one) for one in open_ones] == list(open_ones)


@pytest.mark.parametrize(
    "body", [{"messages": [1] * 100_000}, {f"key {number}": 1 for number in range(100_000)}]
)
def test_a_body_full_of_errors_is_refused_for_one(body):
    with pytest.raises(ValidationError) as error:
        ChatRequest.model_validate_json(json.dumps(body))
    assert error.value.error_count() == 1


def test_what_clients_send_back_is_understood():
    """A conversation of litellm's and OpenAI's clients, with pictures where web agents have them."""
    picture = with_image(image_url(1))["messages"][0]["content"]
    call = {"id": "1", "type": "function", "function": {"name": "a", "arguments": ""}}
    messages = [
        {"role": "system", "content": picture},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "1", "content": picture},
        {
            "role": "assistant",
            "content": [{"type": "refusal", "refusal": "no"}],
            "provider_specific_fields": {},
        },
    ]
    asked = parse_body(ChatRequest, json.dumps({"messages": messages, "tools": TOOLS}).encode())
    system, called, result, refused = to_messages(asked, 2)[0]
    kinds = [[part.type for part in message.content] for message in (system, result)]
    assert kinds == [["text", "image", "text", "text"], ["text", "text", "image", "text"]]
    assert called.text == '<tool_call>\n{"name": "a", "arguments": {}}\n</tool_call>'
    assert result.text == "<tool_response>\nsee\n</tool_response>" and refused.text == "no"
