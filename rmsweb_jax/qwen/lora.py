"""LoRA on the decoder and the vision tower: adds, merges and counts adapters; reads and writes PEFT folders.

It is our own because qwix (0.1.8) gives adapters the dtype of the base (ours are float32 on bfloat16), cannot
switch them off in a call (our reference policy), and has no adapter over three weights with one A (RL's fused
q, k, v).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
from flax import nnx
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from safetensors.numpy import load_file, save_file

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.checkpoint import ADAPTER_FILE, file_errors, gather, read_shapes
from rmsweb_jax.qwen.config import shortened
from rmsweb_jax.qwen.layers import Linear, LoRA, LoRAParam
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.text import DecoderLayer
from rmsweb_jax.records.files import make_folder, replacing, write_atomic
from rmsweb_jax.training.config import LoRAConfig

# Names of modules within a decoder layer.
QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
FUSED = "self_attn.qkv_lora"
_MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")

_DELTA_IN = tuple(f"linear_attn.in_proj_{name}" for name in ("qkv", "z", "b", "a"))

# Adapted modules of a decoder layer: those of SFT, and those of RL with one adapter for q, k and v. The paper
# adapts what attention projects in and out: in layers with a recurrence that of its queries, keys and values,
# or nothing ("attention_only").
TARGETS: dict[str, tuple[str, ...]] = {
    "all_linear": (*QKV, "self_attn.o_proj", *_DELTA_IN, "linear_attn.out_proj", *_MLP),
    "attention": (FUSED, "self_attn.o_proj", "linear_attn.in_proj_qkv", "linear_attn.out_proj"),
    "attention_only": (FUSED, "self_attn.o_proj"),
}
VISION_TARGETS = ("attn.qkv", "attn.proj", "mlp.linear_fc1", "mlp.linear_fc2")


class LayerStack(NamedTuple):
    """A single layer, or several equal ones in one stacked module.

    Attributes:
      prefix: the layers' names in a checkpoint, up to their numbers.
      first: number of the first layer.
      count: number of stacked layers; None for a single layer.
      step: from the number of one to that of the next.
    """

    prefix: str
    first: int
    count: int | None
    layer: nnx.Module
    step: int = 1

    def linear(self, name: str) -> Linear:
        """Returns a linear layer by its name within the layer, such as "self_attn.q_proj"."""
        block, attribute = name.split(".")
        return getattr(getattr(self.layer, block), attribute)

    def is_decoder(self) -> bool:
        return isinstance(self.layer, DecoderLayer)

    def has_attention(self) -> bool:
        return isinstance(self.layer, DecoderLayer) and self.layer.self_attn is not None

    def names(self) -> tuple[str, ...]:
        """Returns the names of the linear layers that can be adapted."""
        return self.targets("all_linear") if self.is_decoder() else VISION_TARGETS

    def targets(self, name: str) -> tuple[str, ...]:
        """Returns the modules of `TARGETS` that a decoder layer has."""
        return tuple(one for one in TARGETS[name] if getattr(self.layer, one.split(".")[0]) is not None)

    def numbers(self) -> list[tuple[int, int | None]]:
        """Returns the number of each layer in the checkpoint, and its index in the stack."""
        indices = [None] if self.count is None else range(self.count)
        return [(self.first + self.step * (index or 0), index) for index in indices]

    def adapters(self) -> Iterator[tuple[str, LoRA]]:
        """Yields the adapters, each with the name of its module."""
        attention = self.layer.self_attn if isinstance(self.layer, DecoderLayer) else None
        if attention is not None and attention.qkv_lora is not None:
            yield FUSED, attention.qkv_lora
        for name in self.names():
            lora = self.linear(name).lora
            if lora is not None:
                yield name, lora

    def shape(self, name: str) -> tuple[tuple[int, ...], int, int]:
        """Returns the leading axes, inputs and outputs that a module's adapter has."""
        linears = [self.linear(part) for part in (QKV if name == FUSED else (name,))]
        *lead, fan_in, _ = linears[0].kernel.shape
        return tuple(lead), fan_in, sum(linear.kernel.shape[-1] for linear in linears)

    def put(self, name: str, lora: LoRA | None) -> None:
        """Sets or removes the adapter of a module."""
        if name != FUSED:
            self.linear(name).lora = nnx.data(lora)
        elif isinstance(self.layer, DecoderLayer) and self.layer.self_attn is not None:
            self.layer.self_attn.qkv_lora = nnx.data(lora)

    def parts(self, name: str, b: jax.Array) -> list[tuple[str, jax.Array]]:
        """Returns the linear layers that a module's adapter belongs to, each with its part of B."""
        if name != FUSED:
            return [(name, b)]
        sizes = [self.linear(part).kernel.shape[-1] for part in QKV]
        pieces = jnp.split(b, np.cumsum(sizes)[:-1].tolist(), axis=-1)
        return list(zip(QKV, pieces, strict=True))


