import json
import sys

import jax.numpy as jnp
import pytest

from rmsweb_jax.training.metrics import (
    METRICS_FILE,
    REPLIES_FILE,
    MetricWriter,
    SampledReply,
    read_metrics,
    read_rows,
)


def write(folder, steps, resume_step=0):
    with MetricWriter(folder, resume_step) as writer:
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


def test_torch_is_not_imported(tmp_path, monkeypatch):
    class Finder:
        asked = False

        def find_spec(self, name, path=None, target=None):
            if name == "torch":
                self.asked = True
                raise ImportError

    finder = Finder()
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tensorboardX", "torch")]:
        monkeypatch.delitem(sys.modules, name)
    write(tmp_path, [1])
    assert not finder.asked


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
