"""Rollouts at a server that answers as vLLM does."""

import base64
import dataclasses
import json
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from werkzeug import Response

from rmsweb_jax.data.sources import stable_hash
from rmsweb_jax.decoding.requests import Request
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.processor import image_patches, open_image
from rmsweb_jax.rl.remote.generator import Endpoint, png_data_url
from rmsweb_jax.rl.remote.protocol import CHAT
from tests.loopback import free_port
from tests.rl.inference_server import (
    LIMIT,
    MAX_PIXELS,
    Policy,
    PromptServer,
    Server,
    draw,
    make_endpoint,
    make_policy,
    settings,
)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return make_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def server(policy: Policy) -> Iterator[Server]:
    # One for each test: what a test leaves unanswered must not reach the log of the next.
    with PromptServer(threaded=True) as http:
        yield Server(http, policy)


@pytest.fixture
def loaded(server: Server, policy: Policy, tmp_path: Path) -> Iterator[Endpoint]:
    endpoint = make_endpoint(settings(server.url, tmp_path), policy)
    endpoint.load(policy.model, 3)
    yield endpoint
    endpoint.unload()


# Of every prompt, from the requests' seeds 1, 2 and 3.
SEEDS = [stable_hash(number + 1, f"p{number}") for number in range(3)]
# Of every sample: vLLM counts on from the prompt's seed.
SAMPLE_SEEDS = [seed + sample for seed in SEEDS for sample in range(2)]


def check_drawn(drawn, server: Server):
    assert [len(responses.tokens) for responses in drawn] == [2, 2, 2]
    found = [tokens.tolist() for responses in drawn for tokens in responses.tokens]
    assert found == [server.tokens(seed) for seed in SAMPLE_SEEDS]
    for responses in drawn:
        for tokens, log_probs in zip(responses.tokens, responses.log_probs, strict=True):
            assert (tokens.dtype, log_probs.dtype) == (np.int32, np.float32)
            np.testing.assert_array_equal(log_probs, [-0.25, -0.5, -0.75])
        assert not responses.truncated.any()


def test_vllm_gets_adapters_then_a_request_for_each_prompt(server, policy, tmp_path):
    server.serve(CHAT, server.vllm)
    endpoint = make_endpoint(settings(server.url + "/v1/", tmp_path), policy)
    endpoint.load(policy.model, 3)
    (load,) = server.bodies("/v1/load_lora_adapter")
    folder = Path(load["lora_path"])
    assert (folder.parent, folder.name) == (tmp_path, load["lora_name"])
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["target_modules"] == ["k_proj", "o_proj", "q_proj", "v_proj"]
    assert (config["r"], config["lora_alpha"], config["base_model_name_or_path"]) == (2, 4.0, "base")

    check_drawn(draw(endpoint, policy), server)
    bodies = server.bodies(CHAT)
    assert sorted(body["seed"] for body in bodies) == sorted(SEEDS)
    body = bodies[0]
    assert (body["model"], body["n"]) == (load["lora_name"], 2)
    assert body["max_tokens"] == LIMIT and body["temperature"] == 1.0 and body["logprobs"]
    assert body["return_token_ids"] and body["ignore_eos"]
    assert body["stop_token_ids"] == [policy.processor.end_id]
    assert body["logit_bias"] == {str(token): -100 for token in policy.processor.banned_ids}
    assert (body["top_p"], body["top_k"], body["min_p"], body["repetition_penalty"]) == (1, -1, 0, 1)
    system, user = body["messages"]
    assert system == {"role": "system", "content": "You act in a browser."}
    assert [part["type"] for part in user["content"]] == ["text", "image_url"]

    endpoint.unload()
    assert [body["lora_name"] for body in server.bodies("/v1/unload_lora_adapter")] == [load["lora_name"]]
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_servers_that_refuse_seeds_get_none(server, policy, tmp_path):
    server.serve(CHAT, server.vllm)
    endpoint = make_endpoint(settings(server.url, tmp_path, seeded=False), policy)
    endpoint.load(policy.model, 0)
    draw(endpoint, policy)
    endpoint.unload()
    assert not any("seed" in json.dumps(body) for body in server.bodies(CHAT))


def test_the_image_that_is_sent_is_the_one_that_is_trained_on(policy):
    vision = policy.processor.config.vision
    png = policy.images.get(policy.prompts[0].messages[1].content[1].sha256)
    _, _, data = png_data_url(png, MAX_PIXELS, vision.patch_size * vision.spatial_merge_size).partition(",")
    sent = base64.b64decode(data)
    assert open_image(sent).size != open_image(png).size
    there, here = (image_patches(source, vision, MAX_PIXELS) for source in (sent, png))
    np.testing.assert_array_equal(there[0], here[0])
    assert there[1] == here[1]


