"""A server that answers as vLLM does by its documents, and a policy whose rollouts they draw."""

import json
from pathlib import Path
from typing import NamedTuple

from flax import nnx
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from rmsweb_jax.data.encoding import Encoder
from rmsweb_jax.decoding.requests import Request as EngineRequest
from rmsweb_jax.decoding.requests import Responses, Sampling
from rmsweb_jax.qwen.checkpoint import load_model
from rmsweb_jax.qwen.lora import add_lora
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import SftSample
from rmsweb_jax.rl.config import EndpointConfig
from rmsweb_jax.rl.prompts import Prompt
from rmsweb_jax.rl.remote.generator import Endpoint
from rmsweb_jax.training.config import LoRAConfig
from tests.policies import random_messages, save_random_policy
from tests.prompts import as_prompt
from tests.serve.conftest import random_adapters

LORA = LoRAConfig(rank=2, alpha=4.0, targets="attention")
MAX_PIXELS = 4096
LIMIT = 8


class Policy(NamedTuple):
    folder: Path
    model: Qwen3VL
    processor: Processor
    images: ImageStore
    prompts: list[Prompt]
    sampling: Sampling


def make_policy(folder: Path) -> Policy:
    """A random policy that has moved away from its base, and three prompts with a screenshot each."""
    save_random_policy(folder)
    processor = Processor.from_pretrained(folder, MAX_PIXELS)
    images = ImageStore(folder)
    encoder = Encoder(processor, images)
    prompts = []
    for number in range(3):
        messages = random_messages(number, images, repeats=number + 1)
        sample = SftSample(
            sample_id=f"p{number}", task_id="t", site="s", kind="text", messages=messages, response="ok"
        )
        prompts.append(as_prompt(encoder.example(sample), sample.response, messages))
    model = load_model(folder)
    add_lora(model, LORA, nnx.Rngs(1))
    random_adapters(model, scale=0.5)
    sampling = Sampling(2, LIMIT)
    return Policy(folder, model, processor, images, prompts, sampling)


def settings(url: str, folder: Path, **changes) -> EndpointConfig:
    values = {
        "base_url": url,
        "model": "base",
        "adapter_folder": str(folder),
        "concurrency": 4,
        "timeout_s": 60.0,
        "retries": 2,
        "api_key_env": "",
        "seeded": True,
        "max_gap": 0.1,
    }
    return EndpointConfig(**(values | changes))


def make_endpoint(config: EndpointConfig, policy: Policy) -> Endpoint:
    return Endpoint(config, policy.processor, policy.images.get, LORA)


def draw(endpoint: Endpoint, policy: Policy, prompts: slice = slice(None)) -> list[Responses]:
    """Responses to some of the prompts, whose seeds are 1, 2 and 3."""
    requests = [
        EngineRequest(prompt, policy.sampling, number)
        for number, prompt in list(enumerate(policy.prompts, 1))[prompts]
    ]
    for request in requests:
        endpoint.submit(request)
    found: dict[EngineRequest, Responses] = {}
    while len(found) < len(requests):
        found |= dict(endpoint.poll())
    return [found[request] for request in requests]


class PromptServer(HTTPServer):
    """Looks often whether it is to stop, so that each test can have one of its own."""

    def thread_target(self) -> None:
        assert self.server is not None
        self.server.serve_forever(poll_interval=0.01)


class Server:
    """Answers as an inference server does; `answer(body)` gives tokens of a response."""

    def __init__(self, http: HTTPServer, policy: Policy):
        self.http, self.policy = http, policy
        self.url = http.url_for("")
        eos = policy.processor.end_id
        # A token of the seed tells the responses apart.
        self.tokens = lambda seed: [5 + seed % 50, 7, eos]
        http.expect_request("/v1/models").respond_with_json({"object": "list", "data": [{"id": "base"}]})
        for path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
            http.expect_request(path, method="POST").respond_with_data("Success: LoRA adapter")

    def bodies(self, path: str) -> list[dict]:
        return [json.loads(request.data) for request, _ in self.http.log if request.path == path]

    def prompt(self, body: dict) -> list[int]:
        """Our tokens of the prompt that a request names by its text."""
        text = str(body["messages"][1]["content"][0]["text"])
        example = self.policy.prompts[text.count("Click") - 1].encoded()
        return example.tokens[: example.prompt_length].tolist()

    # https://docs.vllm.ai/en/latest/serving/openai_compatible_server/ (chat API, return_token_ids).
    def vllm(self, body: dict) -> dict:
        prompt, choices = self.prompt(body), []
        for index in range(body["n"]):
            tokens = self.tokens(body.get("seed", 0) + index)
            entries = [
                {"token": "t", "logprob": -0.25 * place, "bytes": [116], "top_logprobs": []}
                for place, _ in enumerate(tokens, 1)
            ]
            choice = {
                "index": index,
                "message": {"role": "assistant", "content": "t", "refusal": None, "reasoning": None},
                "logprobs": {"content": entries},
                "finish_reason": "stop",
                "stop_reason": tokens[-1],
                "token_ids": tokens,
            }
            # In any order: the index counts.
            choices.insert(0, choice)
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": choices,
            "usage": {"prompt_tokens": len(prompt), "total_tokens": 0, "completion_tokens": 3 * len(choices)},
            "prompt_logprobs": None,
            "prompt_token_ids": prompt,
        }

    def serve(self, path: str, answer) -> None:
        def respond(request: Request) -> Response:
            found = answer(json.loads(request.data))
            if isinstance(found, Response):
                return found
            return Response(json.dumps(found), mimetype="application/json")

        self.http.expect_request(path, method="POST").respond_with_handler(respond)
