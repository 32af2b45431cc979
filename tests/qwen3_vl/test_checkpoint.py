import json

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from transformers import Qwen3VLForConditionalGeneration

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.checkpoint import load_model, resolve_model, save_model
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.tensor_files import INDEX_FILE, SINGLE_FILE, write_file
from tests.qwen3_vl.conftest import BASE, reference_model, variants
from tests.qwen3_vl.random_models import random_model


@pytest.fixture(scope="module")
def model():
    return random_model(BASE)


@pytest.fixture(scope="module")
def other(model):
    """Like `model`, with another embedding."""
    other = nnx.clone(model)
    embedding = other.language_model.embed_tokens.embedding
    embedding.set_value(embedding[...] + 1)
    return other


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_model(model, folder)
    return folder


@pytest.mark.parametrize("name", sorted(variants()))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_round_trip_through_transformers_is_bitwise(tmp_path, name, dtype):
    config = variants()[name]
    reference = reference_model(config, seed=1).to(getattr(torch, dtype))
    reference.save_pretrained(tmp_path / "theirs")
    model = load_model(tmp_path / "theirs", getattr(jnp, dtype))
    save_model(model, tmp_path / "ours", getattr(jnp, dtype))
    again = Qwen3VLForConditionalGeneration.from_pretrained(tmp_path / "ours", dtype=getattr(torch, dtype))
    expected = reference.state_dict()
    assert again.state_dict().keys() == expected.keys()
    for key, value in again.state_dict().items():
        assert torch.equal(value, expected[key]), key


@pytest.mark.parametrize("name", sorted(variants()))
def test_shards_load_in_transformers_and_back(tmp_path, name):
    config = variants()[name]
    reference = reference_model(config, seed=2).to(torch.bfloat16)
    reference.save_pretrained(tmp_path / "theirs", max_shard_size="30KB")
    assert (tmp_path / "theirs" / INDEX_FILE).exists()
    model = load_model(tmp_path / "theirs", jnp.bfloat16)
    save_model(model, tmp_path / "ours", jnp.bfloat16, max_file_bytes=30_000)
    names = sorted(path.name for path in (tmp_path / "ours").iterdir())
    assert len(names) > 5 and INDEX_FILE in names and SINGLE_FILE not in names
    for path in (tmp_path / "ours").glob("*.safetensors"):
        assert len(load_file(path)) == 1 or path.stat().st_size < 40_000
    again = Qwen3VLForConditionalGeneration.from_pretrained(tmp_path / "ours", dtype=torch.bfloat16)
    expected = reference.state_dict()
    assert again.state_dict().keys() == expected.keys()
    for key, value in again.state_dict().items():
        assert torch.equal(value, expected[key]), key


def embedding(model):
    return np.asarray(model.language_model.embed_tokens.embedding[...])


def test_a_save_replaces_the_folders_old_weights(model, other, tmp_path):
    limits = (10**9, 30_000, 50_000, 10**9)
    for current, limit in zip((model, other, model, other), limits, strict=True):
        save_model(current, tmp_path, max_file_bytes=limit)
        np.testing.assert_array_equal(embedding(load_model(tmp_path)), embedding(current))
        files = {path.name for path in tmp_path.glob("*.safetensors")}
        assert (SINGLE_FILE in files) == (limit == 10**9) == ((tmp_path / INDEX_FILE).exists() is False)
        assert not [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]


@pytest.mark.parametrize("before", [10**9, 30_000])
def test_a_broken_save_leaves_the_old_model_or_none(model, other, tmp_path, before, monkeypatch):
    save_model(model, tmp_path, max_file_bytes=before)
    written = []

    def fail(path, *args):
        if len(written) == 2:
            raise UserError("disk full")
        written.append(path)
        return write_file(path, *args)

    monkeypatch.setattr("rmsweb_jax.qwen3_vl.tensor_files.write_file", fail)
    with pytest.raises(UserError, match="disk full"):
        save_model(other, tmp_path, max_file_bytes=30_000)
    assert not (tmp_path / INDEX_FILE).exists()
    if before == 30_000:
        with pytest.raises(UserError, match="neither"):
            load_model(tmp_path)
    else:
        np.testing.assert_array_equal(embedding(load_model(tmp_path)), embedding(model))


def drop(tensors):
    del tensors["model.language_model.layers.2.mlp.up_proj.weight"]


