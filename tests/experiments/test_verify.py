"""The checks of a model and of devices: right ones pass, and damage is found."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from experiments import verify as script
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.checkpoint import resolve_model
from rmsweb_jax.qwen.config import SIZES
from tests.qwen.references import random_config, reference_model
from tests.scripts import run_script


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    """A checkpoint as transformers saves it, next to its golden logits as transformers computes them."""
    folder = tmp_path_factory.mktemp("checkpoint") / "model"
    reference_model(random_config(5), 5).save_pretrained(folder)
    script.write_golden(folder.parent / "golden", folder)
    return folder


@pytest.mark.slow
def test_a_sound_model_passes_and_each_part_is_on_the_page(checkpoint, tmp_path):
    script.verify(checkpoint, tmp_path, checkpoint.parent / "golden")
    lines = (tmp_path / "verify.md").read_text().splitlines()
    found = [line.strip() for line in lines if line.startswith("    ")]
    assert all(line.startswith("ok  ") for line in found)
    for word in ("attention", "decode kernel", "golden", "SFT", "rollout", "sampler", "RL"):
        assert any(word in line for line in found), word


def test_texts_are_encoded_as_by_transformers(tmp_path):
    folder, report = resolve_model("tiny_base"), script.Report()
    script.write_golden(tmp_path / "golden", folder)
    setup = script.Setup(folder)
    script.check_golden(report, setup, script.read_golden(tmp_path / "golden", setup.config))
    assert len(report.lines) == 5 and not report.failed


def test_a_flipped_weight_is_a_failed_check(checkpoint, tmp_path, monkeypatch):
    """And so is an exception; the page is written, and the exit code is 1."""
    flipped = tmp_path / "model"
    flipped.mkdir()
    (flipped / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    tensors = load_file(checkpoint / "model.safetensors")
    weight = tensors["model.language_model.layers.1.mlp.down_proj.weight"]
    at = np.unravel_index(np.abs(weight).argmax(), weight.shape)
    weight[at] = -weight[at]
    save_file(tensors, flipped / "model.safetensors", {"format": "pt"})

    def out_of_memory(*_):
        raise MemoryError("no\nmemory")

    for name in ("check_kernels", "check_sft", "check_rl"):
        monkeypatch.setattr(script, name, out_of_memory)
    with pytest.raises(UserError, match=r"kernels; golden .*; SFT; rollout and RL failed: see") as error:
        script.verify(flipped, tmp_path / "out", checkpoint.parent / "golden")
    assert error.value.exit_code == 1
    page = (tmp_path / "out" / "verify.md").read_text()
    assert "largest error" in page and page.count("NO  ") == 5 and "MemoryError: no memory" in page


def test_a_kernel_that_sees_another_branch_is_found(checkpoint, monkeypatch):
    right, report = script.make_attend, script.Report()

    def causal(config, until):
        return right(config, until if config.backend == "dense" else jnp.full_like(until, until.shape[1]))

    monkeypatch.setattr(script, "make_attend", causal)
    script.check_kernels(report, script.Setup(checkpoint))
    assert [name.partition(",")[0] for name in report.failed] == ["attention blocks"]


def test_a_number_that_is_none_is_within_no_limit():
    report = script.Report()
    report.at_most("a", float("nan"), 1.0)
    assert report.failed == ["a"]


def test_bad_input_is_one_line(checkpoint, tmp_path):
    done = run_script("experiments.verify", f"--model={checkpoint}")
    assert done.returncode == 2
    assert done.stderr.count("error: ") == 1 and "--output=FOLDER" in done.stderr.splitlines()[-1]
    with pytest.raises(UserError, match=r"config\.json is missing"):
        script.verify(resolve_model(str(tmp_path)), tmp_path)
    with pytest.raises(UserError, match="another model"):
        script.read_golden(checkpoint.parent / "golden", SIZES["tiny"])
    for path in (tmp_path / "missing", checkpoint / "config.json", checkpoint / "model.safetensors"):
        with pytest.raises(UserError, match="is no file of golden logits"):
            script.verify(checkpoint, tmp_path, path)
    assert not (tmp_path / "verify.md").exists()
