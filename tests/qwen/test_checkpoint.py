import dataclasses
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.checkpoint import INDEX_FILE, SINGLE_FILE, load_model, resolve_model, save_model
from rmsweb_jax.qwen.config import Qwen3VLConfig, TextConfig, VisionConfig
from tests.qwen.conftest import BASE, reference_model, variants
from tests.qwen.random_models import random_model
from tests.records.power import PowerCut
from tests.references import torch, transformers


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
    again = transformers.AutoModelForImageTextToText.from_pretrained(
        tmp_path / "ours", dtype=getattr(torch, dtype)
    )
    expected = reference.state_dict()
    assert again.state_dict().keys() == expected.keys()
    for key, value in again.state_dict().items():
        assert torch.equal(value, expected[key]), key


def test_weights_that_draft_tokens_are_carried_to_the_export(tmp_path):
    """transformers writes none: a released checkpoint has them, and vLLM reads them."""
    reference = reference_model(variants()["recurrent"], seed=1)
    reference.save_pretrained(tmp_path / "theirs")
    file = tmp_path / "theirs" / SINGLE_FILE
    drafts = {"mtp.fc.weight": np.arange(12, dtype=np.float32).reshape(3, 4), "mtp.norm.weight": np.ones(4)}
    drafts["mtp.norm.weight"] = drafts["mtp.norm.weight"].astype(np.float32)
    save_file({**load_file(file), **drafts}, file, {"format": "pt"})
    model = load_model(tmp_path / "theirs")
    save_model(model, tmp_path / "ours", max_file_bytes=30_000)
    found = {}
    for path in (tmp_path / "ours").glob("*.safetensors"):
        found |= load_file(path)
    for name, value in load_file(file).items():
        np.testing.assert_array_equal(found.pop(name), value, err_msg=name)
    assert not found


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
    again = transformers.AutoModelForImageTextToText.from_pretrained(tmp_path / "ours", dtype=torch.bfloat16)
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
def test_a_broken_save_leaves_the_old_model(model, other, tmp_path, before, monkeypatch):
    save_model(model, tmp_path, max_file_bytes=before)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    written = []

    def fail(tensors, path, *args):
        if len(written) == 2:
            raise SafetensorError("I/O error: No space left on device (os error 28)")
        written.append(path)
        save_file(tensors, path, *args)

    monkeypatch.setattr("rmsweb_jax.qwen.checkpoint.save_file", fail)
    with pytest.raises(UserError, match=f"{tmp_path}: .*No space left.*free space"):
        save_model(other, tmp_path, max_file_bytes=30_000)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files
    monkeypatch.undo()
    save_model(other, tmp_path, max_file_bytes=30_000)
    np.testing.assert_array_equal(embedding(load_model(tmp_path)), embedding(other))


def test_a_save_that_is_cut_while_it_replaces_leaves_no_mixture(model, other, tmp_path, monkeypatch):
    save_model(model, tmp_path, max_file_bytes=30_000)
    moved = []

    def cut(source, target):
        if len(moved) == 3:
            raise KeyboardInterrupt
        moved.append(target)
        Path(source).rename(target)

    monkeypatch.setattr("rmsweb_jax.qwen.checkpoint.os.replace", cut)
    with pytest.raises(KeyboardInterrupt):
        save_model(other, tmp_path, max_file_bytes=30_000)
    with pytest.raises(UserError, match=SINGLE_FILE):
        load_model(tmp_path)


@pytest.mark.parametrize("before", [None, 30_000])
def test_a_finished_save_outlives_a_power_cut(model, other, tmp_path, before):
    root, after = tmp_path / "root", tmp_path / "after"
    for folder in (root, after):
        folder.mkdir()
    if before:
        save_model(model, root / "export", max_file_bytes=before)
    disk = PowerCut(root)
    with disk.watched():
        save_model(other, root / "export", max_file_bytes=50_000)
    disk.restore(after)
    np.testing.assert_array_equal(embedding(load_model(after / "export")), embedding(other))


def drop(tensors):
    del tensors["model.language_model.layers.2.mlp.up_proj.weight"]


def add(tensors):
    tensors["model.language_model.layers.3.mlp.up_proj.weight"] = np.zeros(2, np.float32)


