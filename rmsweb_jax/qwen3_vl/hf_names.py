"""Which tensor of a Hugging Face checkpoint is which parameter of the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from flax import nnx

from rmsweb_jax.qwen3_vl.layers import LoRAParam
from rmsweb_jax.qwen3_vl.model import Qwen3VL

_LEAF_NAMES = {"kernel": "weight", "scale": "weight", "embedding": "weight", "bias": "bias"}


class HFTensor(NamedTuple):
    """Where a tensor of a checkpoint lives in the model.

    Attributes:
      name, shape: in the checkpoint.
      path: of the parameter in the model's state.
      layer: index into the leading axis of a stacked parameter, or None.
      transposed: the checkpoint keeps [out, in(...)], the model [in, out].
    """

    name: str
    shape: tuple[int, ...]
    path: tuple[Any, ...]
    layer: int | None
    transposed: bool


def base_state(model: Qwen3VL) -> dict[tuple[Any, ...], nnx.Variable]:
    """Parameters without adapters, by path."""
    state = nnx.state(model, nnx.All(nnx.Param, nnx.Not(LoRAParam)))
    return dict(nnx.to_flat_state(state))


def _hf_name(path: tuple[Any, ...], layer: int) -> str:
    *parts, leaf = path
    names = [str(part) for part in parts]
    if names[:2] == ["language_model", "first_layers"]:
        names[1] = "layers"
    elif names[:2] in (["language_model", "layers"], ["visual", "blocks"]):
        names.insert(2, str(layer))
    prefix = "" if names[0] == "lm_head" else "model."
    return f"{prefix}{'.'.join(names)}.{_LEAF_NAMES[str(leaf)]}"


def hf_tensors(model: Qwen3VL) -> Iterator[HFTensor]:
    """Every tensor of the model's checkpoint; works on abstract models too."""
    config = model.config
    vision = config.vision
    conv = (
        vision.hidden_size,
        vision.in_channels,
        vision.temporal_patch_size,
        vision.patch_size,
        vision.patch_size,
    )
    for path, variable in base_state(model).items():
        shape = tuple(variable.get_value().shape)
        transposed = path[-1] == "kernel"
        stacked = path[:2] in (("language_model", "layers"), ("visual", "blocks"))
        first = config.num_deepstack if path[0] == "language_model" else 0
        inner = shape[1:] if stacked else shape
        if path[:2] == ("visual", "patch_embed") and transposed:
            inner = conv
        elif transposed:
            inner = inner[::-1]
        for index in range(shape[0]) if stacked else (None,):
            name = _hf_name(path, first + (index or 0))
            yield HFTensor(name, inner, path, index, transposed)
