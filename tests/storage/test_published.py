"""Data sets in buckets: the same records and screenshots as on disk, whole or not at all."""

import json

import grain.python as grain
import pytest

from collection.evaluation.results import load_results
from collection.report.evaluations import read_evaluations
from experiments import records
from rmsweb_jax.data.sources import RecordSource, training_data
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import dataset_size, read_dataset, sample_dataset, write_dataset
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.packs import write_packs
from rmsweb_jax.records.publish import publish_dataset
from rmsweb_jax.records.schema import SftSample, Trajectory
from rmsweb_jax.records.sealing import finish_stage
from rmsweb_jax.records.tools import check_dataset, export_jsonl
from rmsweb_jax.records.versions import list_versions, pinned, pinned_for_run
from rmsweb_jax.storage import StorePath, parse_path
from tests.records.sets import flipped, name, png, samples, trajectories, trajectory
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
    assert evaluation.results == load_results(folder) == results


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


def test_screenshots_of_a_bucket_are_copied_to_a_data_set_on_disk(bucket, folder, tmp_path):
    publish_dataset(folder, bucket)
    target, sha256 = ImageStore(tmp_path / "corpus"), name(png(1))
    target.link_from(ImageStore(bucket), sha256)
    assert target.get(sha256) == png(1)


def test_publishing_again_uploads_what_is_new_and_keeps_earlier_shards(bucket, folder, monkeypatch):
    publish_dataset(folder, bucket)
    before = {entry.key for entry in bucket.entries()}
    written, write = [], StorePath.write_bytes

    def counted(path, data):
        written.append(path.name)
        write(path, data)

    monkeypatch.setattr(StorePath, "write_bytes", counted)
    publish_dataset(folder, bucket)
    # The version's files and the report next to it are small, and their names have no hash of their own.
    assert {entry.key for entry in bucket.entries()} == before
    assert sorted(written) == ["manifest.json", "reflections.jsonl", "report.json", "report.json"]
    write_dataset(folder, RUNS[:4], "trajectories", {"seed": 2}, shard_size=2)
    publish_dataset(folder, bucket)
    assert list(read_dataset(bucket, Trajectory)) == RUNS[:4]
    assert before <= {entry.key for entry in bucket.entries()}


def test_a_publish_cut_anywhere_leaves_what_was_there(bucket, folder, monkeypatch):
    """Before each write of the second version the process dies; then the same command finishes it."""
    publish_dataset(folder, bucket)
    # Three shards, a pack, an index, a side file and the report are new.
    write_dataset(folder, RUNS[2:], "trajectories", {"seed": 2}, shard_size=1)
    write, allowed = StorePath.write_bytes, 0

    def limited(path, data):
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        write(path, data)

    monkeypatch.setattr(StorePath, "write_bytes", limited)
    while True:
        left = allowed
        try:
            publish_dataset(folder, bucket)
            break
        except KeyboardInterrupt:
            # The last of the writes is that of report.json, after the manifest.
            assert list(read_dataset(bucket, Trajectory)) in (RUNS, RUNS[2:])
        allowed += 1
    assert allowed >= 3
    assert list(read_dataset(bucket, Trajectory)) == RUNS[2:]
    assert check_dataset(bucket).problems == []


def test_a_flipped_byte_in_any_object_is_one_line(bucket, folder):
    """Also where this machine's cache still has the bytes from before."""
    publish_dataset(folder, bucket)
    paths = [StorePath(bucket.scheme, bucket.bucket, entry.key) for entry in bucket.entries()]
    paths = [path for path in paths if path.name != ".lease"]
    # Shards, pack, index, the manifest and two side files of the version, the manifest and the report.
    assert len(paths) == 3 + 1 + 1 + 3 + 2
    for path in paths:
        data = path.read_bytes()
        for damaged in flipped(data, seed=len(data)):
            path.write_bytes(damaged)
            (problem,) = check_dataset(bucket).problems
            assert problem.startswith(f"{path}: ") and "\n" not in problem
        path.unlink()
        (problem,) = check_dataset(bucket).problems
        assert problem.startswith((f"{path}: ", f"{bucket}@{path.parent.name}: there is no such version"))
        path.write_bytes(data)
    assert check_dataset(bucket).problems == []


def test_a_version_stays_as_it_was(bucket, folder, capsys):
    publish_dataset(folder, bucket)
    first = pinned(bucket)
    (folder / "reflections.jsonl").write_text('{"guidance": "scroll down"}\n')
    write_dataset(folder, RUNS[2:4], "trajectories", {"seed": 2}, shard_size=1)
    publish_dataset(folder, bucket)
    second = pinned(bucket)
    assert list(read_dataset(first)) == list(read_dataset(str(first))) == RUNS
    assert (first / "reflections.jsonl").read_text() == '{"guidance": "look twice"}\n'
    assert ImageStore(first).get(name(png(0))) == png(0)
    assert list(read_dataset(second)) == list(read_dataset(bucket)) == RUNS[2:4]
    assert name(png(0)) not in ImageStore(second)
    assert dataset_size(parse_path(str(first), "--data")) == 6
    for place in (first, second, bucket):
        assert check_dataset(place).problems == []
    assert set(list_versions(bucket)) == {first, second}
    records.versions(bucket)
    table = capsys.readouterr().out
    assert first.version in table and second.version in table
    records.list_datasets(bucket)
    assert "versions" not in capsys.readouterr().out
    # The same again is no new version.
    publish_dataset(folder, bucket)
    assert len(list_versions(bucket)) == 2


