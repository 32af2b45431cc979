"""The machine's cache of a bucket's objects: checked, bounded, and shared."""

import errno
import hashlib
import os

import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.storage import StorePath, cache
from rmsweb_jax.storage.cache import Cache


class Bucket:
    """Objects in memory that count their reads."""

    def __init__(self):
        self.objects, self.reads = {}, []

    def read(self, key):
        self.reads.append(key)
        if key not in self.objects:
            raise FileNotFoundError(key)
        return self.objects[key]


@pytest.fixture
def bucket(monkeypatch):
    store = Bucket()
    monkeypatch.setattr(StorePath, "store", store)
    return store


def place(bucket, number, size=100):
    data = bytes([number]) * size
    bucket.objects[str(number)] = data
    return StorePath("gs", "runs", str(number)), size, hashlib.sha256(data).hexdigest()


def test_an_object_is_fetched_once(bucket, tmp_path):
    first, other = Cache(tmp_path, 10_000), Cache(tmp_path, 10_000)
    one = place(bucket, 1)
    assert first.fetch(*one) == other.fetch(*one)
    assert first.fetch(*one).read_bytes() == bytes([1]) * 100
    assert bucket.reads == ["1"]


def test_those_not_used_for_longest_go_first(bucket, tmp_path):
    small = Cache(tmp_path, 300)
    for number in range(3):
        file = small.fetch(*place(bucket, number))
        os.utime(file, (number, number))
    os.utime(small.fetch(*place(bucket, 0)), (9, 9))
    small.fetch(*place(bucket, 3))
    assert sum(path.stat().st_size for path in tmp_path.glob("*/*")) == 300
    bucket.reads.clear()
    for number in (0, 2, 3):
        small.fetch(*place(bucket, number))
    assert not bucket.reads
    with open(small.fetch(*place(bucket, 0)), "rb") as file:
        small.fetch(*place(bucket, 4, size=300))
        assert file.read() == bytes(100)  # A reader keeps what it has open.


def test_changed_and_missing_objects_are_one_line(bucket, tmp_path):
    small = Cache(tmp_path, 300)
    one = place(bucket, 1)
    bucket.objects["1"] = b"x" + bucket.objects["1"][1:]
    with pytest.raises(UserError, match="gs://runs/1: its bytes have changed"):
        small.fetch(*one)
    del bucket.objects["1"]
    with pytest.raises(UserError, match="gs://runs/1: missing"):
        small.fetch(*one)
    assert not list(tmp_path.glob("*/*"))


def test_a_full_disk_loses_older_files_and_then_is_one_line(bucket, tmp_path, monkeypatch):
    small, write, free = Cache(tmp_path, 10_000), cache.write_atomic, [100]

    def limited(path, data):
        used = sum(one.stat().st_size for one in tmp_path.glob("*/*"))
        if used + len(data) > free[0]:
            raise OSError(errno.ENOSPC, "full", str(path))
        write(path, data)

    monkeypatch.setattr(cache, "write_atomic", limited)
    small.fetch(*place(bucket, 1))
    small.fetch(*place(bucket, 2))
    assert len(list(tmp_path.glob("*/*"))) == 1
    free[0] = 50
    with pytest.raises(UserError, match=r"the cache's disk is full: free space, or set RMSWEB_CACHE"):
        small.fetch(*place(bucket, 3))


def test_a_wrong_size_is_one_line(monkeypatch):
    monkeypatch.setenv("RMSWEB_CACHE_GB", "lots")
    with pytest.raises(UserError, match="RMSWEB_CACHE_GB=lots: give the cache's size in gigabytes"):
        cache.open_cache()