def reshape(tensors):
    tensors["model.visual.pos_embed.weight"] = np.zeros((25, 31), np.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop, r"1 missing tensors, such as model.language_model.layers.2.mlp.up_proj.weight"),
        (add, r"1 unknown tensors, such as model.language_model.layers.3"),
        (
            reshape,
            r"misshapen tensors, such as model.visual.pos_embed.weight \[25, 31\] instead of \[25, 32\]",
        ),
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
def test_a_truncated_file_is_named(tmp_path, shards, kept):
    path = shards[1]
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match=path.name) as raised:
        load_model(tmp_path)
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_named(tmp_path, shards):
    shards[1].unlink()
    with pytest.raises(UserError, match=f"{shards[1].name}: "):
        load_model(tmp_path)


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"weight_map": {}}', '{"weight_map": 3}', '{"weight_map": {"a": 1}}']
)
@pytest.mark.usefixtures("shards")
def test_a_broken_index_is_a_user_error(tmp_path, content):
    (tmp_path / INDEX_FILE).write_text(content)
    with pytest.raises(UserError, match=f"{INDEX_FILE}|missing tensors"):
        load_model(tmp_path)


def test_integers_are_no_weights(saved, tmp_path):
    tensors = load_file(saved / SINGLE_FILE)
    tensors["model.visual.pos_embed.weight"] = tensors["model.visual.pos_embed.weight"].astype(np.int8)
    save_file(tensors, tmp_path / SINGLE_FILE)
    (tmp_path / "config.json").write_text((saved / "config.json").read_text())
    with pytest.raises(UserError, match=r"pos_embed\.weight is I8"):
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


# A path of keys in config.json, its new value (MISSING removes it), and what the one line says.
MISSING = object()
BAD_CONFIGS: list[tuple[str, Any, str]] = [
    ("model_type", "qwen3_vl_moe", "model_type is 'qwen3_vl_moe', only 'qwen3_vl'"),
    ("text_config", "path", "not the config of a Qwen3-VL"),
    ("text_config", MISSING, "text_config lacks rope_theta"),
    ("vision_config", [1], "not the config of a Qwen3-VL"),
    ("vision_config.deepstack_visual_indexes", MISSING, "deepstack_visual_indexes is missing"),
    ("vision_config.deepstack_visual_indexes", ["0"], "deepstack_visual_indexes is .*valid integer"),
    ("vision_config.deepstack_visual_indexes", [1, 0], "deepstack_visual_indexes must ascend"),
    ("vision_config.patch_size", [16, 14], r"patch_size is \[16, 14\]"),
    ("vision_config.depth", True, "depth is True"),
    ("vision_config.num_heads", 0, "num_heads is 0"),
    ("vision_config.hidden_act", "relu", "hidden_act is 'relu'"),
    ("vision_config.rope_parameters", {"rope_type": "golden"}, "rope_type is 'golden', only 'axial'"),
    ("vision_config.rope_parameters", {"rope_theta": "x"}, "rope_theta is 'x'"),
    ("text_config.rope_scaling.mrope_section", [4, 4], r"mrope_section is \[4, 4\]"),
    ("text_config.rope_scaling.mrope_section", [4, 2, "2"], r"mrope_section is \[4, 2, '2'\]"),
    (
        "text_config.rope_scaling.mrope_section",
        [4, 4, 4],
        "mrope_section must sum to half of what is rotated",
    ),
    ("text_config.rope_scaling.mrope_section", MISSING, "mrope_section is missing"),
    ("text_config.rope_scaling.mrope_interleaved", False, "mrope_interleaved is False"),
    ("text_config.rope_scaling.rope_type", "yarn", "rope_type is 'yarn', only 'default'"),
    ("text_config.rope_theta", MISSING, "text_config lacks rope_theta"),
    ("text_config.partial_rotary_factor", 0.5, "partial_rotary_factor is 0.5, only 1.0"),
    ("text_config.num_key_value_heads", None, "num_key_value_heads is None"),
    ("text_config.rms_norm_eps", "1e-6", "rms_norm_eps is '1e-6': input should be a valid number"),
    ("text_config.attention_bias", True, "attention_bias is True"),
    ("text_config.attention_dropout", 0.1, "attention_dropout is 0.1, only 0.0"),
    ("tie_word_embeddings", "false", "tie_word_embeddings is 'false'"),
    ("image_token_id", "90", "image_token_id is '90'"),
    ("quantization_config", {"quant_method": "fp8"}, "quantization_config is .*fp8.*without quantization"),
    ("text_config.quantization_config", {"bits": 4}, "text_config.quantization_config is"),
    ("vision_config.quantization_config", {"bits": 4}, "vision_config.quantization_config is"),
]


