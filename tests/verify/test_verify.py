"""The checks of a model and of devices: right ones pass, and each kind of damage is found."""

import json
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from experiments import verify as command
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.checkpoint import resolve_model
from rmsweb_jax.qwen3_vl.config import SIZES, Qwen3VLConfig
from rmsweb_jax.verify import kernels
from rmsweb_jax.verify.checks import Check, at_least, at_most, run_checks
from rmsweb_jax.verify.golden import compare_golden, read_golden, write_golden
from rmsweb_jax.verify.training import CPU, Setup, decode_bytes
from tests.qwen3_vl.references import random_config, reference_model
from tests.virtual_devices import device_environment

ROOT = Path(__file__).parents[2]


def names(checks: list[Check]) -> list[str]:
    """Names of the checks that failed."""
    return [check.name for check in checks if check.ok is False]


# --- Golden logits ---


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    """A checkpoint as transformers saves it, next to its golden logits as transformers computes them."""
    folder = tmp_path_factory.mktemp("checkpoint") / "model"
    reference_model(random_config(5), 5).save_pretrained(folder)
    write_golden(folder.parent / "golden.safetensors", folder)
    return folder


def compare(folder: Path, golden: Path) -> list[Check]:
    setup = Setup(folder)
    checks = compare_golden(read_golden(golden, setup.config), setup.policy(setup.sft), folder, setup.mesh)
    return list(checks)


@pytest.mark.slow
def test_golden_logits_of_transformers_are_ours(checkpoint):
    found = compare(checkpoint, checkpoint.parent / "golden.safetensors")
    assert len(found) == 4 and not names(found)


@pytest.mark.slow
def test_texts_are_encoded_as_by_transformers(tmp_path):
    write_golden(tmp_path / "golden", resolve_model("tiny_base"))
    found = compare(resolve_model("tiny_base"), tmp_path / "golden")
    assert len(found) == 9 and not names(found)


@pytest.fixture(scope="module")
def flipped(checkpoint, tmp_path_factory) -> Path:
    """The same checkpoint with the sign of one weight flipped."""
    folder = tmp_path_factory.mktemp("flipped") / "model"
    folder.mkdir()
    (folder / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    tensors = load_file(checkpoint / "model.safetensors")
    weight = tensors["model.language_model.layers.1.mlp.down_proj.weight"]
    at = np.unravel_index(np.abs(weight).argmax(), weight.shape)
    weight[at] = -weight[at]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_a_flipped_weight_is_found(checkpoint, flipped):
    failed = names(compare(flipped, checkpoint.parent / "golden.safetensors"))
    assert sum("largest difference" in name for name in failed) == 2


def test_files_that_are_not_golden_logits_of_the_model_are_refused(checkpoint, tmp_path):
    golden = checkpoint.parent / "golden.safetensors"
    with pytest.raises(UserError, match="another model"):
        read_golden(golden, SIZES["tiny"])
    config = Qwen3VLConfig.from_hf(checkpoint / "config.json")
    cut = tmp_path / "cut"
    cut.write_bytes(golden.read_bytes()[:-100])
    for path in (cut, tmp_path / "missing", checkpoint / "config.json", checkpoint / "model.safetensors"):
        with pytest.raises(UserError, match="is no file of golden logits"):
            read_golden(path, config)


# --- Kernels ---


TEXT = SIZES["tiny"].text


@pytest.mark.slow
def test_kernels_pass():
    checks = [*kernels.training_kernels(TEXT, "float32", (128, 256))]
    checks += kernels.decode_kernel(TEXT, "float32", compiled=False)
    assert len(checks) == 8 and not names(checks)


@pytest.mark.slow
def test_bfloat16_has_its_own_limit():
    checks = [*kernels.training_kernels(TEXT, "bfloat16", (128, 128))]
    assert not names(checks)
    assert min(float(check.measured) for check in checks) > kernels.LIMITS["float32"]


def test_attention_to_another_branch_is_found(monkeypatch):
    right = kernels.plain_attention

    def causal(q, k, v, until):
        return right(q, k, v, jnp.full_like(until, until.shape[1]))

    monkeypatch.setattr(kernels, "plain_attention", causal)
    assert len(names([*kernels.training_kernels(TEXT, "float32", (128, 256))])) == 6


def test_a_wrong_gradient_is_found(monkeypatch):
    right = kernels.plain_attention

    def no_gradient_of_keys(q, k, v, until):
        return right(q, kernels.jax.lax.stop_gradient(k), v, until)

    monkeypatch.setattr(kernels, "plain_attention", no_gradient_of_keys)
    failed = names([*kernels.training_kernels(TEXT, "float32", (128, 256))])
    assert len(failed) == 3 and all(name.endswith("backward") for name in failed)


def test_a_decode_kernel_that_reads_one_key_more_is_found(monkeypatch):
    right = kernels.plain_decode

    def one_less(q, keys, values, seen):
        return right(q, keys, values, seen & jnp.roll(seen, -1, axis=1))

    monkeypatch.setattr(kernels, "plain_decode", one_less)
    assert len(names([*kernels.decode_kernel(TEXT, "float32", compiled=False)])) == 2


# --- Running and reporting ---


def test_nan_is_never_within_a_limit():
    assert at_most("a", float("nan"), 1.0).ok is False and at_least("a", float("nan"), 1.0).ok is False
    assert at_most("a", 1.0, 1.0).ok and at_least("a", 1.0, 1.0).ok


def test_an_exception_is_a_failed_check_and_later_parts_run():
    def breaks():
        yield at_most("first", 0, 1)
        raise RuntimeError("out of\nmemory")

    lines = []
    checks = run_checks({"one": breaks, "two": lambda: [at_most("second", 0, 1)]}, lines.append)
    assert [(check.name, check.ok) for check in checks] == [("first", True), ("one", False), ("second", True)]
    assert checks[1].note == "RuntimeError: out of memory"
    assert any("Traceback" in line for line in lines)


def run(*arguments: str, devices: int = 1) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "experiments.verify", *arguments],
        cwd=ROOT,
        env=device_environment(devices),
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_the_command_on_two_devices(checkpoint, tmp_path):
    golden = f"--golden={checkpoint.parent / 'golden.safetensors'}"
    done = run(f"--model={checkpoint}", f"--output={tmp_path}", golden, devices=2)
    assert done.returncode == 0, done.stderr
    content = json.loads((tmp_path / "verify.json").read_bytes())
    checks = {row["name"]: row for row in content["checks"]}
    assert not [name for name, row in checks.items() if row["ok"] is False]
    assert content["devices"].startswith("2 x") and content["versions"]["jax"]
    assert "device_count=2" in content["flags"]["XLA_FLAGS"]
    for word in (
        "attention",
        "decode kernel",
        "against 1 device",
        "golden",
        "SFT",
        "rollout",
        "sampler",
        "RL",
    ):
        assert any(word in name for name, row in checks.items() if row["ok"]), word
    page = (tmp_path / "verify.md").read_text()
    assert all(name in page for name in checks) and str(tmp_path) not in page


