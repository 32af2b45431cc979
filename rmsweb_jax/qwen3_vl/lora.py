"""LoRA on the decoder and the vision tower: adding, merging, counting and naming adapters as PEFT does."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import NamedSharding

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.checkpoint import gather
from rmsweb_jax.qwen3_vl.layers import Linear, LoRA, LoRAParam
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.text import DecoderLayer

__all__ = [
    "FUSED",
    "QKV",
    "TARGETS",
    "VISION_TARGETS",
    "LoRAConfig",
    "LoRAParam",
    "Tower",
    "add_lora",
    "count_parameters",
    "make_lora",
    "merge_lora",
    "peft_config",
    "to_peft_tensors",
    "towers",
]

QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
FUSED = "self_attn.qkv_lora"
_MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")

# Sets of a decoder layer's modules by name: all of SFT's, and RL's with one adapter for q, k and v.
TARGETS: dict[str, tuple[str, ...]] = {
    "all_linear": (*QKV, "self_attn.o_proj", *_MLP),
    "attention": (FUSED, "self_attn.o_proj"),
}
VISION_TARGETS = ("attn.qkv", "attn.proj", "mlp.linear_fc1", "mlp.linear_fc2")


@dataclasses.dataclass(frozen=True)
class LoRAConfig:
    """Adapter shape.

    Attributes:
      rank, alpha: the addition is scaled by alpha / rank.
      dropout: on the adapter's input.
      targets: "all_linear" (SFT: q, k, v, o, gate, up, down) or "attention" (RL: q, k and v fused with
        one shared A, and o).
      vision: whether the vision tower's blocks get adapters too (qkv, proj and both matrices of the MLP).

    Raises:
      UserError: a value is out of range.
    """

    rank: int
    alpha: float
    dropout: float = 0.0
    targets: str = "all_linear"
    vision: bool = False

    def __post_init__(self) -> None:
        if self.rank < 1 or self.alpha <= 0 or not 0 <= self.dropout < 1:
            raise UserError(
                f"config.lora: rank {self.rank}, alpha {self.alpha} and dropout {self.dropout} do not make "
                "an adapter; take rank >= 1, alpha > 0 and 0 <= dropout < 1"
            )
        if self.targets not in TARGETS:
            raise UserError(f"config.lora.targets is {self.targets!r}: use one of {', '.join(TARGETS)}")


class Tower(NamedTuple):
    """A run of equal layers: one layer, or several stacked ones.

    Attributes:
      prefix: of the layers' names in a checkpoint, before their numbers.
      first: the number of the first of them.
      count: how many are stacked; None for a single layer.
      layer: the module.
    """

    prefix: str
    first: int
    count: int | None
    layer: nnx.Module

    def linear(self, name: str) -> Linear:
        """A linear layer by its name within the layer, such as "self_attn.q_proj"."""
        block, attribute = name.split(".")
        return getattr(getattr(self.layer, block), attribute)

    def is_decoder(self) -> bool:
        return isinstance(self.layer, DecoderLayer)

    def names(self) -> tuple[str, ...]:
        """Names of the linear layers that can be adapted."""
        return TARGETS["all_linear"] if self.is_decoder() else VISION_TARGETS

    def numbers(self) -> list[tuple[int, int | None]]:
        """Number of each layer in the checkpoint, and its place in the stack."""
        places = [None] if self.count is None else range(self.count)
        return [(self.first + (place or 0), place) for place in places]

    def adapters(self) -> Iterator[tuple[str, LoRA]]:
        """Adapters of the layer by their module's name."""
        if isinstance(self.layer, DecoderLayer) and self.layer.self_attn.qkv_lora is not None:
            yield FUSED, self.layer.self_attn.qkv_lora
        for name in self.names():
            lora = self.linear(name).lora
            if lora is not None:
                yield name, lora

    def shape(self, name: str) -> tuple[tuple[int, ...], int, int]:
        """Leading axes, inputs and outputs of an adapter."""
        linears = [self.linear(part) for part in (QKV if name == FUSED else (name,))]
        *lead, fan_in, _ = linears[0].kernel.shape
        return tuple(lead), fan_in, sum(linear.kernel.shape[-1] for linear in linears)

    def put(self, name: str, lora: LoRA | None) -> None:
        """Sets, or takes away, the adapter of a module."""
        if name != FUSED:
            self.linear(name).lora = nnx.data(lora)
        elif isinstance(self.layer, DecoderLayer):
            self.layer.self_attn.qkv_lora = nnx.data(lora)

    def parts(self, name: str, b: jax.Array) -> list[tuple[str, jax.Array]]:
        """The linear layers that an adapter serves, each with its part of B."""
        if name != FUSED:
            return [(name, b)]
        sizes = [self.linear(part).kernel.shape[-1] for part in QKV]
        pieces = jnp.split(b, np.cumsum(sizes)[:-1].tolist(), axis=-1)
        return list(zip(QKV, pieces, strict=True))


