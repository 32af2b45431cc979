"""Loading and saving in processes of their own: their memory, many devices, several processes."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file

from rmsweb_jax.qwen.checkpoint import TensorFolder, load_model
from rmsweb_jax.qwen.config import SIZES
from rmsweb_jax.qwen.lora import LoRAParam, load_adapters
from tests import random_checkpoint
from tests.loopback import free_port
from tests.qwen.load_and_save import MAX_FILE_BYTES
from tests.random_checkpoint import write_random_checkpoint
from tests.virtual_devices import device_environment

ROOT = Path(__file__).parents[2]
MB = 10**6


def start(*args, devices=1):
    command = [sys.executable, "-m", "tests.qwen.load_and_save", *map(str, args)]
    return subprocess.Popen(
        command, cwd=ROOT, env=device_environment(devices), stdout=subprocess.PIPE, text=True
    )


def finish(process):
    out, _ = process.communicate(timeout=3000)
    assert process.returncode == 0
    return json.loads(out.splitlines()[-1])


@pytest.mark.slow
def test_memory_holds_the_model_once(tmp_path, monkeypatch):
    """A 2B-shaped checkpoint took its parameters + 0.3 GB, interpreter included."""
    tiny = SIZES["tiny"]
    text = dataclasses.replace(
        tiny.text, vocab_size=8192, hidden_size=1024, intermediate_size=4096, num_hidden_layers=9
    )
    vision = dataclasses.replace(tiny.vision, out_hidden_size=1024)
    config = dataclasses.replace(tiny, text=text, vision=vision)
    # Which numbers they are does not matter, and to draw 124 million takes seconds.
    monkeypatch.setattr(random_checkpoint, "random_tensor", lambda name, shape, dtype: np.ones(shape, dtype))
    write_random_checkpoint(config, tmp_path, max_file_bytes=60 * MB)
    report = finish(start(tmp_path, tmp_path))
    assert report["params"] == report["read"] > 200 * MB
    # The largest parameter, six stacked layers of the MLP, is 50 MB: it may be in memory twice.
    assert report["peak"] < report["params"] + 80 * MB


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    tiny = SIZES["tiny"]
    config = dataclasses.replace(
        tiny,
        text=dataclasses.replace(tiny.text, num_hidden_layers=3),
        vision=dataclasses.replace(tiny.vision, depth=2, deepstack_visual_indexes=(0,)),
        tie_word_embeddings=False,
    )
    write_random_checkpoint(config, folder, MAX_FILE_BYTES)
    return folder


def tensors(folder):
    files = TensorFolder(folder)
    return {name: files.read(name) for name in files.shapes}


def check_saved(source, target):
    """Weights saved from the mesh equal the loaded ones bit for bit."""
    expected = tensors(source)
    assert len(list(target.glob("*.safetensors"))) > 5
    for folder in (target, target / "merged"):
        found = tensors(folder)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name].view(np.uint16), value.view(np.uint16), err_msg=name)
    model = load_model(source)
    load_adapters(model, target / "adapters")
    names = {str(path[-1]) for path, _ in nnx.to_flat_state(nnx.state(model, LoRAParam))}
    assert names == {"a", "b"}
    assert len(load_file(target / "adapters" / "adapter_model.safetensors")) == 2 * (4 * 3 + 4 * 2)


@pytest.mark.slow
def test_eight_devices_load_and_save(tiny, tmp_path):
    report = finish(start(tiny, tmp_path, "2,2,2", devices=8))
    assert report["devices"] == 8
    check_saved(tiny, tmp_path)
    # Both copies along `data` come from one read; vectors and the rest that stays whole are read once.
    assert report["read"] == report["params"]


@pytest.mark.slow
def test_two_processes_read_their_own_shards_and_one_saves(tiny, tmp_path):
    address = f"127.0.0.1:{free_port()}"
    args = (tiny, tmp_path, "1,2,2", address, 2)
    reports = [finish(process) for process in [start(*args, number, devices=2) for number in (0, 1)]]
    check_saved(tiny, tmp_path)
    for report in reports:
        assert report["devices"] == 4
        assert report["read"] < 0.6 * report["params"]