def layer_stacks(model: Qwen3VL) -> list[LayerStack]:
    """Returns all layers that can be adapted: the decoder's first and stacked ones, the vision blocks."""
    language, prefix = model.language_model, "model.language_model.layers."
    parts = [LayerStack(prefix, number, None, layer) for number, layer in enumerate(language.first_layers)]
    first, kinds = len(parts), len(language.layers)
    for number, layer in enumerate(language.layers):
        count = (model.config.text.num_hidden_layers - first) // kinds
        parts.append(LayerStack(prefix, first + number, count, layer, kinds))
    return [*parts, LayerStack("model.visual.blocks.", 0, model.config.vision.depth, model.visual.blocks)]


def add_lora(model: Qwen3VL, config: LoRAConfig, rngs: nnx.Rngs) -> None:
    """Adds fresh adapters to the layers; the model's outputs do not change, since B is zero.

    Raises:
      ValueError: the model has adapters already.
    """
    if count_parameters(model)["adapters"]:
        raise ValueError("the model has adapters already; merge_lora first")
    for stack in layer_stacks(model):
        for name in stack.targets(config.targets) if stack.is_decoder() else VISION_TARGETS * config.vision:
            stack.put(name, make_lora(stack, name, config, rngs.params()))


def make_lora(stack: LayerStack, name: str, config: LoRAConfig, key: jax.Array) -> LoRA:
    """Makes a fresh adapter for a module."""
    lead, fan_in, fan_out = stack.shape(name)
    axes = ("embed", "qkv") if name == FUSED else stack.linear(name).kernel.axes
    return LoRA(
        lead, fan_in, fan_out, axes, rank=config.rank, alpha=config.alpha, dropout=config.dropout, key=key
    )


def _merge(kernel: jax.Array, a: jax.Array, b: jax.Array, scale: float) -> jax.Array:
    """Computes `kernel + scale * a @ b` on the kernel's devices.

    A stack is merged a layer at a time, since its float32 sum as a whole would be large.
    """
    sharding = kernel.sharding if isinstance(kernel.sharding, NamedSharding) else None
    # A merged kernel takes the place of the old one, and must have its sharding.
    merge = jax.jit(_merge_stack if kernel.ndim == 3 else _merge_one, out_shardings=sharding)
    return merge(kernel, a, b, scale)


def _merge_one(kernel: jax.Array, a: jax.Array, b: jax.Array, scale: jax.Array) -> jax.Array:
    return (kernel.astype(jnp.float32) + scale * (a @ b)).astype(kernel.dtype)


def _merge_stack(kernel: jax.Array, a: jax.Array, b: jax.Array, scale: jax.Array) -> jax.Array:
    return jax.lax.map(lambda layer: _merge_one(layer[0], layer[1], layer[2], scale), (kernel, a, b))


def merge_lora(model: Qwen3VL) -> None:
    """Merges the adapters into the base weights and removes them.

    Raises:
      ValueError: the weights are quantized.
    """
    for stack in layer_stacks(model):
        for name, lora in list(stack.adapters()):
            for part, b in stack.parts(name, lora.b[...]):
                if stack.linear(part).kernel_scale is not None:
                    raise ValueError("the weights are quantized: move the adapters to a model that is not")
                kernel = stack.linear(part).kernel
                kernel.set_value(_merge(kernel[...], lora.a[...], b, lora.scale))
            stack.put(name, None)


def count_parameters(model: Qwen3VL) -> dict[str, int]:
    """Counts the parameters of the base and of the adapters; also of abstract models."""
    base = nnx.state(model, nnx.All(nnx.Param, nnx.Not(LoRAParam)))
    adapters = nnx.state(model, LoRAParam)

    def total(state: nnx.State) -> int:
        return sum(math.prod(variable.shape) for _, variable in nnx.to_flat_state(state))

    return {"base": total(base), "adapters": total(adapters)}


