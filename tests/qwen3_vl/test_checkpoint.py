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
from rmsweb_jax.qwen3_vl.checkpoint import export_tensors, load_model, resolve_model, save_model
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from tests.qwen3_vl.conftest import BASE, reference_model, variants


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_model(Qwen3VL(BASE, rngs=nnx.Rngs(0)), folder)
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


def shard(folder, target):
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in halves.items():
        save_file({name: tensors[name] for name in part}, target / file)
    weight_map = {name: file for file, part in halves.items() for name in part}
    (target / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (target / "config.json").write_text((folder / "config.json").read_text())


def test_sharded_checkpoints_are_read(saved, tmp_path):
    shard(saved, tmp_path)
    one, two = export_tensors(load_model(saved), np.float32), export_tensors(load_model(tmp_path), np.float32)
    assert one.keys() == two.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(two[name], value)


def drop(tensors):
    del tensors["model.language_model.layers.3.mlp.up_proj.weight"]


def add(tensors):
    tensors["model.language_model.layers.4.mlp.up_proj.weight"] = np.zeros(2, np.float32)


def reshape(tensors):
    tensors["model.visual.pos_embed.weight"] = np.zeros((25, 31), np.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop, r"missing tensors model.language_model.layers.3.mlp.up_proj.weight"),
        (add, r"unknown tensors model.language_model.layers.4"),
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


def test_truncated_weights_are_a_user_error(saved, tmp_path):
    data = (saved / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(data[: len(data) // 2])
    (tmp_path / "config.json").write_text((saved / "config.json").read_text())
    with pytest.raises(UserError, match=r"model\.safetensors"):
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
