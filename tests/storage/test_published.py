"""Data sets in buckets: the same records and screenshots as on disk, whole or not at all."""

import shutil

import grain.python as grain
import pytest

from collection.evaluation.results import load_results
from collection.report.evaluations import read_evaluations
from experiments import records
from rmsweb_jax.data.sources import RecordSource, training_data
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.bucket import address, publish_dataset
from rmsweb_jax.records.dataset import dataset_size, read_dataset, sample_dataset, write_dataset
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.schema import SftSample, Trajectory
from rmsweb_jax.records.shards import read_manifest
from rmsweb_jax.records.tools import check_dataset, export_jsonl
from rmsweb_jax.storage import StorePath
from tests.experiments.test_records import version_4
from tests.records.sets import name, png, samples, trajectories, trajectory
from tests.report.evaluated import make_results, write_results

RUNS = [*trajectories(5), trajectory(5, None)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("RMSWEB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "collect"
    images = ImageStore(folder)
    for number in range(4):  # The last one is named by no record.
        images.put(png(number))
    (folder / "reflections.jsonl").write_text('{"guidance": "look twice"}\n')
    (folder / "report.json").write_text('{"stage": "collect"}')
    write_dataset(folder, RUNS, "trajectories", {"seed": 1}, shard_size=2)
    return folder


def test_what_was_published_is_read_as_it_is_on_disk(bucket, folder, cache):
    publish_dataset(folder, bucket)
    assert list(read_dataset(bucket, Trajectory)) == list(read_dataset(str(bucket))) == RUNS
    assert dataset_size(bucket) == 6
    assert sample_dataset(bucket, 2, seed=1) == sample_dataset(folder, 2, seed=1)
    there, here = ImageStore(bucket), ImageStore(folder)
    for run in RUNS:
        for sha256 in record_images(run):
            assert sha256 in there
            assert there.get(sha256) == here.get(sha256)
    assert name(png(3)) not in there
    with pytest.raises(UserError, match="missing screenshot"):
        there.get(name(png(3)))
    check = check_dataset(bucket)
    assert (check.records, check.images, check.without_screenshot, check.problems) == (6, 3, 1, [])
    assert export_jsonl(bucket, cache.parent / "a.jsonl") == export_jsonl(folder, cache.parent / "b.jsonl")
    assert (cache.parent / "a.jsonl").read_bytes() == (cache.parent / "b.jsonl").read_bytes()


def test_a_table_reads_an_evaluation(bucket, folder):
    results = make_results("sft", "online_mind2web", 0.5, tasks=range(4))
    write_results(folder, results)
    publish_dataset(folder, bucket)
    (evaluation,) = read_evaluations(f"sft={bucket}")
    assert evaluation.results.table.equals(load_results(folder).table)
    assert evaluation.results.table.equals(results.table)


def test_training_reads_it_by_number(bucket, tmp_path):
    corpus = tmp_path / "corpus"
    for number in range(3):
        ImageStore(corpus).put(png(number))
    write_dataset(corpus, samples(RUNS), "sft_samples", shard_size=2)
    publish_dataset(corpus, bucket)
    there, here = RecordSource(bucket, SftSample), RecordSource(corpus, SftSample)
    assert there.digest == here.digest
    assert [there[number] for number in (5, 0, 3)] == [here[number] for number in (5, 0, 3)]
    assert isinstance(there._records, grain.ArrayRecordDataSource)


def test_publishing_again_uploads_what_is_new_and_keeps_earlier_shards(bucket, folder, monkeypatch):
    publish_dataset(folder, bucket)
    before = {entry.key for entry in bucket.entries()}
    uploaded, upload = [], StorePath.upload

    def counted(path, file):
        uploaded.append(path.name)
        upload(path, file)

    monkeypatch.setattr(StorePath, "upload", counted)
    publish_dataset(folder, bucket)
    assert {entry.key for entry in bucket.entries()} == before
    assert sorted(uploaded) == ["reflections.jsonl", "report.json"]
    write_dataset(folder, RUNS[:4], "trajectories", {"seed": 1}, shard_size=2)
    publish_dataset(folder, bucket)
    assert not [name for name in uploaded if name.endswith(".array_record")]
    assert list(read_dataset(bucket, Trajectory)) == RUNS[:4]
    assert before <= {entry.key for entry in bucket.entries()}


def test_a_publish_cut_anywhere_leaves_what_was_there(bucket, folder, monkeypatch):
    """Before each write of the second data set the process dies; then the same command finishes it."""
    publish_dataset(folder, bucket)
    write_dataset(folder, RUNS[2:], "trajectories", {"seed": 2}, shard_size=1)
    allowed = 0

    def limited(write):
        def call(path, data):
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            write(path, data)

        return call

    for method in ("upload", "write_bytes"):
        monkeypatch.setattr(StorePath, method, limited(getattr(StorePath, method)))
    while True:
        left = allowed
        try:
            publish_dataset(folder, bucket)
            break
        except KeyboardInterrupt:
            assert list(read_dataset(bucket, Trajectory)) in (RUNS, RUNS[2:])
            assert check_dataset(bucket).problems == []
        allowed += 1
    assert allowed >= 3
    assert list(read_dataset(bucket, Trajectory)) == RUNS[2:]


def test_a_run_keeps_to_the_data_that_it_began_with(bucket, folder, tmp_path):
    """While others publish; a run with a workdir in a bucket, too, which another machine goes on with."""
    publish_dataset(folder, bucket / "data")
    for workdir in (tmp_path / "run", bucket / "run"):
        first = training_data(str(bucket / "data"), "config.corpus", workdir)
        assert list(read_dataset(first)) == RUNS and address(first) == str(bucket / "data")
    write_dataset(folder, RUNS[:3], "trajectories", {"seed": 2}, shard_size=2)
    publish_dataset(folder, bucket / "data")
    for workdir in (tmp_path / "run", bucket / "run"):
        frozen = training_data(str(bucket / "data"), "config.corpus", workdir)
        shutil.rmtree(tmp_path / "cache")
        assert list(read_dataset(frozen)) == RUNS and check_dataset(frozen).problems == []
        assert len(RecordSource(frozen, Trajectory)) == dataset_size(frozen) == 6
    later = training_data(str(bucket / "data"), "config.corpus", tmp_path / "begun-later")
    assert list(read_dataset(later)) == RUNS[:3]
    assert training_data(str(folder), "config.corpus", tmp_path / "begun-later") == folder


def test_a_damaged_or_missing_shard_in_the_bucket_is_one_line(bucket, folder, tmp_path):
    publish_dataset(folder, bucket)
    path = bucket / next(name for shard in read_manifest(folder).shards for name in shard.files)
    data = path.read_bytes()
    for damaged in (data[: len(data) // 2], b"", None):
        path.unlink()
        if damaged is not None:
            path.write_bytes(damaged)
        (problem,) = check_dataset(bucket).problems
        assert str(path) in problem or path.name in problem
        assert "\n" not in problem
    path.write_bytes(data)
    assert check_dataset(bucket).problems == []


def test_another_kind_is_refused(bucket, folder, tmp_path):
    publish_dataset(folder, bucket)
    write_dataset(tmp_path / "corpus", samples(RUNS), "sft_samples")
    with pytest.raises(UserError, match="holds another kind of data set"):
        publish_dataset(tmp_path / "corpus", bucket)
    assert list(read_dataset(bucket, Trajectory)) == RUNS


def test_the_script_publishes_lists_and_verifies(bucket, folder, capsys):
    records.publish(folder, str(bucket / "a/collect"))
    assert "6 records in 3 shards" in capsys.readouterr().out
    records.list_datasets(bucket)
    assert str(bucket / "a/collect")[:20] in capsys.readouterr().out
    records.verify(bucket / "a/collect")
    assert "6 readable records, 3 images, 1 steps without a screenshot, 0 problems" in capsys.readouterr().out
    with pytest.raises(UserError, match="give the folder of a bucket"):
        records.publish(folder, "runs/x")


def test_a_data_set_with_a_missing_or_cut_shard_is_not_published(bucket, folder):
    publish_dataset(folder, bucket)
    write_dataset(folder, RUNS[2:], "trajectories", {"seed": 2}, shard_size=1)
    path = folder / read_manifest(folder).shards[1].images
    data = path.read_bytes()
    for words in ("missing", "not a whole shard"):
        path.unlink(missing_ok=True)
        if words == "not a whole shard":
            path.write_bytes(data[:100])
        with pytest.raises(UserError, match=f"{path.name}: .*{words}.*: make this data set again"):
            publish_dataset(folder, bucket)
        assert list(read_dataset(bucket, Trajectory)) == RUNS and check_dataset(bucket).problems == []


def test_a_data_set_of_the_version_before_is_upgraded_from_a_bucket(bucket, tmp_path, capsys):
    version_4(tmp_path / "old", packed=True)
    for path in sorted((tmp_path / "old").rglob("*")):
        if path.is_file():
            (bucket / "old" / path.relative_to(tmp_path / "old").as_posix()).upload(path)
    records.upgrade_old(bucket / "old", str(tmp_path / "new"))
    assert capsys.readouterr().out == f"{tmp_path / 'new'}: 5 records\n"
    assert check_dataset(tmp_path / "new").images == 3 and not check_dataset(tmp_path / "new").problems
    assert (tmp_path / "new/reflections.jsonl").read_text() == "{}\n"