def towers(model: Qwen3VL) -> list[Tower]:
    """Every layer that can be adapted: the decoder's first ones, its stacked rest, the vision blocks."""
    language, prefix = model.language_model, "model.language_model.layers."
    parts = [Tower(prefix, number, None, layer) for number, layer in enumerate(language.first_layers)]
    first = len(parts)
    if language.layers is not None:
        parts.append(Tower(prefix, first, model.config.text.num_hidden_layers - first, language.layers))
    return [*parts, Tower("model.visual.blocks.", 0, model.config.vision.depth, model.visual.blocks)]


def add_lora(model: Qwen3VL, config: LoRAConfig, rngs: nnx.Rngs) -> None:
    """Puts fresh adapters on the layers; the model's outputs do not change yet (B is zero).

    Raises:
      ValueError: the model has adapters already.
    """
    if count_parameters(model)["adapters"]:
        raise ValueError("the model has adapters already; merge_lora first")
    for tower in towers(model):
        for name in TARGETS[config.targets] if tower.is_decoder() else VISION_TARGETS * config.vision:
            tower.put(name, make_lora(tower, name, config, rngs.params()))


def make_lora(tower: Tower, name: str, config: LoRAConfig, key: jax.Array) -> LoRA:
    """A fresh adapter that fits a module."""
    lead, fan_in, fan_out = tower.shape(name)
    return LoRA(lead, fan_in, fan_out, rank=config.rank, alpha=config.alpha, dropout=config.dropout, key=key)


def _merge(kernel: jax.Array, a: jax.Array, b: jax.Array, scale: float) -> jax.Array:
    """`kernel + scale * a @ b` where the kernel lies, a layer at a time: a stack's float32 sum is large."""
    sharding = kernel.sharding if isinstance(kernel.sharding, NamedSharding) else None
    merge = jax.jit(_merge_stack if kernel.ndim == 3 else _merge_one, out_shardings=sharding)
    return merge(kernel, a, b, scale)


def _merge_one(kernel: jax.Array, a: jax.Array, b: jax.Array, scale: jax.Array) -> jax.Array:
    return (kernel.astype(jnp.float32) + scale * (a @ b)).astype(kernel.dtype)


def _merge_stack(kernel: jax.Array, a: jax.Array, b: jax.Array, scale: jax.Array) -> jax.Array:
    return jax.lax.map(lambda layer: _merge_one(layer[0], layer[1], layer[2], scale), (kernel, a, b))


def merge_lora(model: Qwen3VL) -> None:
    """Folds the adapters into the base weights and removes them."""
    for tower in towers(model):
        for name, lora in list(tower.adapters()):
            for part, b in tower.parts(name, lora.b[...]):
                kernel = tower.linear(part).kernel
                kernel.set_value(_merge(kernel[...], lora.a[...], b, lora.scale))
            tower.put(name, None)


def count_parameters(model: Qwen3VL) -> dict[str, int]:
    """Numbers of parameters: `base` and `adapters`; works on abstract models too."""
    base = nnx.state(model, nnx.All(nnx.Param, nnx.Not(LoRAParam)))
    adapters = nnx.state(model, LoRAParam)

    def total(state: nnx.State) -> int:
        return sum(math.prod(variable.shape) for _, variable in nnx.to_flat_state(state))

    return {"base": total(base), "adapters": total(adapters)}


def to_peft_tensors(model: Qwen3VL) -> dict[str, np.ndarray]:
    """The adapters under PEFT's names (`adapter_model.safetensors`), A [rank, in] and B [out, rank].

    A fused q-k-v adapter leaves as three that carry the same A. With several processes all must call this.
    """
    out: dict[str, np.ndarray] = {}
    for tower in towers(model):
        for name, lora in tower.adapters():
            for part, b in tower.parts(name, lora.b[...]):
                for number, layer in tower.numbers():
                    prefix = f"base_model.model.{tower.prefix}{number}.{part}"
                    for letter, value in (("A", lora.a[...]), ("B", b)):
                        out[f"{prefix}.lora_{letter}.weight"] = np.ascontiguousarray(gather(value, layer).T)
    return out


def peft_config(config: LoRAConfig) -> dict[str, Any]:
    """PEFT's `adapter_config.json` for adapters of this shape."""
    decoder = [part for name in TARGETS[config.targets] for part in (QKV if name == FUSED else (name,))]
    pattern = _pattern("language_model.layers", decoder)
    if config.vision:
        pattern = f"{pattern}|{_pattern('visual.blocks', VISION_TARGETS)}"
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": config.rank,
        "lora_alpha": config.alpha,
        "lora_dropout": config.dropout,
        "bias": "none",
        "target_modules": pattern,
    }


def _pattern(layers: str, names: Iterable[str]) -> str:
    return rf"(.*\.)?{re.escape(layers)}\.\d+\.({'|'.join(re.escape(name) for name in names)})"
