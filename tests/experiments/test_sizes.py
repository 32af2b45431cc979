"""Sizes that are stored with a new data set."""

import json

import pytest

from experiments.sizes import store_sizes
from rmsweb_jax.data.encoding import Encoder, dataset_sizes
from rmsweb_jax.data.sources import RecordSource
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import SftSample
from tests.policies import write_corpus


def test_training_finds_them(tmp_path, random_policy, monkeypatch):
    write_corpus(tmp_path, [1, 2])
    store_sizes(tmp_path, SftSample, "", 4096)
    assert not list(tmp_path.glob("sizes-*"))
    store_sizes(tmp_path, SftSample, str(random_policy), 4096)
    (path,) = tmp_path.glob("sizes-*.json")
    assert [row[0] for row in json.loads(path.read_bytes())["rows"]] == ["s0", "s1"]
    encoder = Encoder.load(random_policy, ImageStore(tmp_path), 4096)
    monkeypatch.setattr(encoder, "size", lambda _: pytest.fail("measured again"))
    assert len(dataset_sizes(RecordSource(tmp_path, SftSample), encoder)) == 2


def test_a_missing_model_is_one_line(tmp_path):
    write_corpus(tmp_path, [1])
    with pytest.raises(UserError, match="no-such-model"):
        store_sizes(tmp_path, SftSample, "./no-such-model", 4096)
