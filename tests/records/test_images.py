import hashlib

import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.records import images
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore, image_names
from rmsweb_jax.records.schema import ImagePart, Message, TextPart
from tests.records.sets import name, png, trajectories


def test_images_are_stored_once_by_hash(tmp_path):
    store = ImageStore(tmp_path)
    sha = store.put(b"png")
    path = tmp_path / "images" / sha[:2] / f"{sha}.png"
    before = path.stat().st_mtime_ns
    assert sha == hashlib.sha256(b"png").hexdigest() == store.put(b"png")
    assert path.stat().st_mtime_ns == before
    assert store.get(sha) == b"png"
    assert sha in store
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_missing_and_damaged_images_are_reported(tmp_path):
    store = ImageStore(tmp_path / "a")
    absent = hashlib.sha256(b"x").hexdigest()
    with pytest.raises(UserError, match=f"missing screenshot {absent}"):
        store.get(absent)
    sha = store.put(b"png")
    store.path(sha).write_bytes(b"pnG")
    with pytest.raises(UserError, match="damaged"):
        store.get(sha)


def test_names_cannot_leave_the_folder(tmp_path):
    with pytest.raises(ValueError, match="SHA-256"):
        ImageStore(tmp_path).get("../../etc/passwd")
    assert "../../etc/passwd" not in ImageStore(tmp_path)


def test_image_names():
    parts = (ImagePart(sha256="a"), TextPart(text="t"), ImagePart(sha256="b"))
    assert image_names([Message(role="user", content=parts)]) == ["a", "b"]


def test_threads_that_look_for_their_first_images_at_once_find_them(tmp_path, monkeypatch):
    """While one of them has looked for a file and not yet at the manifest, another reads it."""
    for number in range(2):
        ImageStore(tmp_path).put(png(number))
    write_dataset(tmp_path, trajectories(4), "trajectories")
    store, file = ImageStore(tmp_path), images._file

    def interrupted(folder, sha256):
        if sha256 == name(png(0)):
            assert store.get(name(png(1))) == png(1)
        return file(folder, sha256)

    monkeypatch.setattr(images, "_file", interrupted)
    assert store.get(name(png(0))) == png(0)


def test_an_image_that_a_data_set_no_longer_has_is_missing(tmp_path):
    for number in range(2):
        ImageStore(tmp_path).put(png(number))
    write_dataset(tmp_path, trajectories(4), "trajectories")
    store = ImageStore(tmp_path)
    assert name(png(0)) in store and name(png(1)) in store
    write_dataset(tmp_path, trajectories(2), "trajectories", {"n": 2})
    assert name(png(1)) not in store and name(png(0)) in store
    with pytest.raises(UserError, match="missing screenshot"):
        store.get(name(png(1)))
