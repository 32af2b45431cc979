"""The comparison: the same work on both sides, its report, and no ratio for different work."""

import copy
import dataclasses
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from configs.studies.benchmark import VARIANTS, get_config
from experiments.studies.benchmark.config import BenchmarkConfig
from experiments.studies.benchmark.measure import TOLERANCES, check_agreement, workers
from experiments.studies.benchmark.report import section, table
from experiments.studies.benchmark.run import jobs, run
from experiments.studies.benchmark.side import Values, others_seconds
from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import from_config

ROOT = Path(__file__).parents[3]


def small(**changes: object) -> BenchmarkConfig:
    values = get_config("tiny").to_dict()
    values |= {
        "samples": 4,
        "packed": 2,
        "length": 48,
        "response": 6,
        "steps": 2,
        "warmup_steps": 1,
        "threads": 1,
    }
    return from_config(BenchmarkConfig, {**values, "max_pixels": 4096, **changes})


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return run(small(), tmp_path_factory.mktemp("benchmark"))


@pytest.mark.slow
def test_both_sides_compute_the_same(report):
    for program, result in report["programs"].items():
        ours, theirs = result["sides"]["ours"], result["sides"]["transformers"]
        assert theirs["loss"] == pytest.approx(ours["loss"], rel=1e-5), program
        assert theirs["gradient_norm"] == pytest.approx(ours["gradient_norm"], rel=1e-4), program
    assert report["programs"]["forward"]["log_prob_gap"] < 1e-5


@pytest.mark.slow
def test_training_starts_at_the_forward_loss_and_lowers_it(report):
    forward, train = (report["programs"][name]["sides"]["ours"] for name in ("forward", "train"))
    assert train["loss"][0] == pytest.approx(forward["loss"][0], rel=1e-5)
    assert train["loss"][1] < train["loss"][0]
    assert train["gradient_norm"][0] > 0


@pytest.mark.slow
def test_report_is_complete(report):
    assert list(report["programs"]) == ["forward", "train"]
    for result in report["programs"].values():
        assert result["ratio"]["min"] <= result["ratio"]["median"] <= result["ratio"]["max"]
        for side in result["sides"].values():
            assert len(side["steps"]) == 2
            assert side["other_load"] >= 0
            assert side["mfu"] is None and side["peak_bytes"] > 2**20
            rate = result["useful_flops"] / side["seconds"]["median"] / 1e9
            assert side["gflops_per_second"] == pytest.approx(rate)
            assert side["tokens_per_second"] == pytest.approx(4 * 48 / side["seconds"]["median"])
    assert {"jax", "attention"} <= report["machine"]["sides"]["ours"].keys()
    assert {"torch", "transformers", "peft"} <= report["machine"]["sides"]["transformers"].keys()
    json.dumps(report)
    rows = table(report["programs"]).splitlines()
    assert [row.split("|")[1].strip() for row in rows[2:]] == ["forward"] * 3 + ["train"] * 3


@pytest.mark.slow
def test_a_busy_machine_is_reported(report):
    for load, busy in ((0.01, False), (1.5, True)):
        loaded = copy.deepcopy(report)
        for result in loaded["programs"].values():
            for side in result["sides"].values():
                side["other_load"] = load
        content = section(json.loads(json.dumps(loaded)))
        assert f"up to {load:.1f} cores busy" in content
        assert ("not idle" in content) == busy


@pytest.mark.slow
def test_our_side_can_run_alone(tmp_path):
    report = run(small(reference="none", remat="dots", peak_tflops=0.001, steps=1), tmp_path)
    for result in report["programs"].values():
        assert list(result["sides"]) == ["ours"] and "ratio" not in result
        assert result["sides"]["ours"]["mfu"] > 0


@pytest.mark.parametrize(
    "other",
    [
        Values(2.01, 1.0, (-1.0, -3.0)),
        Values(2.0, 1.1, (-1.0, -3.0)),
        Values(2.0, 1.0, (-3.0, -1.0)),
        Values(float("nan"), 1.0, (-1.0, -3.0)),
    ],
    ids=["loss", "gradient", "tokens", "nan"],
)
def test_different_computations_have_no_ratio(other):
    ours = Values(2.0, 1.0, (-1.0, -3.0))
    check_agreement("train", {"ours": ours, "transformers": ours}, TOLERANCES["float32"])
    with pytest.raises(UserError, match="no ratio"):
        check_agreement("train", {"ours": ours, "transformers": other}, TOLERANCES["float32"])


def test_a_missing_reference_is_reported(monkeypatch, tmp_path):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "peft" else find(name))
    with pytest.raises(UserError, match=r"needs peft: pip install peft, or .*--config.reference=none"):
        run(small(), tmp_path)


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine has one")
def test_a_missing_device_is_reported_by_the_worker(tmp_path):
    with pytest.raises(UserError, match=r"ours: config.device=cuda: JAX has no such device here"):
        run(small(device="cuda", reference="none"), tmp_path)


def test_a_dead_worker_is_reported(tmp_path):
    job = jobs(small(reference="none"), tmp_path, tmp_path)[0]
    with workers([job], tmp_path) as (worker,):
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(UserError, match=r"ours: the worker ended \(killed, .*\); see .*ours.log"):
            worker.ask("describe")


def test_load_of_other_processes_is_measured():
    before = others_seconds()
    spin = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", spin], check=True)
    assert others_seconds() - before > 0.4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": "3b"}, "config.size is '3b': use one of tiny"),
        ({"remat": "dots"}, "no counterpart in transformers"),
        ({"steps": 0}, "config.steps is 0"),
        ({"lora": {"rank": 4, "alpha": 8.0, "dropout": 0.1}}, "without dropout"),
    ],
)
def test_wrong_settings_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        small(**changes)


def test_samples_too_short_for_their_content_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"config.length=8 does not hold .* make it \d+ or more"):
        run(small(length=8, reference="none"), tmp_path)


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_are_valid(variant):
    config = from_config(BenchmarkConfig, get_config(variant))
    whole = dataclasses.replace(config, decoder_layers=0, vision_blocks=0).architecture()
    assert config.architecture().num_deepstack == whole.num_deepstack
    with pytest.raises(UserError, match=r"config.decoder_layers is 2: size"):
        dataclasses.replace(config, decoder_layers=2).architecture()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--config=configs/studies/benchmark.py:tiny", "--config.nonsense=1"), "nonsense"),
        (("--config=configs/studies/benchmark.py:huge",), "huge"),
        (("--config.nonsense=1",), "nonsense"),
    ],
    ids=["key", "variant", "key of the default"],
)
def test_a_wrong_command_is_one_line(arguments, message, tmp_path):
    command = [
        sys.executable,
        "-m",
        "experiments.studies.benchmark.run",
        f"--output={tmp_path / 'out.json'}",
        *arguments,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and message in done.stderr
