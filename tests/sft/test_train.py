"""The whole stage on a tiny model: data, resume, errors, export."""

import itertools
import json
import os
import shutil
import signal
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

import rmsweb_jax
from configs.sft import get_config
from rmsweb_jax.errors import StoppedError, UserError
from rmsweb_jax.settings import from_config
from rmsweb_jax.sft import train as train_module
from rmsweb_jax.sft.config import SftConfig
from rmsweb_jax.sft.train import train
from rmsweb_jax.training.metrics import REPLIES_FILE, read_metrics, read_rows
from tests.compilations import compiled_by_step
from tests.policies import KilledError, perturb, weights, write_corpus

# The last sample is much longer than the others.
REPEATS = [1 + number % 3 for number in range(14)] + [200]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, REPEATS)
    return folder


@pytest.fixture
def config(random_policy, corpus) -> ConfigDict:
    return make_config(random_policy, corpus)


@pytest.fixture(scope="module")
def compiled() -> dict[int, list[str]]:
    """What the unbroken run compiled until the metrics of each step were written, once it is made."""
    return {}


@pytest.fixture(scope="module")
def whole(random_policy, corpus, tmp_path_factory, compiled) -> tuple[Path, dict]:
    """The folder and the report of an unbroken run."""
    folder, reports = tmp_path_factory.mktemp("whole"), []
    config = settings(make_config(random_policy, corpus))
    with pytest.MonkeyPatch.context() as patch:
        compiled |= compiled_by_step(patch, lambda: reports.append(rmsweb_jax.train_sft(config, folder)))
    return folder, reports[0]


def make_config(random_policy: Path, corpus: Path) -> ConfigDict:
    """12 of the samples are trained on, two are held out."""
    config = get_config("smoke")
    config.model, config.corpus = str(random_policy), str(corpus)
    config.max_length, config.max_pixels = 256, 4096
    config.batch_size, config.epochs = 4, 2
    config.row_tokens, config.row_multiple = 256, 128
    config.eval = {"share": 0.2, "every": 3, "replies": 2, "best": "eval/loss"}
    config.checkpoint_every = 2
    config.trainable, config.lora.rank, config.lora.alpha = "lora", 2, 4.0
    return config


def settings(config: ConfigDict) -> SftConfig:
    typed = from_config(SftConfig, config)
    return typed.model_copy(update={"eval": typed.eval.model_copy(update={"max_reply_tokens": 8})})


def run(config: ConfigDict, workdir: Path) -> dict:
    return train(settings(config), workdir)


TIMING = ("time", "tokens_per_second", "step_seconds", "data_wait")


def curves(workdir) -> list[dict]:
    """Everything that was measured, but for how long it took."""
    return [{key: row[key] for key in row if key not in TIMING} for row in read_metrics(workdir)]


def kill_after(monkeypatch, steps: int) -> None:
    """Ends a run the way `kill -9` does: between steps, nothing more is saved."""
    run_step = train_module.run_step
    count = iter(range(steps))

    def stop(*args):
        if next(count, None) is None:
            raise KilledError
        return run_step(*args)

    monkeypatch.setattr(train_module, "run_step", stop)


def test_nothing_is_compiled_after_the_first_step_and_evaluation(whole, compiled):
    training = {"jit(zero)", "jit(run)", "jit(update)"}
    assert training <= set(compiled[1])
    # The held-out loss and the sampler of replies.
    assert "jit(sums)" in compiled[3] and not training & set(compiled[3])
    assert not any(compiled[step] for step in (2, 4, 5, 6)) and len(compiled) == 6


def test_a_killed_run_ends_bitwise_like_an_unbroken_one(config, whole, tmp_path, monkeypatch):
    folder, report = whole
    assert rmsweb_jax.train_sft(settings(config), str(folder)) == report
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        kill_after(patch, 5)  # Step 5 is done and lost: the checkpoint is of step 4.
        run(config, tmp_path / "killed")
    assert [row["step"] for row in read_metrics(tmp_path / "killed")] == [1, 2, 3, 4, 5]
    assert not (tmp_path / "killed" / "report.json").exists()
    config.workers = 2
    resumed = run(config, tmp_path / "killed")

    assert report["steps"] == 6  # 2 epochs of 12 samples in batches of 4
    assert curves(folder) == curves(tmp_path / "killed")
    assert read_rows(folder / REPLIES_FILE) == read_rows(tmp_path / "killed" / REPLIES_FILE)
    chex.assert_trees_all_equal(weights(folder / "export"), weights(tmp_path / "killed/export"))
    timing = ("seconds", "final")
    assert {k: v for k, v in report.items() if k not in timing} == {
        k: v for k, v in resumed.items() if k not in timing
    }


