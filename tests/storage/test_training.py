"""Training whose workdir is in a bucket: any machine goes on from the last checkpoint."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rmsweb_jax
from rmsweb_jax.errors import UnreachableError
from rmsweb_jax.qwen.checkpoint import resolve_model
from rmsweb_jax.records.bucket import publish_dataset
from rmsweb_jax.storage import StorePath
from rmsweb_jax.training.checkpoints import Checkpoints
from rmsweb_jax.training.metrics import METRICS_FILE, REPLIES_FILE, MetricWriter, SampledReply, read_rows
from tests.policies import KilledError, weights, write_corpus
from tests.sft.test_train import curves, kill_after, make_config
from tests.storage.chain import start
from tests.storage.faulty_proxy import Faults, FaultyProxy
from tests.storage.servers import gcs_command, has_client, serve

PATIENCE_S = 300


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A function that goes on as another machine, with a disk of its own."""
    numbers = iter(range(9))

    def change():
        cache = tmp_path / f"machine-{next(numbers)}"
        monkeypatch.setenv("RMSWEB_CACHE", str(cache))
        return cache

    change()
    return change


def state(value: float):
    return {"w": jnp.full((3, 2), value), "count": jnp.asarray(7, jnp.int32)}


def test_another_machine_finds_the_latest_and_the_best_checkpoint(bucket, machine):
    options = {"keep": 1, "best": "eval/accuracy"}
    with Checkpoints(bucket / "checkpoints", **options) as checkpoints:
        for step, accuracy in enumerate((0.5, 0.9, 0.1), 1):
            checkpoints.save(step, state(step), {"step": step}, {"eval/accuracy": accuracy})
    machine()
    with Checkpoints(bucket / "checkpoints", **options) as checkpoints:
        assert (checkpoints.latest_step(), checkpoints.best_step()) == (3, 2)
        for step in (2, 3):
            restored, extra = checkpoints.restore(step, state(0))
            jax.tree.map(np.testing.assert_array_equal, restored, state(step))
            assert extra == {"step": step}
        checkpoints.save(4, state(4), {}, {"eval/accuracy": 1.0})
    assert {path.name for path in (bucket / "checkpoints").iterdir() if path.name.isdecimal()} == {"4"}


def test_a_checkpoint_that_was_cut_off_does_not_count(bucket, machine):
    with Checkpoints(bucket / "checkpoints") as checkpoints:
        checkpoints.save(1, state(1), {})
        checkpoints.save(2, state(2), {})
    marks = [entry for entry in (bucket / "checkpoints/2").entries() if "commit" in entry.key]
    assert marks
    for mark in marks:
        bucket.store.delete(mark.key)
    machine()
    with Checkpoints(bucket / "checkpoints") as checkpoints:
        assert checkpoints.latest_step() == 1
        checkpoints.save(2, state(5), {})
    machine()
    with Checkpoints(bucket / "checkpoints") as checkpoints:
        restored, _ = checkpoints.restore(2, state(0))
        jax.tree.map(np.testing.assert_array_equal, restored, state(5))


@pytest.mark.slow
@pytest.mark.parametrize("only", ["ocdbt.process_1", "_CHECKPOINT_METADATA"])
def test_a_host_whose_write_fails_ends_the_others_at_once(tmp_path, only):
    """Orbax alone would keep the host whose writes succeed waiting for 20 minutes."""
    if not gcs_command() or not has_client("gs"):
        pytest.skip("no gs:// server or client is installed")
    with FaultyProxy() as proxy, serve("gs", tmp_path / "store.log", proxy) as environment:
        # What one of the hosts writes. TensorStore gives up at a reply that ends in its head.
        proxy.faults = Faults(cut=1.0, cut_after=40, only=only)
        saving = start(["tests.storage.saver", "gs://runs/saved"], tmp_path / "hosts", environment, hosts=2)
        try:
            codes = [process.wait(timeout=PATIENCE_S) for process in saving]
        finally:
            for process in saving:
                process.kill()
    assert proxy.count().cut
    logs = [(tmp_path / f"hosts/{number}.log").read_text() for number in range(2)]
    assert codes == [UnreachableError.exit_code] * 2, logs
    line = "gs://runs/saved: the store did not answer as it should"
    failed = 1 if "process_1" in only else 0
    assert line in logs[failed] and f"(process {failed}) ended: {line}" in logs[1 - failed]