def add(tensors):
    tensors["model.language_model.layers.3.mlp.up_proj.weight"] = np.zeros(2, np.float32)


def reshape(tensors):
    tensors["model.visual.pos_embed.weight"] = np.zeros((25, 31), np.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop, r"missing tensors model.language_model.layers.2.mlp.up_proj.weight"),
        (add, r"unknown tensors model.language_model.layers.3"),
        (reshape, r"misshapen tensors model.visual.pos_embed.weight \[25, 31\] instead of \[25, 32\]"),
    ],
)
def test_wrong_tensors_are_named(saved, tmp_path, change, message):
    tensors = load_file(saved / "model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((saved / "config.json").read_text())
    with pytest.raises(UserError, match=message):
        load_model(tmp_path)


@pytest.fixture
def shards(model, tmp_path):
    save_model(model, tmp_path, max_file_bytes=30_000)
    return sorted(tmp_path.glob("*.safetensors"))


@pytest.mark.parametrize("kept", [4, 100, -20])
def test_a_truncated_file_is_named_with_its_tensor(tmp_path, shards, kept):
    path = shards[1]
    last = list(load_file(path))[-1]
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match=path.name) as raised:
        load_model(tmp_path)
    if kept < 0:
        assert last in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_named_with_its_tensor(tmp_path, shards):
    path = shards[1]
    name = next(iter(load_file(path)))
    path.unlink()
    with pytest.raises(UserError, match=f"{path.name} is missing.*{name}"):
        load_model(tmp_path)


def test_a_tensor_that_is_elsewhere_is_named(tmp_path, shards):
    path, other = shards[:2]
    index = json.loads((tmp_path / INDEX_FILE).read_text())
    name = next(iter(load_file(path)))
    index["weight_map"][name] = other.name
    (tmp_path / INDEX_FILE).write_text(json.dumps(index))
    with pytest.raises(UserError, match=f"{other.name}: {name} is not in this file"):
        load_model(tmp_path)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"weight_map": {}}', '{"weight_map": 3}'])
@pytest.mark.usefixtures("shards")
def test_a_broken_index_is_a_user_error(tmp_path, content):
    (tmp_path / INDEX_FILE).write_text(content)
    with pytest.raises(UserError, match=INDEX_FILE):
        load_model(tmp_path)


def test_integers_are_no_weights(saved, tmp_path):
    tensors = load_file(saved / SINGLE_FILE)
    tensors["model.visual.pos_embed.weight"] = tensors["model.visual.pos_embed.weight"].astype(np.int8)
    save_file(tensors, tmp_path / SINGLE_FILE)
    (tmp_path / "config.json").write_text((saved / "config.json").read_text())
    with pytest.raises(UserError, match=r"pos_embed\.weight is stored as I8"):
        load_model(tmp_path)


def test_another_architecture_is_a_user_error(saved, tmp_path):
    config = json.loads((saved / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "qwen2_5_vl"}))
    with pytest.raises(UserError, match="model_type is 'qwen2_5_vl'"):
        load_model(tmp_path)


def test_tied_head_is_not_stored_and_nothing_else_is_left(saved):
    with safe_open(saved / "model.safetensors", framework="numpy") as file:
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118
    assert sorted(path.name for path in saved.iterdir()) == ["config.json", "model.safetensors"]


def test_missing_model_is_a_user_error(tmp_path):
    for read in (resolve_model, load_model):
        with pytest.raises(UserError, match=r"config"):
            read(tmp_path / "nothing")


def test_both_forms_of_rope_settings_are_read():
    old = BASE.to_hf()
    new = {**old, "text_config": {**old["text_config"]}}
    del new["text_config"]["rope_theta"]
    rope = new["text_config"].pop("rope_scaling")
    new["text_config"]["rope_parameters"] = {**rope, "rope_theta": BASE.text.rope_theta}
    assert Qwen3VLConfig.from_hf(old) == Qwen3VLConfig.from_hf(new) == BASE


def test_unsupported_configs_are_refused():
    config = BASE.to_hf()
    config["text_config"]["rope_scaling"]["mrope_section"] = [4, 4, 4]
    with pytest.raises(UserError, match="mrope_section"):
        Qwen3VLConfig.from_hf(config)
    with pytest.raises(UserError, match="model_type"):
        Qwen3VLConfig.from_hf({**BASE.to_hf(), "model_type": "qwen3_vl_moe"})