@pytest.mark.slow
def test_with_a_recurrence_a_killed_run_ends_bitwise_like_an_unbroken_one(
    recurrent_policy, corpus, tmp_path, monkeypatch
):
    config = make_config(recurrent_policy, corpus)
    report = run(config, tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        kill_after(patch, 5)
        run(config, tmp_path / "killed")
    run(config, tmp_path / "killed")
    assert report["steps"] == 6 and curves(tmp_path / "whole") == curves(tmp_path / "killed")
    found, base = weights(tmp_path / "killed/export"), weights(recurrent_policy)
    chex.assert_trees_all_equal(weights(tmp_path / "whole/export"), found)
    recurrence, before = (tree["language_model"]["layers"][0]["linear_attn"] for tree in (found, base))
    for name in ("in_proj_qkv", "in_proj_z", "out_proj"):
        assert (recurrence[name]["kernel"] != before[name]["kernel"]).any()


def test_a_signal_saves_and_only_the_same_corpus_and_base_go_on(
    config, corpus, random_policy, tmp_path, monkeypatch
):
    run_step = train_module.run_step
    calls = iter(range(100))

    def signalled(*args):
        if next(calls) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return run_step(*args)

    monkeypatch.setattr(train_module, "run_step", signalled)
    with pytest.raises(StoppedError, match="stopped by SIGTERM; the checkpoint of step 3 is saved") as raised:
        run(config, tmp_path / "run")
    assert raised.value.exit_code == 75
    write_corpus(tmp_path / "corpus", [*REPEATS, 1])
    config.corpus = str(tmp_path / "corpus")
    with pytest.raises(
        UserError, match=r"run: what .* has changed since it began: corpus at .*/corpus \(rec"
    ):
        run(config, tmp_path / "run")
    config.corpus, config.model = str(corpus), str(tmp_path / "base")
    shutil.copytree(random_policy, tmp_path / "base")
    perturb(tmp_path / "base" / "model.safetensors")
    with pytest.raises(UserError, match=r"began: base model at .*/base \(model.safetensors\): put it back"):
        run(config, tmp_path / "run")
    config.model = str(random_policy)
    report = run(config, tmp_path / "run")
    assert report["steps"] == 6
    assert [row["step"] for row in read_metrics(tmp_path / "run")] == [1, 2, 3, 4, 5, 6]


def test_the_best_checkpoint_can_be_exported(config, tmp_path):
    config.export, config.learning_rate = "best", 0.3  # Far too much: it gets worse.
    report = run(config, tmp_path)
    losses = {row["step"]: row["eval/loss"] for row in read_metrics(tmp_path) if "eval/loss" in row}
    assert list(losses) == [3, 6]
    best = min(losses, key=lambda step: losses[step])
    assert report["exported_step"] == best
    assert report["final"]["eval/loss"] == losses[best]


def test_report_and_export(whole, random_policy):
    folder, report = whole
    assert json.loads((folder / "report.json").read_text()) == report
    assert (report["stage"], report["trainable"], report["samples"]) == ("train_sft", "lora", 12)
    assert report["dropped_ids"] == ["s14"]
    assert report["parameters"]["adapters"] > 0
    rows = read_metrics(folder)
    assert rows[0]["lr"] == 0.0 < rows[1]["lr"]
    assert rows[0]["norm/update"] == 0.0 < rows[1]["norm/update"]
    assert all(0 <= row["padding"] < 1 and 0 <= row["data_wait"] <= 1 for row in rows)
    assert all(0 < row["useful_flops"] <= 1 for row in rows)
    assert report["row_tokens"] == 256 and 0 <= report["padding"] < 1
    assert {"eval/loss", "eval/token_accuracy", "eval/action_accuracy", "eval/action_reward"} <= rows[
        -1
    ].keys()
    assert {row["step"] for row in read_rows(folder / REPLIES_FILE)} == {3, 6}
    before, after = weights(random_policy), weights(folder / "export")
    chex.assert_trees_all_equal(before["visual"], after["visual"])  # Adapters are on the decoder alone.
    decoder = [tree["language_model"]["first_layers"][0] for tree in (before, after)]
    assert (decoder[0]["mlp"]["up_proj"]["kernel"] != decoder[1]["mlp"]["up_proj"]["kernel"]).any()
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        assert (folder / "export" / name).exists()


def break_steps(monkeypatch, broken: set[int]) -> None:
    """The adapters overflow in some steps, numbered from 1."""
    run_step = train_module.run_step
    numbers = itertools.count(1)

    def overflow(steps, state, *args):
        params = state.params
        if next(numbers) not in broken:
            return run_step(steps, state, *args)
        # A copy, since the update donates what it gets.
        given = jax.tree.map(jnp.copy, state.replace(params=jax.tree.map(lambda x: x * np.inf, params)))
        after, metrics = run_step(steps, given, *args)
        return after.replace(params=params), metrics

    monkeypatch.setattr(train_module, "run_step", overflow)


def test_a_step_that_is_not_finite_is_skipped(config, whole, tmp_path, monkeypatch):
    break_steps(monkeypatch, {3, 6})
    report = run(config, tmp_path)
    rows, plain = read_metrics(tmp_path), read_metrics(whole[0])
    assert [row["skipped_steps"] for row in rows] == [0, 0, 1, 1, 1, 2]
    assert [row["skipped_in_a_row"] for row in rows] == [0, 0, 1, 0, 0, 1]
    # The schedule goes on where it was.
    assert [row["lr"] for row in rows] == [plain[number]["lr"] for number in (0, 1, 2, 2, 3, 4)]
    assert rows[2]["loss/train"] is None and rows[2]["norm/update"] == 0 < rows[3]["norm/update"]
    assert json.loads((tmp_path / "report.json").read_text()) == report
    assert report["final"]["loss/train"] is None and report["final"]["eval/loss"] > 0


def test_three_steps_in_a_row_that_are_not_finite_stop_the_run_and_are_saved(config, tmp_path, monkeypatch):
    break_steps(monkeypatch, {3, 4, 5, 6})
    with pytest.raises(UserError, match=r"not finite in 3 optimizer steps in a row.*step 5 is saved"):
        run(config, tmp_path)
    assert (tmp_path / "checkpoints" / "5").is_dir() and not (tmp_path / "report.json").exists()
    with pytest.raises(UserError, match="not finite in 4 optimizer steps"):  # The checkpoint has the count.
        run(config, tmp_path)


def test_a_corpus_without_a_short_enough_sample_is_one_line(config, tmp_path):
    config.max_length = 10
    with pytest.raises(UserError, match="nothing to train on"):
        run(config, tmp_path)


def test_an_unknown_way_to_train_is_one_line(config, tmp_path):
    config.trainable = "some"
    with pytest.raises(UserError, match="lora, all"):
        run(config, tmp_path)