def without_token_ids(answer, _):
    del answer["choices"][0]["token_ids"]


def without_log_probs(answer, _):
    answer["choices"][0]["logprobs"] = None


def longer_prompt(answer, _):
    answer["prompt_token_ids"].append(1)
    answer["usage"]["prompt_tokens"] += 1


def another_prompt(answer, _):
    answer["prompt_token_ids"][3] += 1


def banned(answer, policy):
    answer["choices"][0]["token_ids"][0] = policy.processor.banned_ids[0]


def no_choice(answer, _):
    answer["choices"] = []


def too_few_choices(answer, _):
    del answer["choices"][0]


def not_a_number(answer, _):
    answer["choices"][0]["logprobs"]["content"][1]["logprob"] = float("nan")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without_token_ids, "no token ids"),
        (without_log_probs, "no log-probabilities"),
        (longer_prompt, r"\d+ prompt tokens there, \d+ here; give the server the same tokenizer"),
        (another_prompt, "other ones from place 3 on"),
        (banned, "is banned and was drawn"),
        (no_choice, "not understood .choices"),
        (too_few_choices, "1 responses, not 2"),
        (not_a_number, "nan is not a log-probability"),
    ],
)
def test_answers_that_cannot_be_trained_on_are_one_line(server, policy, loaded, change, reason):
    def answer(body: dict) -> dict:
        found = server.vllm(body)
        if body["messages"][1]["content"][0]["text"].count("Click") == 2:
            change(found, policy)
        return found

    server.serve(CHAT, answer)
    with pytest.raises(UserError, match=reason) as raised:
        draw(loaded, policy)
    assert "\n" not in str(raised.value)
    assert server.url.rstrip("/") + CHAT in str(raised.value)
    if "not understood" not in reason:
        assert "prompt p1: " in str(raised.value)


def test_passing_failures_are_repeated(server, policy, loaded):
    failures = iter([500, 429])

    def answer(body: dict) -> dict | Response:
        status = next(failures, None)
        return Response("busy", status, {"Retry-After": "0"}) if status else server.vllm(body)

    server.serve(CHAT, answer)
    one = policy._replace(sampling=dataclasses.replace(policy.sampling, num_samples=1))
    (responses,) = draw(loaded, one, slice(0, 1))
    assert [tokens.tolist() for tokens in responses.tokens] == [server.tokens(SEEDS[0])]
    assert [body["seed"] for body in server.bodies(CHAT)] == [SEEDS[0]] * 3


@pytest.mark.parametrize(
    "response,reason",
    [
        (Response("<html>\nno\n</html>", 502), "status 502: no reason given; check that the server is up"),
        (
            Response(json.dumps({"error": {"message": "bad key"}}), 401),
            "status 401: bad key; check the API key",
        ),
    ],
    ids=["502", "401"],
)
def test_failures_that_last_are_one_line(server, policy, loaded, response, reason):
    server.serve(CHAT, lambda body: response)
    with pytest.raises(UserError, match=reason):
        draw(loaded, policy)


def test_a_server_that_is_down_is_one_line(policy, tmp_path):
    url = f"http://127.0.0.1:{free_port()}"
    endpoint = make_endpoint(settings(url, tmp_path), policy)
    with pytest.raises(UserError, match=rf"{url}/v1/models: no answer \(ConnectError"):
        endpoint.load(policy.model, 0)
    endpoint.unload()


def test_a_server_of_another_model_is_refused(server, policy, tmp_path):
    endpoint = make_endpoint(settings(server.url, tmp_path, model="other"), policy)
    with pytest.raises(UserError, match=r"serves base, not config\.endpoint\.model \(other\)"):
        endpoint.load(policy.model, 0)


def test_adapters_that_are_loaded_already_are_these_very_ones(server, policy, tmp_path):
    server.http.clear()
    server.http.expect_request("/v1/models").respond_with_json({"data": [{"id": "base"}]})
    # As vLLM answers, which knows them from before this process was started again.
    message = {"error": {"message": "The lora adapter 'x' has already been loaded.", "code": 400}}
    server.http.expect_request("/v1/load_lora_adapter").respond_with_json(message, 400)
    endpoint = make_endpoint(settings(server.url, tmp_path), policy)
    endpoint.load(policy.model, 7)
    endpoint.load(policy.model, 7)
    names = [body["lora_name"] for body in server.bodies("/v1/load_lora_adapter")]
    assert len(names) == 2 and len(set(names)) == 1
    assert names[0].startswith("policy-000007-")
    endpoint.unload()


