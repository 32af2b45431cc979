"""Ctrl-C in the scripts that run JAX: while they begin, while they compile, and while they run."""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import RlPrompt
from tests.interrupts import End, Script, compiles, exported, has_rows
from tests.policies import REPLY, random_messages, write_corpus
from tests.training.runs import command

SFT = {
    "max_length": 256,
    "max_pixels": 4096,
    "batch_size": 2,
    "epochs": 2,
    "row_tokens": 256,
    "row_multiple": 128,
    "trainable": "lora",
    "lora.rank": 2,
    "checkpoint_every": 100,
}
RL = {
    "max_prompt_tokens": 256,
    "max_response_tokens": 4,
    "max_pixels": 4096,
    "row_tokens": 512,
    "lora.rank": 2,
    "iterations": 5,
    "eval_every": 100,
    "checkpoint_every": 100,
}


@pytest.fixture(scope="module")
def commands(random_policy, tmp_path_factory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("data")
    write_corpus(folder / "corpus", [1 + number % 3 for number in range(12)])
    images = ImageStore(folder / "prompts")
    prompts = (
        RlPrompt(
            prompt_id=f"p{number}",
            task_id=f"t{number}",
            site="s",
            category="ui_navigation",
            messages=random_messages(number, images, repeats=1),
            target=REPLY % (number + 1),
        )
        for number in range(20)
    )
    write_dataset(folder / "prompts", prompts, "rl_prompts")
    model = {"model": random_policy}
    return {
        "sft": command(
            "experiments.train_sft", "configs/sft.py:smoke", SFT | model | {"corpus": folder / "corpus"}
        ),
        "rl": command(
            "experiments.train_rl", "configs/rl.py:smoke", RL | model | {"prompts": folder / "prompts"}
        ),
        "serve": command("experiments.serve", "configs/serve.py:smoke", model),
    }


@pytest.fixture
def begin(tmp_path) -> Iterator[Callable[..., Script]]:
    """Begins scripts in folders of `tmp_path`; what still runs at the end of a test is killed."""
    started: list[Script] = []

    def begin_(command: Sequence[str], name: str = "run", cached: bool = False) -> Script:
        cache = Path(os.environ["JAX_COMPILATION_CACHE_DIR"]) if cached else None
        started.append(Script(command, tmp_path / name, cache))
        return started[-1]

    yield begin_
    for script in started:
        script.process.kill()
        script.process.wait()


def assert_ended(end: End, *words: str) -> None:
    """In one line, and with nothing left."""
    assert end.code == 130, end.log
    assert end.error == end.log.splitlines()[-1] and end.error.startswith("error: interrupted; "), end.log
    assert all(word in end.error for word in words) and not end.left, end


def test_while_jax_is_imported(commands, begin):
    assert_ended(begin(commands["sft"]).interrupt(lambda script: script.has_loaded("jaxlib")))


@pytest.mark.parametrize("kind", ["sft", pytest.param("rl", marks=pytest.mark.slow), "serve"])
def test_while_programs_are_compiled(commands, begin, kind):
    # The first step of SFT is its first program that reads data, which threads make.
    end = begin(commands[kind]).interrupt(compiles(1, "jit(run)" if kind == "sft" else "jit("))
    assert_ended(end)
    assert ("same command again to continue" in end.error) == (kind != "serve")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sft", "rl"])
def test_a_running_training_saves_and_its_continuation_ends_bitwise_like_an_unbroken_one(
    commands, begin, tmp_path, kind
):
    whole = begin(commands[kind], "whole", cached=True).end()
    assert whole.code == 0, whole.log
    stopped = tmp_path / "stopped"
    end = begin(commands[kind], "stopped", cached=True).interrupt(has_rows(2))
    assert_ended(end, "the checkpoint of step ", " is saved: run the same command again to continue")
    (checkpoint,) = (stopped / "checkpoints").iterdir()
    assert f"of step {checkpoint.name} is" in end.error
    assert not (stopped / "report.json").exists()
    resumed = begin(commands[kind], "stopped", cached=True).end()
    assert resumed.code == 0, resumed.log
    steps = [json.loads(line)["step"] for line in (stopped / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, len(steps) + 1))
    assert exported(stopped) == exported(tmp_path / "whole")


def test_a_server_answers_what_it_has_taken(commands, begin, tmp_path):
    endpoint = tmp_path / "run/endpoint.json"
    server = begin(commands["serve"], cached=True)
    while not endpoint.exists():
        assert server.process.poll() is None, server.log
        time.sleep(0.05)
    url = json.loads(endpoint.read_text())["url"]
    body = {"messages": [{"role": "user", "content": "Go."}], "max_tokens": 64, "ignore_eos": True}
    with ThreadPoolExecutor() as pool, httpx.Client(timeout=600) as client:
        asked = pool.submit(client.post, f"{url}/chat/completions", json=body)
        metrics = url.removesuffix("/v1") + "/metrics"
        end = server.interrupt(
            lambda _: asked.done() or "rmsweb_running_requests 1.0" in client.get(metrics).text
        )
        assert asked.result().status_code == 200
    assert_ended(end, "the requests that the server had taken are answered")
    assert f"the server is ready at {url}, model " in end.log and "to look at it" not in end.log
    assert "same command" not in end.error and not endpoint.exists()