def changed_config(path: str, value: Any) -> dict[str, Any]:
    config = BASE.to_hf()
    *sections, key = path.split(".")
    section = config
    for name in sections:
        section = section[name]
    if value is MISSING:
        del section[key]
    else:
        section[key] = value
    return config


@pytest.mark.parametrize(("path", "value", "message"), BAD_CONFIGS)
def test_unsupported_configs_are_one_line(tmp_path, path, value, message):
    (tmp_path / "config.json").write_text(json.dumps(changed_config(path, value)))
    with pytest.raises(UserError, match=message) as raised:
        Qwen3VLConfig.from_hf(tmp_path / "config.json")
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("vision_config.rope_parameters", {"rope_type": "axial", "rope_theta": 10_000.0}),
        ("text_config.quantization_config", None),
        # transformers' model does not read these.
        ("text_config.use_new_thing", True),
        ("text_config.layer_types", ["full_attention"] * 3),
        ("text_config.bos_token_id", 3),
        ("hidden_size", 7),
        ("unsloth_version", "2026.1.1"),
    ],
)
def test_keys_that_the_model_does_not_read_are_accepted(path, value):
    assert Qwen3VLConfig.from_hf(changed_config(path, value)) == BASE


@pytest.mark.parametrize("use_diff", [True, False])
def test_transformers_own_configs_are_read_and_theirs_read_ours(use_diff):
    """With every default written out as well."""
    vision = dataclasses.replace(BASE.vision, rope_theta=500.0)
    for config in (BASE, dataclasses.replace(BASE, vision=vision)):
        theirs = transformers.Qwen3VLConfig(**config.to_hf())
        assert Qwen3VLConfig.from_hf(json.loads(theirs.to_json_string(use_diff=use_diff))) == config


def test_every_key_that_transformers_model_reads_is_known():
    """A new one may change what the model computes; it must then be computed here as well, or refused."""
    source = inspect.getsource(transformers.models.qwen3_vl.modeling_qwen3_vl)
    read = set(re.findall(r"config\.([a-z]\w*)", source))
    known = {field.name for part in (TextConfig, VisionConfig, Qwen3VLConfig) for field in fields(part)}
    checked = {"hidden_act", "attention_bias", "attention_dropout"}
    # Sections; the attention of all layers is the same; the padding's row of the embedding is like others.
    assert read - known - checked == {
        "text_config",
        "vision_config",
        "rope_parameters",
        "layer_types",
        "pad_token_id",
    }


@pytest.fixture
def with_head(saved, tmp_path):
    """Writes the tied model with its embedding and a head."""

    def write(change: Callable[[np.ndarray], np.ndarray]) -> Path:
        tensors = load_file(saved / SINGLE_FILE)
        tensors["lm_head.weight"] = change(tensors["model.language_model.embed_tokens.weight"].copy())
        save_file(tensors, tmp_path / SINGLE_FILE)
        (tmp_path / "config.json").write_text((saved / "config.json").read_text())
        return tmp_path

    return write


def test_a_tied_model_may_carry_its_head(with_head, model):
    np.testing.assert_array_equal(embedding(load_model(with_head(np.asarray))), embedding(model))


def in_last_row(head):
    head[-1, -1] += 1e-3
    return head


@pytest.mark.parametrize("rows", [1, 7, 4096])
@pytest.mark.parametrize("change", [in_last_row, lambda head: head[:-1], lambda head: head + 1, np.negative])
def test_a_head_that_a_tied_model_would_drop_is_an_error(with_head, change, rows, monkeypatch):
    monkeypatch.setattr("rmsweb_jax.qwen.checkpoint._HEAD_ROWS", rows)
    with pytest.raises(UserError, match=r"lm_head\.weight differs .* tie_word_embeddings; set") as raised:
        load_model(with_head(change))
    assert "\n" not in str(raised.value)
