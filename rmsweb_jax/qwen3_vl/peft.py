"""Adapter folders in the format of PEFT, which vLLM and others read as well."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.checkpoint import write_from_first_process
from rmsweb_jax.qwen3_vl.config import is_empty, shortened
from rmsweb_jax.qwen3_vl.lora import (
    FUSED,
    QKV,
    TARGETS,
    LayerStack,
    count_parameters,
    layer_stacks,
    make_lora,
    peft_config,
    to_peft_tensors,
)
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.tensor_files import TensorInfo, read_header, write_file, write_text
from rmsweb_jax.training.config import LoRAConfig

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"

# Fields of PEFT's LoraConfig that do not change what the stored matrices compute. Which matrices have an
# adapter, the tensors' names say; r, lora_alpha, lora_dropout and use_rslora are read.
NEUTRAL = frozenset(
    {
        "auto_mapping",
        "base_model_name_or_path",
        "ensure_weight_tying",
        "eva_config",
        "exclude_modules",
        "inference_mode",
        "layers_pattern",
        "layers_to_transform",
        "lora_alpha",
        "lora_dropout",
        "megatron_core",
        "peft_version",
        "qalora_group_size",
        "r",
        "revision",
        "runtime_config",
        "target_modules",
        "task_type",
        "use_rslora",
    }
)
# The other fields that are not empty by default, each with the values that plain LoRA has.
PLAIN: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    # Initial values that leave the base as it is, so that the stored matrices are all of the adapter.
    "init_lora_weights": (True, False, "gaussian", "orthogonal", "eva", "mica"),
}
# The fields that are empty by default, and change what an adapter computes otherwise.
EMPTY = frozenset(
    {
        "alora_invocation_tokens",
        "alpha_pattern",
        "arrow_config",
        "corda_config",
        "fan_in_fan_out",
        "kasa_config",
        "layer_replication",
        "loftq_config",
        "lora_bias",
        "lora_ga_config",
        "megatron_config",
        "modules_to_save",
        "monteclora_config",
        "rank_pattern",
        "target_parameters",
        "trainable_token_indices",
        "use_bdlora",
        "use_dora",
        "use_qalora",
        "velora_config",
    }
)


def _check_settings(path: Path, settings: dict[str, Any]) -> None:
    """Refuses every setting that is neither known to be neutral nor at PEFT's default.

    Raises:
      UserError: the message names field, value and remedy.
    """
    # The method first: another one has fields of its own.
    for field, value in {"peft_type": settings.get("peft_type"), **settings}.items():
        if field in NEUTRAL or (is_empty(value) and field != "peft_type"):
            continue
        if field in PLAIN and any(type(value) is type(one) and value == one for one in PLAIN[field]):
            continue
        if field == "init_lora_weights":
            remedy = (
                "it changes the base weights: save the adapters with PEFT's "
                "path_initial_model_for_weight_conversion"
            )
        elif field in PLAIN or field in EMPTY:
            remedy = "only plain LoRA is supported: merge the adapters into the base with PEFT, or train LoRA"
        else:
            remedy = (
                "this field is not known, and may change what the adapters compute: save them with PEFT's "
                "defaults, or merge them into the base with PEFT"
            )
        raise UserError(f"{path}: {field} is {shortened(value)}; {remedy}")


def save_adapters(model: Qwen3VL, config: LoRAConfig, folder: str | os.PathLike[str], base: str) -> None:
    """Writes the model's adapters as a PEFT folder; each file appears whole or not at all.

    With several processes all of them must call this; the first one writes.

    Args:
      config: that of `add_lora`.
      base: path or Hub name of the base model, which the folder records for its readers.

    Raises:
      UserError: a file cannot be written.
    """
    folder = Path(folder)
    tensors = to_peft_tensors(model)
    if not tensors:
        raise ValueError("the model has no adapters")
    settings = peft_config(config) | {"base_model_name_or_path": base, "inference_mode": True}
    infos = [TensorInfo(name, value.shape, value.dtype) for name, value in tensors.items()]

    def write() -> None:
        write_file(folder / WEIGHTS_FILE, infos, tensors.__getitem__)
        write_text(folder / CONFIG_FILE, json.dumps(settings, indent=2) + "\n")

    write_from_first_process(tensors.__getitem__, (), write)


def list_target_modules(folder: Path) -> None:
    """Lists a folder's adapted modules by name, because servers do not support PEFT's patterns."""
    path = folder / CONFIG_FILE
    names = sorted({key.split(".")[-3] for key in read_header(folder / WEIGHTS_FILE)})
    write_text(path, json.dumps(json.loads(path.read_bytes()) | {"target_modules": names}, indent=2) + "\n")


class _Adapters(NamedTuple):
    """The tensors of a PEFT folder by name."""

    folder: Path
    tensors: dict[str, np.ndarray]

    def read(self, stack: LayerStack, name: str, letter: str) -> np.ndarray:
        """Reads A [*lead, inputs, rank] or B [*lead, rank, outputs] as float32, stacked like the layers."""
        parts = [self.tensors[_key(stack, name, number, letter)].T for number, _ in stack.numbers()]
        return (parts[0] if stack.count is None else np.stack(parts)).astype(np.float32)

    def modules(self, stack: LayerStack, rank: int) -> list[str]:
        """Returns the modules of a stack that have adapters.

        Raises:
          UserError: only some layers have one, or its shape is wrong.
        """
        numbers = [number for number, _ in stack.numbers()]
        found = [
            name
            for name in stack.names()
            if any(_key(stack, name, number, "A") in self.tensors for number in numbers)
        ]
        for name in found:
            _, fan_in, fan_out = stack.shape(name)
            for number in numbers:
                self._check(_key(stack, name, number, "A"), (rank, fan_in))
                self._check(_key(stack, name, number, "B"), (fan_out, rank))
        return found

    def _check(self, key: str, shape: tuple[int, ...]) -> None:
        if key not in self.tensors:
            raise UserError(f"{self.folder}: {key} is missing; export the adapters again, on all layers")
        found = self.tensors[key].shape
        if found != shape:
            raise UserError(
                f"{self.folder}: {key} is {list(found)} instead of {list(shape)}; take this model's adapters"
            )

    def one_a(self, stack: LayerStack) -> bool:
        """Returns True if q, k and v of all layers share their A."""
        first, *others = (self.read(stack, name, "A") for name in QKV)
        return all(np.array_equal(first, other) for other in others)


def _key(stack: LayerStack, name: str, number: int, letter: str) -> str:
    return f"base_model.model.{stack.prefix}{number}.{name}.lora_{letter}.weight"


def load_adapters(model: Qwen3VL, folder: str | os.PathLike[str]) -> None:
    """Adds the adapters of a PEFT folder to the model.

    They may be on any of the decoder's and the vision blocks' matrices. If the decoder's are on q, k, v and o
    alone, and q, k and v share their A, these become one fused adapter, as before `save_adapters`.

    Raises:
      ValueError: the model has adapters already.
      UserError: the folder is missing or damaged, is not plain LoRA, or does not fit the model.
    """
    if count_parameters(model)["adapters"]:
        raise ValueError("the model has adapters already; merge_lora first")
    folder = Path(folder)
    config = _read_config(folder / CONFIG_FILE)
    adapters = _Adapters(folder, _read_tensors(folder / WEIGHTS_FILE))
    # Everything is checked before the model changes, so that an error leaves it as it was.
    parts = [(stack, adapters.modules(stack, config.rank)) for stack in layer_stacks(model)]
    _check_all_known(adapters, parts)
    decoder = [part for part in parts if part[0].is_decoder()]
    # Only RL's adapters have this form, so that loading restores what `save_adapters` wrote.
    fused = all(set(names) == {*QKV, "self_attn.o_proj"} for _, names in decoder) and all(
        adapters.one_a(stack) for stack, _ in decoder
    )
    for stack, names in parts:
        for name in TARGETS["attention"] if fused and stack.is_decoder() else names:
            sources = QKV if name == FUSED else (name,)
            b = np.concatenate([adapters.read(stack, source, "B") for source in sources], axis=-1)
            # Its random A is overwritten at once.
            lora = make_lora(stack, name, config, jax.random.key(0))
            lora.a.set_value(jnp.asarray(adapters.read(stack, sources[0], "A")))
            lora.b.set_value(jnp.asarray(b))
            stack.put(name, lora)


def _check_all_known(adapters: _Adapters, parts: list[tuple[LayerStack, list[str]]]) -> None:
    known = {
        _key(stack, name, number, letter)
        for stack, names in parts
        for name in names
        for number, _ in stack.numbers()
        for letter in "AB"
    }
    unknown = sorted(set(adapters.tensors) - known)
    if unknown or not known:
        what = f"no matrix can take {unknown[0]} ({len(unknown)} such)" if unknown else "it holds no adapters"
        raise UserError(f"{adapters.folder}: {what}; take adapters of this model's linear layers")


def _read_config(path: Path) -> LoRAConfig:
    try:
        settings = json.loads(path.read_text())
        if not isinstance(settings, dict):
            raise TypeError("it is not a JSON object")
        _check_settings(path, settings)
        rank, alpha, dropout = settings["r"], settings["lora_alpha"], settings.get("lora_dropout", 0.0)
        ranges = {
            "r": (rank, "a positive whole number", type(rank) is int and rank > 0),
            "lora_alpha": (alpha, "a positive number", 0 < alpha < math.inf),
            "lora_dropout": (dropout, "at least 0 and below 1", 0 <= dropout < 1),
        }
        for field, (value, rule, valid) in ranges.items():
            if not valid:
                raise UserError(
                    f"{path}: {field} is {shortened(value)}, but must be {rule}; correct the file"
                )
        # Rank-stabilized LoRA divides by the root of the rank, ours by the rank.
        scale = math.sqrt(rank) if settings.get("use_rslora") else 1.0
        return LoRAConfig(rank=rank, alpha=alpha * scale, dropout=float(dropout))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"cannot read the adapters' settings {path} ({error!r}); give a PEFT folder"
        ) from error


def _read_tensors(path: Path) -> dict[str, np.ndarray]:
    if not path.exists():
        raise UserError(f"{path} is missing; give a PEFT folder with safetensors")
    # Checks the header first: safetensors' own errors do not name the file.
    read_header(path)
    return load_file(path)
