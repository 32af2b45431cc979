"""Adapters of every kind that PEFT makes, saved by PEFT: the logits are PEFT's, or one line says why not."""

import copy
import dataclasses
import json
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from flax import nnx

from rmsweb_jax.errors import UserError
from rmsweb_jax.export.adapters import merge_adapters
from rmsweb_jax.qwen.checkpoint import load_model
from rmsweb_jax.qwen.lora import (
    CONFIG_FILE,
    NEUTRAL,
    PLAIN,
    WEIGHTS_FILE,
    count_parameters,
    load_adapters,
)
from tests.qwen.conftest import BASE
from tests.qwen.references import lay_out, random_segment, reference_model, torch_inputs
from tests.qwen.rows import logits
from tests.references import peft, torch

SEGMENT = random_segment(2, BASE, np.random.default_rng(0))
INPUTS, (PLACE,) = lay_out([[(0, SEGMENT)]], 48, BASE)
QV = ["q_proj", "v_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]
DECODER = r".*language_model\.layers\.\d+\.self_attn\.(q|v)_proj"


class AdapterCase(NamedTuple):
    """An adapter that PEFT makes.

    Attributes:
      config: name of the class of its settings.
      settings: those that differ from PEFT's defaults.
      refused: what the one line says; None if the logits are PEFT's.
    """

    config: str
    settings: dict[str, Any]
    refused: str | None = None

    def made(self) -> Any:
        """Its settings; those that are (class, settings of it) are made, too."""
        parts = {
            key: attrgetter(value[0])(peft)(**value[1]) if isinstance(value, tuple) else value
            for key, value in self.settings.items()
        }
        return attrgetter(self.config)(peft)(**parts)


def lora(refused: str | None = None, **settings: Any) -> AdapterCase:
    return AdapterCase("LoraConfig", {"r": 4, "lora_alpha": 6, "target_modules": QV, **settings}, refused)


def other(name: str, **settings: Any) -> AdapterCase:
    return AdapterCase(name, {"target_modules": QV, **settings}, "peft_type is '[A-Z_0-9]+'; only plain")


def prompt(name: str, **settings: Any) -> AdapterCase:
    settings = {"num_virtual_tokens": 3, "task_type": "CAUSAL_LM", **settings}
    return AdapterCase(name, settings, "peft_type is '[A-Z_]+'; only plain")


KINDS: dict[str, AdapterCase] = {
    # What plain LoRA computes, however it was made.
    "lora": lora(),
    "lora of other rank and alpha": lora(r=3, lora_alpha=5),
    "lora with dropout": lora(lora_dropout=0.1),
    "lora without initial values": lora(init_lora_weights=False),
    "gaussian": lora(init_lora_weights="gaussian"),
    "orthogonal": lora(init_lora_weights="orthogonal"),
    "mica": lora(init_lora_weights="mica"),
    "eva": lora(init_lora_weights="eva", eva_config=("EvaConfig", {"rho": 1.0})),
    "rank-stabilized": lora(use_rslora=True),
    "rank-stabilized with another rank": lora(use_rslora=True, r=9),
    "target regex": lora(target_modules=DECODER),
    "target regex on the vision tower": lora(
        target_modules=r".*visual\.blocks\.\d+\.(attn\.qkv|mlp\.linear_fc1)"
    ),
    "attention": lora(target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]),
    "mlp": lora(target_modules=MLP),
    "excluded modules": lora(target_modules=[*QV, "down_proj"], exclude_modules=r".*(mlp|visual).*"),
    "all layers by number": lora(layers_to_transform=[0, 1, 2], layers_pattern="layers"),
    "tied weights ensured": lora(ensure_weight_tying=True),
    "task type": lora(task_type="CAUSAL_LM"),
    # Matrices that have no place for an adapter.
    "some layers by number": lora("is missing; merge the adapters", layers_to_transform=[0, 2]),
    "one layer by number": lora("is missing; merge the adapters", layers_to_transform=1),
    "excluded layer": lora("is missing; merge the adapters", exclude_modules=r".*layers\.1\..*"),
    "all linear layers": lora("no matrix can take .*merger", target_modules="all-linear"),
    "head": lora("no matrix can take .*lm_head", target_modules=[*QV, "lm_head"]),
    "embedding": lora("no matrix can take .*embed_tokens", target_modules=[*QV, "embed_tokens"]),
    "patch embedding": lora("no matrix can take .*patch_embed", target_modules=r".*patch_embed\.proj"),
    # Initial values that change the base.
    "pissa": lora("init_lora_weights is 'pissa'; only plain", init_lora_weights="pissa"),
    "fast pissa": lora("init_lora_weights is 'pissa_niter_4'; only", init_lora_weights="pissa_niter_4"),
    "olora": lora("init_lora_weights is 'olora'; only plain", init_lora_weights="olora"),
    "corda": lora(
        "init_lora_weights is 'corda'; only plain|corda_config is",
        init_lora_weights="corda",
        corda_config=("tuners.lora.config.CordaConfig", {}),
    ),
    "lora-ga": lora(
        "init_lora_weights is 'lora_ga'|lora_ga_config is",
        init_lora_weights="lora_ga",
        lora_ga_config=("LoraGAConfig", {}),
    ),
    # Variants of LoRA.
    "dora": lora("use_dora is True; only plain", use_dora=True),
    "rank pattern": lora("rank_pattern is {'q_proj': 2}; only plain", rank_pattern={"q_proj": 2}),
    "alpha pattern": lora("alpha_pattern is {'q_proj': 2}; only plain", alpha_pattern={"q_proj": 2}),
    "saved modules": lora("modules_to_save is .*lm_head.*only plain", modules_to_save=["lm_head"]),
    "saved norms": lora("modules_to_save is .*input_layernorm", modules_to_save=["input_layernorm"]),
    "all biases": lora("bias is 'all'; only plain", bias="all"),
    "biases of adapted layers": lora("bias is 'lora_only'; only plain", bias="lora_only"),
    "lora bias": lora("lora_bias is True; only plain", lora_bias=True),
    "trainable tokens": lora(r"trainable_token_indices is \[1, 2\]; only", trainable_token_indices=[1, 2]),
    "target parameters": lora(
        "target_parameters is .*q_proj", target_modules=[], target_parameters=["self_attn.q_proj.weight"]
    ),
    "activated lora": lora(
        r"alora_invocation_tokens is \[5, 6\]; only", alora_invocation_tokens=[5, 6], task_type="CAUSAL_LM"
    ),
    "kasa": lora("kasa_config is {", kasa_config=("KasaConfig", {})),
    "velora": lora("velora_config is {", velora_config=("VeloraConfig", {"num_groups": 4})),
    "monteclora": lora("monteclora_config is {", monteclora_config=("MontecloraConfig", {})),
    "block-diagonal": lora(
        "use_bdlora is {",
        use_bdlora=("BdLoraConfig", {"target_modules_bd_a": ["q_proj"], "nblocks": 2, "match_strict": False}),
    ),
    # Other methods than LoRA.
    "adalora": other("AdaLoraConfig", total_step=10),
    "beft": other("BeftConfig"),
    "boft": other("BOFTConfig", boft_block_size=4),
    "c3a": other("C3AConfig", block_size=4),
    "delora": other("DeloraConfig"),
    "deft": other("DeftConfig"),
    "fourierft": other("FourierFTConfig", n_frequency=10),
    "frod": other("FrodConfig"),
    "glora": other("GloraConfig"),
    "gralora": other("GraloraConfig"),
    "hira": other("HiraConfig"),
    "hra": other("HRAConfig"),
    "ia3": other("IA3Config", target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]),
    "layer norms": other("LNTuningConfig", target_modules=["input_layernorm"]),
    "lily": other("LilyConfig"),
    "loha": other("LoHaConfig"),
    "lokr": other("LoKrConfig"),
    "miss": other("MissConfig", r=4),
    "osf": other("OSFConfig"),
    "oft": other("OFTConfig", oft_block_size=4, r=0),
    "peanut": other("PeanutConfig"),
    "poly": other("PolyConfig"),
    "psoft": other("PsoftConfig"),
    "pvera": other("PveraConfig"),
    "randlora": other("RandLoraConfig"),
    "road": other("RoadConfig", group_size=4),
    "shira": other("ShiraConfig", r=2),
    "supertuning": other("SupertuningConfig"),
    "tinylora": other("TinyLoraConfig"),
    "token embeddings": other("TrainableTokensConfig", token_indices=[1, 2], target_modules=["embed_tokens"]),
    "unilora": other("UniLoraConfig"),
    "vblora": other("VBLoRAConfig", vector_length=8, num_vectors=16, topk=1),
    "vera": other("VeraConfig", r=4),
    "waveft": other("WaveFTConfig", n_frequency=10),
    "x-lora": AdapterCase("XLoraConfig", {}, "peft_type is .XLORA.; only plain"),
    "cartridge": prompt("CartridgeConfig"),
    "context-aware prompt tuning": prompt("CPTConfig"),
    "multitask prompt tuning": prompt("MultitaskPromptTuningConfig"),
    "prefix tuning": prompt("PrefixTuningConfig"),
    "prompt tuning": prompt("PromptTuningConfig"),
    "p-tuning": prompt("PromptEncoderConfig"),
}


