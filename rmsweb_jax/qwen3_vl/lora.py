"""LoRA on the decoder: adding, merging, counting and exporting adapters."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import jax.numpy as jnp
import numpy as np
from flax import nnx

from rmsweb_jax.qwen3_vl.layers import Linear, LoRA, LoRAParam
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.text import DecoderLayer

__all__ = [
    "LoRAConfig",
    "LoRAParam",
    "add_lora",
    "count_parameters",
    "merge_lora",
    "peft_config",
    "to_peft_tensors",
]


@dataclasses.dataclass(frozen=True)
class LoRAConfig:
    """Adapter shape.

    Attributes:
      rank, alpha: the addition is scaled by alpha / rank.
      dropout: on the adapter's input.
      targets: "all_linear" (SFT: q, k, v, o, gate, up, down) or "attention" (RL: q, k and v fused with
        one shared A, and o).
    """

    rank: int
    alpha: float
    dropout: float = 0.0
    targets: Literal["all_linear", "attention"] = "all_linear"


def _decoder_layers(model: Qwen3VL) -> list[DecoderLayer]:
    """The separate first layers, then the stacked rest."""
    language = model.language_model
    return [*language.first_layers, *([language.layers] if language.layers is not None else [])]


def _linears(layer: DecoderLayer) -> dict[str, Linear]:
    attention, mlp = layer.self_attn, layer.mlp
    return {
        "self_attn.q_proj": attention.q_proj,
        "self_attn.k_proj": attention.k_proj,
        "self_attn.v_proj": attention.v_proj,
        "self_attn.o_proj": attention.o_proj,
        "mlp.gate_proj": mlp.gate_proj,
        "mlp.up_proj": mlp.up_proj,
        "mlp.down_proj": mlp.down_proj,
    }


_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


def add_lora(model: Qwen3VL, config: LoRAConfig, rngs: nnx.Rngs) -> None:
    """Puts fresh adapters on every decoder layer; the model's outputs do not change yet (B is zero).

    Raises:
      ValueError: the model has adapters already.
    """
    if count_parameters(model)["adapters"]:
        raise ValueError("the model has adapters already; merge_lora first")

    def adapter(lead: tuple[int, ...], fan_in: int, fan_out: int) -> LoRA:
        return LoRA(
            lead,
            fan_in,
            fan_out,
            rank=config.rank,
            alpha=config.alpha,
            dropout=config.dropout,
            key=rngs.params(),
        )

    for layer in _decoder_layers(model):
        linears = _linears(layer)
        if config.targets == "attention":
            *lead, fan_in, _ = linears[_QKV[0]].kernel.shape
            fan_out = sum(linears[name].kernel.shape[-1] for name in _QKV)
            layer.self_attn.qkv_lora = adapter(tuple(lead), fan_in, fan_out)
            linears = {"self_attn.o_proj": linears["self_attn.o_proj"]}
        for linear in linears.values():
            *lead, fan_in, fan_out = linear.kernel.shape
            linear.lora = adapter(tuple(lead), fan_in, fan_out)


def _add_to_kernel(linear: Linear, delta: jnp.ndarray) -> None:
    kernel = linear.kernel[...]
    linear.kernel.set_value((kernel.astype(jnp.float32) + delta).astype(kernel.dtype))


def merge_lora(model: Qwen3VL) -> None:
    """Folds the adapters into the base weights and removes them."""
    for layer in _decoder_layers(model):
        linears = _linears(layer)
        fused = layer.self_attn.qkv_lora
        if fused is not None:
            for name, delta in zip(_QKV, _split_qkv(linears, fused.delta()), strict=True):
                _add_to_kernel(linears[name], delta)
            layer.self_attn.qkv_lora = nnx.data(None)
        for linear in linears.values():
            if linear.lora is not None:
                _add_to_kernel(linear, linear.lora.delta())
                linear.lora = nnx.data(None)


def _split_qkv(linears: dict[str, Linear], fused: jnp.ndarray) -> list[jnp.ndarray]:
    sizes = [linears[name].kernel.shape[-1] for name in _QKV]
    return jnp.split(fused, np.cumsum(sizes)[:-1].tolist(), axis=-1)


def count_parameters(model: Qwen3VL) -> dict[str, int]:
    """Numbers of parameters: `base` and `adapters`; works on abstract models too."""
    base = nnx.state(model, nnx.All(nnx.Param, nnx.Not(LoRAParam)))
    adapters = nnx.state(model, LoRAParam)

    def total(state: nnx.State) -> int:
        return sum(math.prod(variable.shape) for _, variable in nnx.to_flat_state(state))

    return {"base": total(base), "adapters": total(adapters)}


def to_peft_tensors(model: Qwen3VL) -> dict[str, np.ndarray]:
    """The adapters under PEFT's names (`adapter_model.safetensors`), A [rank, in] and B [out, rank].

    A fused q-k-v adapter leaves as three that carry the same A.
    """
    out: dict[str, np.ndarray] = {}
    number = 0
    for layer in _decoder_layers(model):
        linears = _linears(layer)
        pairs = {
            name: (lin.lora.a[...], lin.lora.b[...]) for name, lin in linears.items() if lin.lora is not None
        }
        fused = layer.self_attn.qkv_lora
        if fused is not None:
            parts = _split_qkv(linears, fused.b[...])
            pairs |= {name: (fused.a[...], part) for name, part in zip(_QKV, parts, strict=True)}
        stacked = layer is model.language_model.layers
        count = layer.input_layernorm.scale.shape[0] if stacked else 1
        for name, (a, b) in pairs.items():
            a, b = (np.asarray(value) if stacked else np.asarray(value)[None] for value in (a, b))
            for index in range(count):
                prefix = f"base_model.model.model.language_model.layers.{number + index}.{name}"
                out[f"{prefix}.lora_A.weight"] = np.ascontiguousarray(a[index].T)
                out[f"{prefix}.lora_B.weight"] = np.ascontiguousarray(b[index].T)
        number += count
    return out


def peft_config(config: LoRAConfig) -> dict[str, object]:
    """PEFT's `adapter_config.json` for adapters of this shape."""
    names = ["q_proj", "k_proj", "v_proj", "o_proj"]
    names += ["gate_proj", "up_proj", "down_proj"] if config.targets == "all_linear" else []
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": config.rank,
        "lora_alpha": config.alpha,
        "lora_dropout": config.dropout,
        "bias": "none",
        "target_modules": rf".*language_model.*\.({'|'.join(names)})",
    }
