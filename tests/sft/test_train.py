"""The whole stage on a tiny model: data, resume, errors, export."""

import dataclasses
import io
import json
import shutil
from pathlib import Path

import chex
import jax
import numpy as np
import pytest
from flax import nnx
from ml_collections import ConfigDict
from PIL import Image

from configs.sft import get_config
from rmsweb_jax.errors import UserError
from rmsweb_jax.metrics import read_metrics
from rmsweb_jax.qwen3_vl.checkpoint import load_model, resolve_model, save_model
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ImagePart, Message, SftSample, TextPart
from rmsweb_jax.records.shards import write_dataset
from rmsweb_jax.sft import train as train_module
from rmsweb_jax.sft.config import SftConfig
from rmsweb_jax.sft.train import train

REPLY = (
    '{"evaluation_previous_goal":"Start","memory":"","next_goal":"Go",'
    '"action":[{"click_element_by_index":{"index":%d}}]}'
)


@pytest.fixture(scope="module", autouse=True)
def compile_once(tmp_path_factory):
    """Every test trains the same programs: the first one compiles them for all."""
    settings = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("cache")),
        "jax_persistent_cache_min_compile_time_secs": 0.2,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """A random model of a few thousand parameters with the tiny base's tokenizer."""
    base = resolve_model("tiny_base")
    config = Qwen3VLConfig.from_hf(base / "config.json")
    text = dataclasses.replace(
        config.text,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        mrope_section=(2, 1, 1),
    )
    vision = dataclasses.replace(
        config.vision,
        depth=1,
        hidden_size=8,
        intermediate_size=8,
        num_heads=1,
        out_hidden_size=16,
        deepstack_visual_indexes=(0,),
    )
    config = dataclasses.replace(config, text=text, vision=vision)
    folder = tmp_path_factory.mktemp("model")
    save_model(Qwen3VL(config, rngs=nnx.Rngs(0), embedding_std=0.5), folder)
    for path in base.glob("tokenizer*"):
        shutil.copy(path, folder)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Ten samples with a screenshot each, the last one much longer."""
    folder = tmp_path_factory.mktemp("corpus")
    images = ImageStore(folder)

    def sample(number: int) -> SftSample:
        rng = np.random.default_rng(number)
        png = io.BytesIO()
        Image.fromarray(rng.integers(0, 255, (64, 96, 3), np.uint8)).save(png, "PNG")
        text = "Click the button. " * (1 + number % 3 if number < 9 else 200)
        messages = (
            Message(role="system", content=(TextPart(text="You act in a browser."),)),
            Message(role="user", content=(TextPart(text=text), ImagePart(sha256=images.put(png.getvalue())))),
        )
        return SftSample(
            sample_id=f"s{number}",
            task_id="t",
            site="s",
            kind="action",
            messages=messages,
            response=REPLY % number,
        )

    write_dataset(folder, (sample(number) for number in range(10)), "sft_samples")
    return folder


@pytest.fixture
def config(model_folder, corpus) -> ConfigDict:
    config = get_config("smoke")
    config.model, config.corpus = str(model_folder), str(corpus)
    config.max_length, config.max_pixels = 256, 4096
    config.batch_size, config.micro_batch_size, config.epochs = 3, 2, 2
    config.bucket_multiple, config.bucket_count = 256, 1
    config.checkpoint_every = 2
    config.trainable, config.lora.rank, config.lora.alpha = "lora", 2, 4.0
    return config


def run(config: ConfigDict, workdir: Path) -> dict:
    return train(SftConfig.from_dict(config.to_dict()), workdir)


CURVES = ("step", "loss/train", "norm/gradient", "norm/params", "lr", "loss/token_accuracy", "epoch")


def curves(workdir) -> list[dict]:
    return [{key: row[key] for key in CURVES} for row in read_metrics(workdir)]


def weights(folder) -> dict:
    return nnx.to_pure_dict(nnx.state(load_model(folder)))


class KilledError(Exception):
    pass


def kill_after(monkeypatch, steps: int) -> None:
    """Ends a run the way `kill -9` does: between steps, nothing more is saved."""
    run_step = train_module.run_step
    count = iter(range(steps))

    def stop(*args):
        if next(count, None) is None:
            raise KilledError
        return run_step(*args)

    monkeypatch.setattr(train_module, "run_step", stop)


@pytest.mark.parametrize("trainable", ["lora", "all"])
def test_a_killed_run_ends_bitwise_like_an_unbroken_one(config, tmp_path, monkeypatch, trainable):
    config.trainable = trainable
    whole = run(config, tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        kill_after(patch, 3)  # Step 3 is done and lost: the checkpoint is of step 2.
        run(config, tmp_path / "killed")
    assert [row["step"] for row in read_metrics(tmp_path / "killed")] == [1, 2, 3]
    assert not (tmp_path / "killed" / "report.json").exists()
    resumed = run(config, tmp_path / "killed")

    assert whole["steps"] == 6  # 2 epochs of 9 samples in batches of 3
    assert curves(tmp_path / "whole") == curves(tmp_path / "killed")
    chex.assert_trees_all_equal(weights(tmp_path / "whole/export"), weights(tmp_path / "killed/export"))
    timing = ("seconds", "final")
    assert {k: v for k, v in whole.items() if k not in timing} == {
        k: v for k, v in resumed.items() if k not in timing
    }


def test_report_and_export(config, tmp_path, model_folder):
    report = run(config, tmp_path)
    assert json.loads((tmp_path / "report.json").read_text()) == report
    assert (report["stage"], report["trainable"], report["samples"]) == ("train_sft", "lora", 9)
    assert report["dropped_ids"] == ["s9"]
    assert report["parameters"]["adapters"] > 0
    rows = read_metrics(tmp_path)
    assert rows[0]["lr"] == 0.0 < rows[1]["lr"]
    assert rows[0]["norm/update"] == 0.0 < rows[1]["norm/update"]
    assert all(0 <= row["padding"] < 1 and 0 <= row["data_wait"] <= 1 for row in rows)
    before, after = weights(model_folder), weights(tmp_path / "export")
    chex.assert_trees_all_equal(before["visual"], after["visual"])  # Adapters are on the decoder alone.
    decoder = [tree["language_model"]["first_layers"][0] for tree in (before, after)]
    assert (decoder[0]["mlp"]["up_proj"]["kernel"] != decoder[1]["mlp"]["up_proj"]["kernel"]).any()
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        assert (tmp_path / "export" / name).exists()


def test_a_loss_that_is_no_number_stops_with_the_last_good_checkpoint(config, tmp_path, monkeypatch):
    run_step = train_module.run_step
    calls = iter(range(100))

    def broken(*args):
        state, metrics = run_step(*args)
        return state, metrics | ({"loss/train": float("nan")} if next(calls) == 4 else {})

    monkeypatch.setattr(train_module, "run_step", broken)
    with pytest.raises(UserError, match="not a number at step 5"):
        run(config, tmp_path)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir() if path.is_dir()][-1:] == ["4"]
    assert not (tmp_path / "report.json").exists()


def test_a_corpus_without_a_short_enough_sample_is_one_line(config, tmp_path):
    config.max_length = 10
    with pytest.raises(UserError, match="nothing to train on"):
        run(config, tmp_path)


def test_an_unknown_way_to_train_is_one_line(config, tmp_path):
    config.trainable = "some"
    with pytest.raises(UserError, match="lora, all"):
        run(config, tmp_path)
