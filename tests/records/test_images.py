import hashlib

import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore, image_names
from rmsweb_jax.records.schema import ImagePart, Message, TextPart


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