def test_a_version_that_is_unknown_or_written_to_is_one_line(bucket, folder, tmp_path):
    publish_dataset(folder, bucket)
    unknown = bucket.at("0123456789ab")
    for read in (read_dataset, check_dataset, pinned):
        try:
            problems = getattr(read(unknown), "problems", [])
        except UserError as error:
            problems = [str(error)]
        if read is pinned:
            assert not problems  # It has a version already.
        else:
            assert problems[0].startswith(f"{unknown}: there is no such version: ") and len(problems) == 1
    with pytest.raises(UserError, match=r"no version of a data set: give .*12 hexadecimal digits"):
        parse_path(f"{bucket}@newest", "config.corpus")
    with pytest.raises(UserError, match="a version can only be read"):
        publish_dataset(folder, pinned(bucket))
    with pytest.raises(UserError, match="those on disk have no versions"):
        read_dataset(f"{folder}@0123456789ab")
    with pytest.raises(UserError, match="data sets on disk have no versions"):
        records.versions(folder)


def test_a_run_keeps_to_the_version_that_it_began_with(bucket, folder, tmp_path):
    publish_dataset(folder, bucket)
    (tmp_path / "run").mkdir()
    first = pinned_for_run(bucket, tmp_path / "run")
    write_dataset(folder, RUNS[:4], "trajectories", {"seed": 2}, shard_size=2)
    publish_dataset(folder, bucket)
    assert pinned_for_run(bucket, tmp_path / "run") == first
    assert training_data(str(bucket), "config.corpus", tmp_path / "run") == first
    (tmp_path / "begun-later").mkdir()
    assert pinned_for_run(bucket, tmp_path / "begun-later") == pinned(bucket) != first
    assert training_data(str(first), "config.corpus", tmp_path / "begun-later") == first
    assert training_data(str(folder), "config.corpus", tmp_path / "begun-later") == folder


def test_publishing_refuses_side_files_that_have_changed(bucket, folder):
    finish_stage(folder, b'{"stage": "collect"}')
    publish_dataset(folder, bucket)
    (folder / "reflections.jsonl").write_text('{"guidance": "look thrice"}\n')
    with pytest.raises(UserError, match=r"reflections.jsonl: its bytes have changed"):
        publish_dataset(folder, bucket)
    assert check_dataset(bucket).problems == []


def test_another_kind_and_an_unfinished_set_are_refused(bucket, folder, tmp_path):
    publish_dataset(folder, bucket)
    write_dataset(tmp_path / "corpus", samples(RUNS), "sft_samples")
    with pytest.raises(UserError, match="holds another kind of data set"):
        publish_dataset(tmp_path / "corpus", bucket)
    manifest = json.loads((folder / "manifest.json").read_text()) | {"digest": ""}
    (folder / "manifest.json").write_text(json.dumps(manifest | {"finished": False}))
    with pytest.raises(UserError, match="no finished data set here"):
        publish_dataset(folder, bucket)
    assert list(read_dataset(bucket, Trajectory)) == RUNS


def test_the_script_publishes_lists_and_verifies(bucket, folder, capsys):
    records.publish(folder, str(bucket / "a/collect"))
    assert "6 records in 3 shards, 3 images in 1 packs, 2 other files" in capsys.readouterr().out
    records.list_datasets(bucket)
    assert str(bucket / "a/collect")[:20] in capsys.readouterr().out
    records.verify(bucket / "a/collect")
    assert "6 readable records, 3 images, 1 steps without a screenshot, 0 problems" in capsys.readouterr().out
    with pytest.raises(UserError, match="give the folder of a bucket"):
        records.publish(folder, "runs/x")


def test_packs_are_bounded_and_repeatable():
    pictures = {name(png(number)): png(number) for number in range(20)}
    limit = 3 * max(map(len, pictures.values()))
    files = {}
    packs = write_packs(pictures, pictures.__getitem__, lambda file, data: files.update({file: data}), limit)
    assert 7 <= len(packs.packs) <= 10 and packs.images == 20
    assert all(file.bytes == len(data) <= max(limit, 48 * 20) for file, data in files.items())
    assert packs == write_packs(pictures, pictures.__getitem__, lambda file, data: None, limit)
    assert write_packs([], pictures.__getitem__, lambda file, data: None).packs == ()
