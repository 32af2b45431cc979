"""An address of a bucket never becomes a local folder."""

import pickle
from importlib import util
from pathlib import Path

import pytest

from rmsweb_jax import storage
from rmsweb_jax.errors import UserError
from rmsweb_jax.storage import StorePath, local_path, parse_path


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setattr(storage, "require_package", lambda scheme: None)


@pytest.mark.parametrize("text", ["runs/demo", "/data/a", "./gs:/b", "a b", "tiny_base", "org/model"])
def test_a_local_path_is_pathlibs(text):
    assert parse_path(text, "--workdir") == local_path(text, "--workdir") == Path(text)


def test_an_address_joins_like_a_path(installed):
    path = parse_path("gs://bucket/runs/a/", "--workdir")
    assert path == StorePath("gs", "bucket", "runs/a")
    file = path / "mine/prompts" / "manifest.json"
    assert str(file) == "gs://bucket/runs/a/mine/prompts/manifest.json"
    assert (file.name, file.stem, file.suffix) == ("manifest.json", "manifest", ".json")
    assert file.parent.parent.parent == path
    assert str(file.with_name("x")) == "gs://bucket/runs/a/mine/prompts/x"
    assert str(parse_path("s3://bucket", "--data") / "a") == "s3://bucket/a"
    assert str(parse_path("s3://bucket", "--data").parent) == "s3://bucket"
    assert pickle.loads(pickle.dumps(path)) == path
    for part in ("../b", "/b"):
        with pytest.raises(ValueError):
            path / part


def test_code_that_needs_a_disk_refuses_it(installed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = parse_path("gs://bucket/runs", "--workdir")
    with pytest.raises(TypeError):
        Path(path)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        open(path, "w").close()  # type: ignore[call-overload]
    with pytest.raises(UserError, match=r"--workdir=gs://bucket/runs: this does not work with a bucket"):
        local_path(str(path), "--workdir")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gcs://b/x", r"unknown scheme gcs: give a path on disk or one of gs://, s3://"),
        ("file:///tmp/x", "unknown scheme file"),
        ("https://host/x", "unknown scheme https"),
        ("gs:/bucket/x", r"give gs://BUCKET/FOLDER"),
        ("gs:///x", r"give gs://BUCKET/FOLDER"),
        ("s3://b/x", r"give s3://BUCKET/FOLDER"),
        ("s3://bucket/../x", r"give s3://BUCKET/FOLDER"),
    ],
)
def test_what_is_no_address_is_one_line(installed, text, message):
    with pytest.raises(UserError, match=message) as caught:
        parse_path(text, "--workdir")
    assert "\n" not in str(caught.value)


def test_a_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"gs:// needs gcsfs: pip install '.\[gcs\]' in the checkout"):
        parse_path("gs://bucket/x", "--workdir")
    with pytest.raises(UserError, match=r"s3:// needs s3fs: pip install '.\[s3\]' in the checkout"):
        parse_path("s3://bucket/x", "--workdir")
