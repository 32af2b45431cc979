"""The same behaviour in both kinds of buckets, through the services' own clients."""

import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.storage import ObjectStore, parse_path


def test_objects_are_read_as_they_were_written(place):
    store, root = place
    key = f"{root}/deep/x é.bin"
    assert store.size(key) is None
    with pytest.raises(FileNotFoundError):
        store.read(key)
    data = bytes(range(256)) * 10
    store.write(key, data)
    assert (store.read(key), store.size(key)) == (data, 2560)
    store.write(key, b"new")
    assert store.read(key) == b"new"
    store.write(key, b"")
    assert (store.read(key), store.size(key)) == (b"", 0)
    store.delete(key)
    store.delete(key)
    assert store.size(key) is None


def test_a_listing_has_what_another_client_wrote_and_no_more(place):
    store, root = place
    assert store.entries(f"{root}/") == []
    for name in ("b/1", "b/2", "ba", "c"):
        store.write(f"{root}/{name}", name.encode())
    listed = [(entry.key, entry.size) for entry in store.entries(f"{root}/b/")]
    assert listed == [(f"{root}/b/1", 3), (f"{root}/b/2", 3)]
    assert [entry.key for entry in store.entries(f"{root}/b")] == [f"{root}/b/1", f"{root}/b/2", f"{root}/ba"]
    other = ObjectStore(store._url[:2], "runs")
    other.write(f"{root}/d", b"")
    other.delete(f"{root}/c")
    assert [entry.key[len(root) + 1 :] for entry in store.entries(f"{root}/")] == ["b/1", "b/2", "ba", "d"]


def test_a_path_reads_and_lists(bucket):
    (bucket / "a" / "report.json").write_bytes(b"{}")
    (bucket / "b.json").write_bytes(b"1")
    assert (bucket / "a/report.json").read_text() == "{}"
    assert (bucket / "a").exists() and (bucket / "a").is_dir() and not (bucket / "a").is_file()
    assert (bucket / "b.json").is_file() and not (bucket / "b.json").is_dir()
    assert not (bucket / "b").exists()
    assert [path.name for path in bucket.iterdir()] == ["a", "b.json"]
    assert list(bucket.glob("*.json")) == [bucket / "b.json"]
    (bucket / "b.json").unlink()
    with pytest.raises(FileNotFoundError):
        (bucket / "b.json").unlink()


def test_a_missing_bucket_is_one_line(bucket):
    missing = parse_path(f"{bucket.scheme}://missing-bucket/x", "--workdir")
    with pytest.raises(UserError, match=r"://missing-bucket: there is no such bucket"):
        missing.store.check()
    bucket.store.check()
