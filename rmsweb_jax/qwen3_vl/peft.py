"""Adapter folders in the format of PEFT, which vLLM and others read as well."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
from jax.experimental import multihost_utils
from safetensors.numpy import load_file, save_file

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.checkpoint import file_errors, read_shapes
from rmsweb_jax.qwen3_vl.config import shortened
from rmsweb_jax.qwen3_vl.lora import (
    FUSED,
    QKV,
    LayerStack,
    count_parameters,
    layer_stacks,
    make_lora,
    peft_config,
    to_peft_tensors,
)
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.records.files import make_folder, replacing, write_atomic
from rmsweb_jax.training.config import LoRAConfig

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"

# Fields of PEFT's LoraConfig that do not change what the stored matrices compute. Which matrices have an
# adapter, the tensors' names say; r, lora_alpha, lora_dropout and use_rslora are read.
# fmt: off
NEUTRAL = frozenset({
    "auto_mapping", "base_model_name_or_path", "ensure_weight_tying", "eva_config", "exclude_modules",
    "inference_mode", "layers_pattern", "layers_to_transform", "lora_alpha", "lora_dropout", "megatron_core",
    "peft_version", "qalora_group_size", "r", "revision", "runtime_config", "target_modules", "task_type",
    "use_rslora",
})
# fmt: on
# The other fields that are not empty by default, each with the values that plain LoRA has.
PLAIN: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    # Initial values that leave the base as it is, so that the stored matrices are all of the adapter.
    "init_lora_weights": (True, False, "gaussian", "orthogonal", "eva", "mica"),
}


def save_adapters(
    model: Qwen3VL, config: LoRAConfig, folder: str | os.PathLike[str], base: str, *, listed: bool = False
) -> None:
    """Writes the model's adapters as a PEFT folder; each file appears whole or not at all.

    With several processes all of them must call this; the first one writes.

    Args:
      config: that of `add_lora`.
      base: path or Hub name of the base model, which the folder records for its readers.
      listed: see `peft_config`.

    Raises:
      UserError: a file cannot be written.
    """
    folder, tensors = Path(folder), to_peft_tensors(model)
    if not tensors:
        raise ValueError("the model has no adapters")
    settings = peft_config(config, listed) | {"base_model_name_or_path": base, "inference_mode": True}
    if jax.process_index() == 0:
        with file_errors(folder, "free space or choose another folder"):
            make_folder(folder)
            with replacing(folder / WEIGHTS_FILE) as temporary:
                save_file(tensors, temporary, {"format": "pt"})
            write_atomic(folder / CONFIG_FILE, (json.dumps(settings, indent=2) + "\n").encode())
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("save_adapters")


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
    read_shapes(folder / WEIGHTS_FILE, "give a PEFT folder with whole safetensors")
    tensors = load_file(folder / WEIGHTS_FILE)
    # Everything is checked before the model changes, so that an error leaves it as it was.
    stacks = [(stack, _take(tensors, stack, config.rank, folder)) for stack in layer_stacks(model)]
    if tensors or not any(modules for _, modules in stacks):
        what = f"no matrix can take {min(tensors)} ({len(tensors)} such)" if tensors else "it has no adapters"
        raise UserError(f"{folder}: {what}; take adapters of this model's linear layers")
    # Only RL's adapters have this form, so that loading restores what `save_adapters` wrote.
    fused = all(
        modules.keys() == {*QKV, "self_attn.o_proj"}
        and all(np.array_equal(modules[QKV[0]][0], modules[name][0]) for name in QKV)
        for stack, modules in stacks
        if stack.is_decoder()
    )
    for stack, modules in stacks:
        if fused and stack.is_decoder():
            (a, *_), b = zip(*(modules.pop(name) for name in QKV), strict=True)
            modules[FUSED] = a, np.concatenate(b, axis=-1)
        for name, (a, b) in modules.items():
            # Its random A is overwritten at once.
            lora = make_lora(stack, name, config, jax.random.key(0))
            lora.a.set_value(jnp.asarray(a))
            lora.b.set_value(jnp.asarray(b))
            stack.put(name, lora)


def _take(
    tensors: dict[str, np.ndarray], stack: LayerStack, rank: int, folder: Path
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Takes out a stack's adapters by module: A [*lead, inputs, rank], B [*lead, rank, outputs], float32.

    Raises:
      UserError: only some layers have one, or its shape is wrong.
    """
    modules = {}
    for name in stack.names():
        _, fan_in, fan_out = stack.shape(name)
        shapes = {"A": (rank, fan_in), "B": (fan_out, rank)}
        keys = {
            letter: [
                f"base_model.model.{stack.prefix}{number}.{name}.lora_{letter}.weight"
                for number, _ in stack.numbers()
            ]
            for letter in shapes
        }
        if tensors.keys().isdisjoint(keys["A"] + keys["B"]):
            continue
        for letter, shape in shapes.items():
            for key in keys[letter]:
                if key not in tensors:
                    raise UserError(f"{folder}: {key} is missing; export the adapters again, on all layers")
                if (found := tensors[key].shape) != shape:
                    raise UserError(
                        f"{folder}: {key} is {list(found)} instead of {list(shape)}; take this model's "
                        "adapters"
                    )
        a, b = (np.stack([tensors.pop(key).T.astype(np.float32) for key in keys[one]]) for one in shapes)
        modules[name] = (a[0], b[0]) if stack.count is None else (a, b)
    return modules


def _read_config(path: Path) -> LoRAConfig:
    try:
        settings = json.loads(path.read_bytes())
        _check_plain(path, settings)
        # Rank-stabilized LoRA divides by the root of the rank, ours by the rank.
        scale = math.sqrt(settings["r"]) if settings.get("use_rslora") else 1.0
        alpha, dropout = scale * settings["lora_alpha"], settings.get("lora_dropout", 0.0)
        return LoRAConfig(rank=settings["r"], alpha=alpha, dropout=dropout)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        name = {"rank": "r", "alpha": "lora_alpha", "dropout": "lora_dropout"}[str(first["loc"][0])]
        problem = f"{name} is {shortened(first['input'])}: {first['msg'].lower()}"
        raise UserError(f"{path}: {problem}; correct the file") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"cannot read the adapters' settings {path} ({error!r}); give a PEFT folder"
        ) from error


def _check_plain(path: Path, settings: dict[str, Any]) -> None:
    """Refuses each setting, also of other versions of PEFT, that may change what the matrices compute."""
    # The method first: another one has fields of its own.
    for field, value in {"peft_type": settings.get("peft_type"), **settings}.items():
        # Null, false and empty values switch off any setting; a zero may well change what is computed.
        empty = value is None or value is False or value in ("", [], {})
        plain = any(type(value) is type(one) and value == one for one in PLAIN.get(field, ()))
        if field not in NEUTRAL and not plain and (field == "peft_type" or not empty):
            raise UserError(
                f"{path}: {field} is {shortened(value)}; only plain LoRA is supported: merge the adapters "
                "into the base with PEFT, or save them with path_initial_model_for_weight_conversion"
            )