@pytest.mark.slow
def test_a_failed_check_is_exit_code_1_and_the_page_is_written(checkpoint, flipped, tmp_path, monkeypatch):
    def out_of_memory(setup):
        raise MemoryError("no memory")

    for name in ("sft", "rl"):
        monkeypatch.setattr(command, name, out_of_memory)
    with pytest.raises(UserError, match="and 5 more failed") as error:
        command.verify(flipped, tmp_path, checkpoint.parent / "golden.safetensors")
    assert error.value.exit_code == 1
    page = (tmp_path / "verify.md").read_text()
    assert page.count("| NO |") == 6 and "MemoryError: no memory" in page


def test_bad_input_is_one_line(checkpoint, tmp_path):
    done = run(f"--model={checkpoint}")
    assert done.returncode == 2
    assert done.stderr.count("error: ") == 1 and "--output=FOLDER" in done.stderr.splitlines()[-1]
    with pytest.raises(UserError, match=r"config\.json is missing"):
        command.verify(resolve_model(str(tmp_path)), tmp_path)
    with pytest.raises(UserError, match="no file of golden logits"):
        command.verify(checkpoint, tmp_path, tmp_path / "none")
    assert not (tmp_path / "verify.md").exists()


# --- Floors ---


def test_a_decoding_step_reads_every_matrix_and_all_caches(checkpoint):
    setup = Setup(checkpoint)
    text = setup.config.text
    tensors = load_file(checkpoint / "model.safetensors")
    layers = sum(
        value.size for name, value in tensors.items() if "language_model.layers" in name and value.ndim == 2
    )
    head = text.vocab_size * text.hidden_size
    tokens = 3 * (CPU.prompt + CPU.group_samples * CPU.new_tokens / 2)
    cache = 2 * text.num_hidden_layers * text.kv_dim * tokens
    assert decode_bytes(setup, 7, 3) == 7 * 4 * (layers + head + cache)
