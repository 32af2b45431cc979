import importlib.util
import json

import jax.numpy as jnp
import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.training.metrics import (
    METRICS_FILE,
    REPLIES_FILE,
    MetricWriter,
    SampledReply,
    read_metrics,
    read_rows,
)

HAS_WANDB = importlib.util.find_spec("wandb") is not None


def write(folder, steps, resume_step=0, **options):
    with MetricWriter(folder, resume_step, **options) as writer:
        for step in steps:
            writer.write(step, {"loss": jnp.asarray(step / 2), "note": "x"})
            writer.write_replies(step, [SampledReply("s1", f"reply {step}", "target\n", 0.7)])


def test_resume_cuts_rows_that_are_done_again(tmp_path):
    write(tmp_path, range(1, 8))
    write(tmp_path, range(5, 7), resume_step=4)
    rows = read_metrics(tmp_path)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row["loss"] for row in rows] == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    assert [row["step"] for row in read_rows(tmp_path / REPLIES_FILE)] == [1, 2, 3, 4, 5, 6]
    reply = {"step": 6, "sample_id": "s1", "reply": "reply 6", "target": "target\n", "reward": 0.7}
    assert read_rows(tmp_path / REPLIES_FILE)[-1] == reply


def test_tensorboard_has_the_curves_and_the_replies(tmp_path):
    write(tmp_path, [1, 2])
    data = b"".join(path.read_bytes() for path in (tmp_path / "tensorboard").iterdir())
    assert b"loss" in data and b"eval/replies" in data and b"reply 2" in data


@pytest.mark.parametrize("name", [METRICS_FILE, REPLIES_FILE])
def test_a_torn_last_line_is_left_out(tmp_path, name):
    write(tmp_path, [1, 2])
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-5])
    assert [row["step"] for row in read_rows(path)] == [1]
    write(tmp_path, [3], resume_step=2)
    assert [row["step"] for row in read_rows(path)] == [1, 3]


def test_numbers_that_json_lacks_become_null(tmp_path):
    with MetricWriter(tmp_path) as writer:
        writer.write(1, {"loss": float("nan"), "norm": float("inf")})
    row = json.loads((tmp_path / METRICS_FILE).read_text())
    assert row["loss"] is None and row["norm"] is None


@pytest.mark.skipif(HAS_WANDB, reason="wandb is installed")
def test_wandb_that_is_not_installed_is_one_line(tmp_path):
    with pytest.raises(UserError, match="pip install wandb"):
        MetricWriter(tmp_path, wandb_project="rmsweb")


@pytest.mark.skipif(not HAS_WANDB, reason="wandb is not installed")
def test_a_resumed_run_continues_its_wandb_run(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    write(tmp_path, [1, 2], wandb_project="rmsweb")
    name = (tmp_path / "wandb_run_id").read_text()
    write(tmp_path, [2, 3], resume_step=1, wandb_project="rmsweb")
    assert (tmp_path / "wandb_run_id").read_text() == name
    runs = list((tmp_path / "wandb").glob(f"offline-run-*-{name}/run-{name}.wandb"))
    assert runs and b"reply" in b"".join(path.read_bytes() for path in tmp_path.rglob("*.table.json"))