def test_metrics_are_whole_at_each_checkpoint_and_those_of_repeated_steps_go(bucket, machine):
    def write(steps, resume_step=0):
        with MetricWriter(bucket, resume_step) as writer:
            for step in steps:
                writer.write(step, {"loss": step / 2})
                if step % 2 == 0:
                    writer.write_replies(step, [SampledReply("s1", f"reply {step}", "target\n", 0.7)])
                    writer.publish()

    def steps(name):
        return [row["step"] for row in read_rows(bucket / name)]

    write(range(1, 8))
    assert steps(METRICS_FILE) == [1, 2, 3, 4, 5, 6] and steps(REPLIES_FILE) == [2, 4, 6]
    machine()
    write([3, 4, 5], resume_step=2)
    assert steps(METRICS_FILE) == [1, 2, 3, 4] and steps(REPLIES_FILE) == [2, 4]
    assert {path.name for path in bucket.iterdir()} == {METRICS_FILE, REPLIES_FILE, "tensorboard"}
    machine()
    write([1, 2])
    assert steps(METRICS_FILE) == [1, 2]


def test_a_model_is_fetched_once_for_each_version(bucket, machine, monkeypatch):
    (bucket / "export/config.json").write_bytes(b"{}")
    (bucket / "export/model.safetensors").write_bytes(b"weights")
    folder = resolve_model(str(bucket / "export"))
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    with monkeypatch.context() as patch:
        patch.setattr(StorePath, "download", None)
        patch.setattr(type(bucket.store), "download", None)
        assert resolve_model(str(bucket / "export")) == folder
    (bucket / "export/model.safetensors").write_bytes(b"changed")
    changed = resolve_model(str(bucket / "export"))
    assert (changed / "model.safetensors").read_bytes() == b"changed"
    assert (folder / "model.safetensors").read_bytes() == b"weights"


@pytest.mark.slow
def test_a_killed_run_goes_on_elsewhere_and_ends_like_one_on_a_disk(
    random_policy, bucket, machine, tmp_path, monkeypatch
):
    write_corpus(tmp_path / "corpus", [1 + number % 3 for number in range(14)])
    config = make_config(random_policy, tmp_path / "corpus")
    config.epochs = 1
    report = rmsweb_jax.train_sft(config, tmp_path / "disk")
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        kill_after(patch, 2)
        config.checkpoint_every = 1
        rmsweb_jax.train_sft(config, str(bucket))
    assert not (bucket / "report.json").exists() and not (bucket / "export").exists()
    machine()
    resumed = rmsweb_jax.train_sft(config, str(bucket))
    assert resumed["steps"] == report["steps"] == 3

    export = resolve_model(str(bucket / "export"))
    chex.assert_trees_all_equal(weights(export), weights(tmp_path / "disk/export"))
    copies = tmp_path / "copies"
    copies.mkdir()
    for name in (METRICS_FILE, REPLIES_FILE):
        (bucket / name).download(copies / name)
    assert curves(copies) == curves(tmp_path / "disk")
    assert read_rows(copies / REPLIES_FILE) == read_rows(tmp_path / "disk" / REPLIES_FILE)
    cache = machine()
    assert rmsweb_jax.train_sft(config, str(bucket)) == resumed
    assert not [path for path in (cache / "workdirs").iterdir() if path.is_dir()]


@pytest.mark.slow
def test_training_keeps_to_the_corpus_that_it_began_with(
    random_policy, bucket, machine, tmp_path, monkeypatch
):
    """A larger one is published between a kill and the continuation: nothing of it is trained on."""
    write_corpus(tmp_path / "corpus", [1 + number % 3 for number in range(14)])
    config = make_config(random_policy, tmp_path / "corpus")
    config.epochs = 1
    report = rmsweb_jax.train_sft(config, tmp_path / "disk")
    publish_dataset(tmp_path / "corpus", bucket / "corpus")
    config.corpus = str(bucket / "corpus")
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        kill_after(patch, 2)
        config.checkpoint_every = 1
        rmsweb_jax.train_sft(config, str(bucket / "run"))
    write_corpus(tmp_path / "larger", [1 + number % 3 for number in range(20)])
    publish_dataset(tmp_path / "larger", bucket / "corpus")
    machine()
    resumed = rmsweb_jax.train_sft(config, str(bucket / "run"))
    assert resumed["samples"] == report["samples"] and resumed["data"].startswith(f"{bucket}/run/frozen/")
    export = resolve_model(str(bucket / "run/export"))
    chex.assert_trees_all_equal(weights(export), weights(tmp_path / "disk/export"))
    # A new run takes the newest.
    assert rmsweb_jax.train_sft(config, tmp_path / "new")["samples"] > report["samples"]
