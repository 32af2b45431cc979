"""Growing data sets in buckets."""

import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.records import packs
from rmsweb_jax.records.dataset import read_dataset, read_manifest
from rmsweb_jax.records.growing import GrowingDataset
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.staging import publish_growing, staged
from rmsweb_jax.records.tools import check_dataset
from rmsweb_jax.records.versions import list_versions, pinned, pinned_for_run
from rmsweb_jax.storage import StorePath
from tests.records.sets import png, trajectories
from tests.records.test_growing import entries, reflection

RUNS = trajectories(12)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RMSWEB_CACHE", str(tmp_path / "cache"))


def test_a_stage_publishes_to_its_bucket_while_it_runs(bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(packs, "_MOST_PARTS", 2)
    versions, counts = [], []
    with staged(bucket) as folder:
        images, data = ImageStore(folder), GrowingDataset(folder, "trajectories")
        for last in (2, 4, 6, 8, 10, 12):
            for number in range(last // 2):
                images.put(png(number))
            data.publish(entries(RUNS[data.size : last]), [reflection(last)], {"reflections": 1})
            publish_growing(folder)
            versions.append(pinned_for_run(bucket, tmp_path) if last == 2 else pinned(bucket))
            manifest = read_manifest(bucket)
            assert manifest.growing and manifest.images is not None
            counts.append((len(manifest.images.packs), len(manifest.images.more)))
            assert list(read_dataset(bucket)) == RUNS[:last]
            assert check_dataset(bucket).problems == []
            before = {entry.key for entry in bucket.entries()}
            publish_growing(folder)
            assert {entry.key for entry in bucket.entries()} == before, "nothing is new"
        # A part of the index for each, until there are too many; packs stay.
        assert counts == [(1, 0), (2, 1), (3, 2), (4, 0), (5, 1), (6, 2)]
        data.finish(entries(RUNS), {"seed": 1})
        (folder / "report.json").write_text('{"stage": "collect"}')
    manifest = read_manifest(bucket)
    assert manifest.finished and not manifest.growing and manifest.images is not None
    assert (len(manifest.images.packs), manifest.images.more, manifest.images.images) == (6, (), 6)
    assert list(read_dataset(bucket)) == RUNS and check_dataset(bucket).problems == []
    # Earlier versions stay as they were.
    assert set(versions) < set(list_versions(bucket))
    for number, version in enumerate(versions, start=1):
        assert isinstance(version, StorePath) and list(read_dataset(version)) == RUNS[: 2 * number]
        store = ImageStore(version)
        assert all(name in store for run in RUNS[: 2 * number] for name in record_images(run))
        assert check_dataset(version).problems == []


def test_a_stopped_run_leaves_its_last_version(bucket):
    with pytest.raises(UserError, match="stopped"), staged(bucket) as folder:
        ImageStore(folder).put(png(0))
        GrowingDataset(folder, "trajectories").publish(entries(RUNS[:2]), [], {})
        publish_growing(folder)
        raise UserError("stopped")
    assert list(read_dataset(bucket)) == RUNS[:2]
    publish_growing(folder)  # No stage works there any more.
    with staged(bucket) as folder:
        data = GrowingDataset(folder, "trajectories")
        assert data.size == 2