def to_peft_tensors(model: Qwen3VL) -> dict[str, np.ndarray]:
    """Collects the adapters under PEFT's names, with A as [rank, inputs] and B as [outputs, rank].

    PEFT has no fused q-k-v adapter, so ours becomes three with the same A. With several processes all must
    call this.
    """
    out: dict[str, np.ndarray] = {}
    for stack in layer_stacks(model):
        for name, lora in stack.adapters():
            for part, b in stack.parts(name, lora.b[...]):
                for number, layer in stack.numbers():
                    prefix = f"base_model.model.{stack.prefix}{number}.{part}"
                    for letter, value in (("A", lora.a[...]), ("B", b)):
                        out[f"{prefix}.lora_{letter}.weight"] = np.ascontiguousarray(gather(value, layer).T)
    return out


def peft_config(model: Qwen3VL, config: LoRAConfig, listed: bool = False) -> dict[str, Any]:
    """Makes the content of PEFT's `adapter_config.json`, for adapters of this model.

    Args:
      listed: names the modules of adapters on the vision tower as well, since servers read no patterns.
    """
    stacks = [stack for stack in layer_stacks(model) if stack.is_decoder()]
    targets = dict.fromkeys(name for stack in stacks for name in stack.targets(config.targets))
    decoder = [part for name in targets for part in (QKV if name == FUSED else (name,))]
    names = [*decoder, *VISION_TARGETS * config.vision]
    modules: Any = sorted({name.split(".")[-1] for name in names})
    if config.vision and not listed:
        # Over whole paths: "proj" and "linear_fc1" alone match the patch embedding and mergers, too.
        layers = (("language_model.layers", decoder), ("visual.blocks", VISION_TARGETS))
        modules = "|".join(
            rf"(.*\.)?{re.escape(prefix)}\.\d+\.({'|'.join(map(re.escape, parts))})"
            for prefix, parts in layers
        )
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": config.rank,
        "lora_alpha": config.alpha,
        "lora_dropout": config.dropout,
        "bias": "none",
        "target_modules": modules,
    }


CONFIG_FILE = ADAPTER_FILE
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
# Fields that `rmsweb_jax.merge_adapters` reads and that adapters on a model have no place for.
MERGED = frozenset({"rank_pattern", "alpha_pattern", "use_dora"})
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
    settings = peft_config(model, config, listed) | {"base_model_name_or_path": base, "inference_mode": True}
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
        raise UserError(f"{folder}: {what}; merge them, by experiments.merge, if they are of this model")
    # Only RL's adapters have this form, so that loading restores what `save_adapters` wrote.
    fused = all(
        modules.keys() == {*QKV, "self_attn.o_proj"}
        and all(np.array_equal(modules[QKV[0]][0], modules[name][0]) for name in QKV)
        for stack, modules in stacks
        if stack.has_attention()
    )
    for stack, modules in stacks:
        if fused and stack.has_attention():
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
                    raise UserError(f"{folder}: {key} is missing; merge the adapters, by experiments.merge")
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
        check_plain(path, settings)
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


def check_plain(path: Path, settings: dict[str, Any], merging: bool = False) -> None:
    """Refuses each setting, also of other versions of PEFT, that may change what the matrices compute.

    Args:
      merging: those of `MERGED` are read.

    Raises:
      UserError: a setting is one of these.
    """
    # The method first: another one has fields of its own.
    for field, value in {"peft_type": settings.get("peft_type"), **settings}.items():
        # Null, false and empty values switch off any setting; a zero may well change what is computed.
        empty = value is None or value is False or value in ("", [], {})
        plain = any(type(value) is type(one) and value == one for one in PLAIN.get(field, ()))
        known = NEUTRAL | MERGED if merging else NEUTRAL
        if field not in known and not plain and (field == "peft_type" or not empty):
            how = (
                "merge the adapters into the base first, by experiments.merge"
                if field in MERGED
                else "merge the adapters into the base with PEFT, or save them with "
                "path_initial_model_for_weight_conversion"
            )
            raise UserError(f"{path}: {field} is {shortened(value)}; only plain LoRA is supported: {how}")