# Methods that PEFT cannot make adapters with here.
NOT_MADE = {
    "ADAMSS",  # Needs scikit-learn.
    "ADAPTION_PROMPT",  # Not for this architecture,
    "SHADOW",  # nor this.
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


def reference_logits(model: Any) -> np.ndarray:
    with torch.no_grad():
        return model(**torch_inputs(SEGMENT)).logits[0].numpy()


def save(kind: AdapterCase, reference: Any, folder: Path) -> None:
    """Makes the adapter with PEFT, trains it a step in a random direction, and saves it."""
    torch.manual_seed(0)
    model, config = copy.deepcopy(reference), kind.made()
    if kind.settings.get("init_lora_weights") == "corda":
        from peft.tuners.lora.corda import preprocess_corda

        preprocess_corda(model, config, run_model=lambda: reference_logits(model))
    policy = peft.get_peft_model(model, config)
    for parameter in policy.parameters():
        if parameter.requires_grad:
            parameter.data += 0.1 * torch.randn_like(parameter)
    policy.save_pretrained(folder)


def our_logits(base: Any, folder: Path) -> np.ndarray:
    model = nnx.clone(base)
    load_adapters(model, folder)
    return np.asarray(logits(model, INPUTS))[PLACE.row, PLACE.columns]


def assert_refused(base: Any, folder: Path, message: str) -> None:
    model = nnx.clone(base)
    with pytest.raises(UserError, match=message) as raised:
        load_adapters(model, folder)
    assert "\n" not in str(raised.value)
    assert not count_parameters(model)["adapters"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KINDS)
def test_logits_are_pefts_or_one_line_says_why(base, reference, tmp_path, name):
    kind = KINDS[name]
    save(kind, reference, tmp_path)
    if kind.refused is not None:
        assert_refused(base, tmp_path, kind.refused)
        return
    # PEFT reads what it wrote as well, since the trained model may differ from what its folder holds.
    expected = reference_logits(peft.PeftModel.from_pretrained(copy.deepcopy(reference), tmp_path))
    np.testing.assert_allclose(our_logits(base, tmp_path), expected, atol=1e-4)
    assert np.abs(expected - reference_logits(reference)).max() > 0.01


# Those that a model has no place for as adapters, and those of which merging reads more than the matrices.
MERGED = {
    "all linear layers",
    "some layers by number",
    "dora",
    "rank pattern",
    "alpha pattern",
    "rank-stabilized with another rank",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(MERGED))
def test_merged_into_their_base_the_logits_are_pefts(base_folder, reference, tmp_path, name):
    save(KINDS[name], reference, tmp_path / "adapter")
    policy = peft.PeftModel.from_pretrained(copy.deepcopy(reference), tmp_path / "adapter")
    model = load_model(merge_adapters(tmp_path / "adapter", tmp_path / "merged", base_folder))
    ours = np.asarray(logits(model, INPUTS))[PLACE.row, PLACE.columns]
    np.testing.assert_allclose(ours, reference_logits(policy), atol=1e-4)
    assert np.abs(ours - reference_logits(reference)).max() > 0.01


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", ["saved modules", "pissa", "lora bias", "embedding", "head", "patch embedding", "boft"]
)
def test_what_cannot_be_merged_is_one_line_and_leaves_nothing(base_folder, reference, tmp_path, name):
    save(KINDS[name], reference, tmp_path / "adapter")
    with pytest.raises(UserError, match=r"only plain LoRA|belongs to no matrix") as raised:
        merge_adapters(tmp_path / "adapter", tmp_path / "merged", base_folder)
    assert "\n" not in str(raised.value) and not (tmp_path / "merged").exists()


