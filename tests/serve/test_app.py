import base64
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
from PIL import Image
from starlette.routing import Route

from rmsweb_jax.errors import UserError
from rmsweb_jax.serve.app import bind, make_app
from rmsweb_jax.serve.engine import Engine
from rmsweb_jax.serve.protocol import parse_request
from tests.serve.conftest import serving

ROOT = Path(__file__).parents[2]
ASK = {"messages": [{"role": "user", "content": "go"}], "seed": 1}


@pytest.fixture(scope="module")
def url(engine: Engine) -> Iterator[str]:
    with serving(engine, "tiny") as url:
        yield url


def post(url: str, body: dict) -> httpx.Response:
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120)


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


def test_replies_are_the_same_alone_and_under_load(url):
    bodies = [ASK | {"seed": seed} for seed in range(6)]
    alone = [post(url, body).json()["choices"] for body in bodies]
    with ThreadPoolExecutor(6) as pool:
        together = [reply.json()["choices"] for reply in pool.map(lambda body: post(url, body), bodies)]
    assert alone == together


def test_the_image_is_seen(url):
    replies = [post(url, with_image(image_url(seed))).json() for seed in (1, 2, 1)]
    texts = [reply["choices"][0]["message"]["content"] for reply in replies]
    assert texts[0] == texts[2] != texts[1]
    # 64 x 32 pixels in 32-pixel tokens, and the two marks around them, are longer than text alone.
    assert replies[0]["usage"]["prompt_tokens"] == len("user\nsee\nassistant\n") + 3 + 2 * 2 + 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"messages": []}, "messages"),
        ({"stream": True}, "stream"),
        ({"tools": []}, "tools"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0.5}, "top_p"),
        ({"n": 0}, "n: "),
        ({"n": 99}, "n: "),
        ({"seed": -1}, "seed"),
        ({"stop": ["\n"]}, "<|im_end|>"),
        ({"stop_token_ids": [0]}, "stop_token_ids: only"),
        ({"ignore_eos": True}, "ignore_eos"),
        ({"logit_bias": {"5": -100}}, "token 5 is served"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"top_k": 20}, "top_k"),
        ({"min_p": 0.1}, "min_p"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"top_logprobs": 5}, "top_logprobs"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "role"),
        ({"messages": [{"role": "user", "content": "x" * 500}]}, "at most 128"),
        (with_image("https://example.test/a.png"), "only data:image"),
        (with_image("data:video/mp4;base64,AAAA"), "only data:image"),
        ({"messages": [{"role": "user", "content": [VIDEO]}]}, "messages.0.content.0: Input tag 'video_url'"),
        (with_image("data:image/png;base64,!!!"), "image_url"),
        (with_image("data:image/png;base64,aGVsbG8="), "cannot be read"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(url, change, reason):
    response = post(url, ASK | change)
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert reason in message
    assert "\n" not in message


def test_tokens_and_log_probs_of_prompt_and_replies(url, engine):
    end, banned = engine._processor.end_id, engine._processor.banned_ids
    plain = {"stop_token_ids": [end], "ignore_eos": True, "logit_bias": dict.fromkeys(banned, -100)}
    plain |= {"top_k": -1, "top_p": 1, "min_p": 0, "presence_penalty": 0, "repetition_penalty": 1}
    answer = post(url, ASK | plain | {"n": 4, "logprobs": True, "return_token_ids": True}).json()
    prompt = engine.prepare(parse_request(json.dumps(ASK).encode())).prompt
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


def adapters(url: str, verb: str, **body: str) -> httpx.Response:
    return httpx.post(f"{url}/v1/{verb}_lora_adapter", json=body, timeout=120)


def test_adapters_come_and_go(url, adapter_folder):
    assert post(url, ASK | {"model": "v1"}).status_code == 404
    loaded = adapters(url, "load", lora_name="v1", lora_path=str(adapter_folder))
    assert (loaded.status_code, loaded.text) == (200, "Success: LoRA adapter 'v1' added successfully.")
    again = adapters(url, "load", lora_name="v1", lora_path=str(adapter_folder))
    assert (again.status_code, "already been loaded" in again.text) == (400, True)
    listed = httpx.get(f"{url}/v1/models").json()["data"]
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


def test_adapters_are_off_by_default(engine):
    paths = {route.path for route in make_app(engine, "tiny").routes if isinstance(route, Route)}
    assert paths == {"/v1/chat/completions", "/v1/models", "/health"}


def test_two_images_are_one_too_many(url):
    body = with_image(image_url(1))
    body["messages"] += with_image(image_url(2))["messages"]
    assert "at most 1" in post(url, body).json()["error"]["message"]


def test_invalid_json_another_model_and_an_unknown_path(url):
    broken = httpx.post(f"{url}/v1/chat/completions", content=b"{")
    assert (broken.status_code, "JSON" in broken.json()["error"]["message"]) == (400, True)
    assert post(url, ASK | {"model": "gpt"}).status_code == 404
    assert httpx.get(f"{url}/v1/nothing").status_code == 404


def test_health(url):
    assert httpx.get(f"{url}/health").json()["status"] == "ok"


def test_a_taken_port_is_a_user_error():
    with bind(0) as sock:
        sock.listen()
        with pytest.raises(UserError, match=r"--config\.port=0"):
            bind(sock.getsockname()[1])


def start(model: Path, workdir: Path) -> subprocess.Popen:
    settings = ("batch_sizes=(1,)", "prompt_widths=(64,)", "max_new_tokens=4", "max_pixels=4096")
    flags = [f"--config.{setting}" for setting in (f"model={model}", *settings)]
    command = [sys.executable, "-m", "experiments.serve", "--config=configs/serve.py:demo", *flags]
    return subprocess.Popen([*command, f"--workdir={workdir}"], cwd=ROOT, stderr=subprocess.PIPE, text=True)


def test_the_script_serves_until_sigterm(model_folder, tmp_path):
    process = start(model_folder, tmp_path)
    endpoint = tmp_path / "endpoint.json"
    deadline = time.monotonic() + 300
    while not endpoint.exists() and process.poll() is None and time.monotonic() < deadline:
        threading.Event().wait(0.1)
    state = json.loads(endpoint.read_text())
    assert state["pid"] == process.pid
    reply = httpx.post(f"{state['url']}/chat/completions", json=ASK, timeout=120)
    assert reply.json()["model"] == str(model_folder) == state["model"]
    os.kill(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, endpoint.exists()) == (0, False)
    assert "Traceback" not in errors


def test_a_bad_model_folder_is_told_in_one_line(tmp_path):
    (tmp_path / "model").mkdir()
    process = start(tmp_path / "model", tmp_path / "work")
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 2
    assert errors.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in errors
