"""Adapters against torch `peft` on transformers' model, out and in again."""

from __future__ import annotations

import copy
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.checkpoint import load_model, save_model
from rmsweb_jax.qwen.lora import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    LoRAParam,
    add_lora,
    load_adapters,
    merge_lora,
    save_adapters,
)
from rmsweb_jax.training.config import LoRAConfig
from tests.qwen.conftest import BASE, variants
from tests.qwen.references import lay_out, random_segment, reference_model, torch_inputs
from tests.qwen.rows import logits
from tests.references import peft, torch, transformers

SEGMENT = random_segment(2, BASE, np.random.default_rng(0))
INPUTS, (PLACE,) = lay_out([[(0, SEGMENT)]], 48, BASE)
CONFIGS = {
    "all_linear": LoRAConfig(rank=4, alpha=8.0),
    "attention and vision": LoRAConfig(rank=2, alpha=6.0, targets="attention", vision=True),
}


@pytest.fixture(scope="module")
def reference():
    return reference_model(BASE, seed=3)


@pytest.fixture(scope="module")
def base_folder(reference, tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    reference.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def base(base_folder):
    return load_model(base_folder)


def with_random_adapters(base, config):
    model = nnx.clone(base)
    add_lora(model, config, nnx.Rngs(1))
    rng = np.random.default_rng(0)
    for _, variable in nnx.to_flat_state(nnx.state(model, LoRAParam)):
        variable.set_value(jnp.asarray(0.2 * rng.standard_normal(variable.shape, np.float32)))
    return model


def reference_logits(model):
    with torch.no_grad():
        return model(**torch_inputs(SEGMENT)).logits[0].numpy()


def adapters(model):
    return nnx.to_flat_state(nnx.state(model, LoRAParam))


@pytest.fixture(scope="module", params=["tied", "recurrent"])
def kind(request, tmp_path_factory):
    """transformers' model of either kind, its folder, and ours."""
    folder, reference = tmp_path_factory.mktemp(request.param), reference_model(variants()[request.param], 3)
    reference.save_pretrained(folder)
    return reference, folder, load_model(folder)


@pytest.mark.parametrize("name", CONFIGS)
def test_adapters_leave_for_peft_and_come_back(kind, tmp_path, name):
    (reference, base_folder, base), config = kind, CONFIGS[name]
    model = with_random_adapters(base, config)
    inputs, _ = lay_out([[(0, SEGMENT)]], 48, model.config)
    ours = np.asarray(logits(model, inputs))[PLACE.row, PLACE.columns]
    save_adapters(model, config, tmp_path / "adapters", str(base_folder))
    policy = peft.PeftModel.from_pretrained(copy.deepcopy(reference), tmp_path / "adapters")
    theirs = reference_logits(policy)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert np.abs(theirs - reference_logits(reference)).max() > 0.1

    again = nnx.clone(base)
    load_adapters(again, tmp_path / "adapters")
    assert nnx.graphdef(again) == nnx.graphdef(model)
    for (path, value), (_, expected) in zip(adapters(again), adapters(model), strict=True):
        np.testing.assert_array_equal(value[...], expected[...], err_msg=str(path))

    merge_lora(model)
    save_model(model, tmp_path / "merged", max_file_bytes=60_000)
    merged = transformers.AutoModelForImageTextToText.from_pretrained(
        tmp_path / "merged", dtype=torch.float32
    )
    np.testing.assert_allclose(reference_logits(merged), theirs, atol=1e-4)


def test_adapters_that_peft_made_are_read(base, reference, tmp_path):
    """Another target set than ours, q, k and v with an A of their own."""
    torch.manual_seed(0)
    targets = r".*language_model\.layers\.\d+\.(self_attn\.(q|k|v|o)_proj)|.*visual\.blocks\.\d+\.attn\.qkv"
    settings = peft.LoraConfig(r=3, lora_alpha=5, target_modules=targets, init_lora_weights=False)
    policy = peft.get_peft_model(copy.deepcopy(reference), settings)
    policy.save_pretrained(tmp_path)
    model = nnx.clone(base)
    load_adapters(model, tmp_path)
    ours = np.asarray(logits(model, INPUTS))[PLACE.row, PLACE.columns]
    np.testing.assert_allclose(ours, reference_logits(policy), atol=1e-4)


@pytest.fixture
def folder(base, tmp_path):
    save_adapters(
        with_random_adapters(base, CONFIGS["attention and vision"]),
        CONFIGS["attention and vision"],
        tmp_path,
        "base",
    )
    return tmp_path


KEY = "base_model.model.model.language_model.layers.2.self_attn.o_proj.lora_B.weight"


def change_tensors(folder, change):
    tensors = load_file(folder / WEIGHTS_FILE)
    change(tensors)
    save_file(tensors, folder / WEIGHTS_FILE)


def drop(tensors):
    del tensors[KEY]


def drop_all(tensors):
    tensors.clear()


def add(tensors):
    tensors["base_model.model.lm_head.lora_A.weight"] = np.zeros((2, 48), np.float32)


def add_layer(tensors):
    tensors[KEY.replace("layers.2", "layers.3")] = tensors[KEY]


def quantize(tensors):
    tensors[KEY] = tensors[KEY].astype(np.int8)


def narrow(tensors):
    tensors[KEY] = tensors[KEY][:-1].copy()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop, rf"{KEY} is missing"),
        (drop_all, r"it has no adapters"),
        (add, r"no matrix can take base_model\.model\.lm_head\.lora_A"),
        (add_layer, r"no matrix can take .*layers\.3\.self_attn\.o_proj"),
        (quantize, rf"{WEIGHTS_FILE}: {KEY} is I8; take F32, F16, BF16"),
        (narrow, rf"{KEY} is \[47, 2\] instead of \[48, 2\]"),
    ],
)
def test_adapters_that_do_not_fit_are_one_line(base, folder, change, message):
    change_tensors(folder, change)
    refused(base, folder, message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"use_dora": True}, "use_dora is True"),
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"r": 4}, r"instead of \[4, 48\]"),
        ({"r": None}, "r is None: input should be a valid integer"),
    ],
)
def test_settings_beyond_plain_lora_are_one_line(base, folder, settings, message):
    path = folder / CONFIG_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    refused(base, folder, message)


@pytest.mark.parametrize("file", [CONFIG_FILE, WEIGHTS_FILE])
def test_missing_and_torn_files_are_one_line(base, folder, file):
    path = folder / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refused(base, folder, file)
    path.unlink()
    refused(base, folder, file)


def refused(base, folder, message):
    model = nnx.clone(base)
    with pytest.raises(UserError, match=message) as raised:
        load_adapters(model, folder)
    assert "\n" not in str(raised.value)
    assert not adapters(model)


def test_adapters_are_not_stacked_on_others(base, folder):
    model = nnx.clone(base)
    load_adapters(model, folder)
    assert all(isinstance(value[...], jax.Array) for _, value in adapters(model))
    with pytest.raises(ValueError, match="merge_lora"):
        load_adapters(model, folder)
    with pytest.raises(ValueError, match="no adapters"):
        save_adapters(base, CONFIGS["attention and vision"], folder, "base")
