"""Rollouts of one process and of several."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rmsweb_jax.qwen.checkpoint import load_model
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import RlPrompt
from rmsweb_jax.serve.config import ServeSettings
from rmsweb_jax.serve.engine import ServingEngine
from rmsweb_jax.serve.server import serving_engine
from tests.loopback import free_port
from tests.policies import REPLY, random_messages, save_random_policy
from tests.rl.rollouts_together import GROUPS, SAMPLES
from tests.serve.conftest import serving
from tests.virtual_devices import device_environment

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """With a policy, and prompts with a screenshot each."""
    root = tmp_path_factory.mktemp("run")
    save_random_policy(root / "policy")
    images = ImageStore(root / "prompts")
    prompts = [
        RlPrompt(
            prompt_id=f"p{number}",
            task_id=f"t{number}",
            site="s",
            category="ui_navigation",
            messages=random_messages(number, images, repeats=1 + number),
            target=REPLY % (number + 1),
        )
        for number in range(GROUPS)
    ]
    write_dataset(root / "prompts", prompts, "rl_prompts")
    return root


def outcomes(folder: Path, count: int, *url: str) -> list[dict]:
    arguments = [f"127.0.0.1:{free_port()}", str(count)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.rl.rollouts_together", *arguments, str(number), str(folder), *url],
            cwd=ROOT,
            env=device_environment(2 // count),
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    printed = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * count
    return [json.loads(text.splitlines()[-1]) for text in printed]


@pytest.mark.slow
def test_each_of_two_processes_encodes_and_scores_half(folder):
    (alone,) = outcomes(folder, 1)
    assert (alone["encoded"], alone["scored"]) == (GROUPS, GROUPS * SAMPLES)
    for own in outcomes(folder, 2):
        assert (own["encoded"], own["scored"]) == (GROUPS // 2, GROUPS * SAMPLES // 2)
        # In the same order, and each once.
        assert own["groups"] == alone["groups"]


@pytest.mark.slow
def test_each_of_two_processes_sends_half_to_an_endpoint(folder):
    source = folder / "policy"
    config = ServeSettings(
        model="base",
        lanes=6,
        prompt_tokens=128,
        max_new_tokens=8,
        chunks=(64,),
        adapters=1,
        adapter_rank=16,
    )
    model, processor = load_model(source), Processor.from_pretrained(source, 4096)
    server = ServingEngine(serving_engine(model, processor, config), model, config.max_waiting)
    server.start()
    with serving(server, processor, model="base", max_new_tokens=8) as url:
        (alone,) = outcomes(folder, 1, url)
        for own in outcomes(folder, 2, url):
            assert (own["encoded"], own["scored"]) == (GROUPS // 2, GROUPS * SAMPLES // 2)
            assert own["groups"] == alone["groups"]
    server.close()