def test_a_policy_that_others_ask_for_stays_at_the_server(server, policy, tmp_path):
    config = settings(server.url, tmp_path)
    killed = make_endpoint(config, policy)
    killed.load(policy.model, 1)
    first = killed.policy
    killed.load(policy.model, 2)
    assert killed.policies == [killed.policy]
    killed.load(policy.model, 3)
    left = killed.policy
    del killed
    # Of the adapters of a killed run that one is loaded again.
    endpoint = make_endpoint(config, policy)
    endpoint.held.add(left)
    endpoint.load(policy.model, 4)
    assert endpoint.policies == [left, endpoint.policy]
    endpoint.load(policy.model, 5)
    assert left in endpoint.policies and len(endpoint.policies) == 2
    endpoint.held.clear()
    endpoint.load(policy.model, 6)
    assert endpoint.policies == [endpoint.policy]
    endpoint.unload()
    loads = [body["lora_name"] for body in server.bodies("/v1/load_lora_adapter")]
    unloads = [body["lora_name"] for body in server.bodies("/v1/unload_lora_adapter")]
    assert loads.count(left) == 2 and unloads.count(left) == 1 and unloads[0] == first


def test_a_folder_of_another_run_is_refused(policy, tmp_path):
    config = settings("http://127.0.0.1:1", tmp_path)
    first = make_endpoint(config, policy)
    with pytest.raises(UserError, match=rf"^config.endpoint.adapter_folder: {tmp_path} is in use by another"):
        make_endpoint(config, policy)
    del first
    make_endpoint(config, policy)


def test_what_waits_is_sent_without_a_poll_and_by_the_newest_policy(policy, server, tmp_path):
    asked, leave = queue.SimpleQueue[str](), queue.SimpleQueue[None]()

    def answer(body: dict) -> dict:
        asked.put(body["model"])
        leave.get(timeout=600)
        return server.vllm(body)

    server.serve(CHAT, answer)
    endpoint = make_endpoint(settings(server.url, tmp_path, concurrency=1), policy)
    endpoint.load(policy.model, 0)
    first = endpoint.policy
    requests = [Request(prompt, policy.sampling, number) for number, prompt in enumerate(policy.prompts)]
    for request in requests:
        endpoint.submit(request)
    assert asked.get() == first
    leave.put(None)
    # No call of the endpoint between these two, as while the policy is updated.
    assert asked.get() == first
    assert asked.empty()
    endpoint.load(policy.model, 1)
    assert endpoint.policies == [first, endpoint.policy] and endpoint.policy != first
    leave.put(None)
    assert asked.get() == endpoint.policy
    leave.put(None)
    drawn = []
    while len(drawn) < 3:
        drawn += endpoint.poll()
    versions = {request: {*np.concatenate(responses.versions).tolist()} for request, responses in drawn}
    assert [versions[request] for request in requests] == [{0}, {0}, {1}]
    assert endpoint.policies == [endpoint.policy]
    endpoint.unload()


def test_a_server_that_lets_no_adapters_be_loaded(server, policy, tmp_path):
    server.http.clear()
    server.http.expect_request("/v1/models").respond_with_json({"data": [{"id": "base"}]})
    server.http.expect_request("/v1/load_lora_adapter").respond_with_json({"detail": "Not Found"}, 404)
    endpoint = make_endpoint(settings(server.url, tmp_path), policy)
    with pytest.raises(UserError, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING"):
        endpoint.load(policy.model, 0)


def test_unload_ends_what_nobody_waits_for(server, policy, loaded):
    entered, leave = threading.Event(), threading.Event()

    def answer(body: dict) -> dict:
        entered.set()
        leave.wait()
        return server.vllm(body)

    server.serve(CHAT, answer)
    for number, prompt in enumerate(policy.prompts):
        loaded.submit(Request(prompt, policy.sampling, number))
    entered.wait()
    loaded.unload()
    leave.set()
    assert loaded.poll() == []
    assert len(server.bodies("/v1/unload_lora_adapter")) == 1


def test_the_api_key_comes_from_the_environment(server, policy, tmp_path, monkeypatch):
    config = settings(server.url, tmp_path, api_key_env="RMSWEB_TEST_KEY")
    with pytest.raises(UserError, match="RMSWEB_TEST_KEY is not set"):
        make_endpoint(config, policy)
    monkeypatch.setenv("RMSWEB_TEST_KEY", "secret")
    endpoint = make_endpoint(config, policy)
    endpoint.load(policy.model, 0)
    endpoint.unload()
    assert {request.headers["Authorization"] for request, _ in server.http.log} == {"Bearer secret"}