def test_an_adapter_in_place_of_a_model_says_so(reference, tmp_path):
    save(KINDS["lora"], reference, tmp_path)
    with pytest.raises(
        UserError, match="this is an adapter of a model that it does not name: merge it"
    ) as raised:
        load_model(tmp_path)
    assert "\n" not in str(raised.value)
    with pytest.raises(UserError, match="names no base model"):
        merge_adapters(tmp_path, tmp_path / "merged")


def test_the_kinds_are_of_every_method_of_pefts():
    made = {str(kind.made().peft_type.value) for kind in KINDS.values()}
    assert made | NOT_MADE == {method.value for method in peft.PeftType} and not made & NOT_MADE
    refused = sum(kind.refused is not None for kind in KINDS.values())
    print(f"{len(KINDS)} kinds of {len(made)} methods: {len(KINDS) - refused} equal, {refused} one line each")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["pissa", "olora"])
def test_adapters_whose_base_is_restored_are_read(base, reference, tmp_path, name):
    """What the refusal of these asks for."""
    torch.manual_seed(0)
    policy = peft.get_peft_model(copy.deepcopy(reference), KINDS[name].made())
    policy.peft_config["default"].init_lora_weights = True
    policy.save_pretrained(tmp_path / "initial")
    policy.peft_config["default"].init_lora_weights = name
    for parameter in policy.parameters():
        if parameter.requires_grad:
            parameter.data += 0.1 * torch.randn_like(parameter)
    expected = reference_logits(policy)
    policy.save_pretrained(
        tmp_path / "trained", path_initial_model_for_weight_conversion=str(tmp_path / "initial")
    )
    np.testing.assert_allclose(our_logits(base, tmp_path / "trained"), expected, atol=1e-4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_adapters_stored_in_half_precision_are_read(base, reference, tmp_path, dtype):
    save(KINDS["lora"], reference, tmp_path)
    from safetensors.torch import load_file, save_file

    half = getattr(torch, dtype)
    tensors = {name: value.to(half) for name, value in load_file(tmp_path / WEIGHTS_FILE).items()}
    save_file(tensors, tmp_path / WEIGHTS_FILE)
    policy = peft.PeftModel.from_pretrained(copy.deepcopy(reference), tmp_path)
    np.testing.assert_allclose(our_logits(base, tmp_path), reference_logits(policy), atol=1e-4)


def test_every_field_of_pefts_is_plain_by_default():
    defaults = {
        field.name: field.default if field.default is not dataclasses.MISSING else field.default_factory()
        for field in dataclasses.fields(peft.LoraConfig)
    }
    assert NEUTRAL | PLAIN.keys() <= defaults.keys() and not NEUTRAL & PLAIN.keys()
    for field, default in (defaults | {"peft_type": "LORA"}).items():
        assert field in NEUTRAL or (default in PLAIN[field] if field in PLAIN else not default), field


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"use_new_thing": True}, "use_new_thing is True; only"),
        ({"new_scale": 0}, "new_scale is 0; only"),
        ({"new_scale": 0.0}, "new_scale is 0.0; only"),
        ({"new_kind": "fast"}, "new_kind is 'fast'; only"),
        ({"new_layers": [1]}, r"new_layers is \[1\]; only"),
        ({"new_text": "a\nb" * 99}, r"new_text is 'a\\nba\\nb.*\.\.\.; only"),
        # What PEFT makes with packages or files that are not here.
        ({"init_lora_weights": "loftq", "loftq_config": {"loftq_bits": 4, "loftq_iter": 1}}, "loftq"),
        ({"arrow_config": {"top_k": 3}}, "arrow_config is {'top_k': 3}; only plain"),
        ({"megatron_config": {"hidden_size": 48}}, "megatron_config is {'hidden_size': 48}; only plain"),
        ({"layer_replication": [[0, 2], [1, 3]]}, r"layer_replication is \[\[0, 2\], \[1, 3\]\]; only plain"),
        ({"use_qalora": True, "qalora_group_size": 8}, "use_qalora is True; only plain"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out is True; only plain"),
        ({"peft_type": None}, "peft_type is None; only plain"),
        ({"init_lora_weights": 1}, "init_lora_weights is 1; only"),
        ({"init_lora_weights": "newest"}, "init_lora_weights is 'newest'; only"),
        ({"lora_alpha": None}, "cannot read the adapters' settings"),
        ({"lora_alpha": float("nan")}, "lora_alpha"),
        ({"lora_alpha": 0}, "lora_alpha"),
        ({"r": 0}, "r is 0"),
        ({"r": 2.5}, "r is 2.5"),
        ({"lora_dropout": 1.5}, "lora_dropout is 1.5"),
        (
            {"new_thing": None, "new_flag": False, "new_list": [], "new_map": {}, "new_text": ""},
            None,
        ),
        ({"auto_mapping": {"unsloth_fixed": True}, "runtime_config": {"ephemeral_gpu_offload": True}}, None),
    ],
)
def test_fields_of_other_versions_of_peft(base, reference, tmp_path, settings, message):
    save(KINDS["lora"], reference, tmp_path)
    path = tmp_path / CONFIG_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    if message is None:
        our_logits(base, tmp_path)
    else:
        assert_refused(base, tmp_path, message)


@pytest.mark.parametrize("content", ["[]", "3", "null", '"LORA"'])
def test_settings_that_are_no_object_are_one_line(base, reference, tmp_path, content):
    save(KINDS["lora"], reference, tmp_path)
    (tmp_path / CONFIG_FILE).write_text(content)
    assert_refused(base, tmp_path, "cannot read the adapters' settings")
