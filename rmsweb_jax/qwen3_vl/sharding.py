"""Sharding of the model's weights: the logical axes of each one, and the mesh axis that splits each of these.

One table serves training, loading, ahead-of-time compilation and the check that a mesh fits a model.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.training.config import MeshConfig
from rmsweb_jax.training.mesh import AXES, constrain

# Sizes of `tensor` that `choose_mesh` tries, and the share of useful operations with which it is content.
_TENSOR_SIZES, _GOOD_FILL = (1, 2, 4, 8), 0.75


class Axis(NamedTuple):
    """A logical axis of a model: `count` blocks of `unit` entries each; no sharding cuts a block."""

    count: int
    unit: int = 1

    @property
    def size(self) -> int:
        return self.count * self.unit


def axis_sizes(config: Qwen3VLConfig) -> dict[str, Axis]:
    """Size of every logical axis except "layers" and "lora_rank", which do not depend on `config` alone."""
    text, vision = config.text, config.vision
    # Heads are blocks: a mesh axis must divide their number, not only the number of entries.
    return {
        "vocab": Axis(text.vocab_size),
        "embed": Axis(text.hidden_size),
        "heads": Axis(text.num_attention_heads, text.head_dim),
        "kv_heads": Axis(text.num_key_value_heads, text.head_dim),
        "head_dim": Axis(text.head_dim),
        "qkv": Axis(text.query_dim + 2 * text.kv_dim),
        "mlp": Axis(text.intermediate_size),
        "patch": Axis(vision.patch_dim),
        "vision_positions": Axis(vision.num_position_embeddings),
        "vision_embed": Axis(vision.hidden_size),
        "vision_heads": Axis(vision.num_heads, vision.head_dim),
        "vision_qkv": Axis(vision.num_heads, 3 * vision.head_dim),
        "vision_mlp": Axis(vision.intermediate_size),
        "merged": Axis(vision.hidden_size * vision.merge_unit),
        "merger_mlp": Axis(vision.hidden_size * vision.merge_unit),
    }


# Parameter -> its logical axes. Names leave out list indices, and axes the leading one of stacked layers.
_WEIGHTS: dict[str, tuple[str, ...]] = {
    "language_model.embed_tokens.embedding": ("vocab", "embed"),
    "language_model.layers.input_layernorm.scale": ("embed",),
    "language_model.layers.self_attn.q_proj.kernel": ("embed", "heads"),
    "language_model.layers.self_attn.k_proj.kernel": ("embed", "kv_heads"),
    "language_model.layers.self_attn.v_proj.kernel": ("embed", "kv_heads"),
    "language_model.layers.self_attn.o_proj.kernel": ("heads", "embed"),
    "language_model.layers.self_attn.q_norm.scale": ("head_dim",),
    "language_model.layers.self_attn.k_norm.scale": ("head_dim",),
    "language_model.layers.post_attention_layernorm.scale": ("embed",),
    "language_model.layers.mlp.gate_proj.kernel": ("embed", "mlp"),
    "language_model.layers.mlp.up_proj.kernel": ("embed", "mlp"),
    "language_model.layers.mlp.down_proj.kernel": ("mlp", "embed"),
    "language_model.norm.scale": ("embed",),
    "lm_head.kernel": ("embed", "vocab"),
    "visual.patch_embed.proj.kernel": ("patch", "vision_embed"),
    "visual.patch_embed.proj.bias": ("vision_embed",),
    "visual.pos_embed.embedding": ("vision_positions", "vision_embed"),
    "visual.blocks.norm1.scale": ("vision_embed",),
    "visual.blocks.norm1.bias": ("vision_embed",),
    "visual.blocks.norm2.scale": ("vision_embed",),
    "visual.blocks.norm2.bias": ("vision_embed",),
    "visual.blocks.attn.qkv.kernel": ("vision_embed", "vision_qkv"),
    "visual.blocks.attn.qkv.bias": ("vision_qkv",),
    "visual.blocks.attn.proj.kernel": ("vision_heads", "vision_embed"),
    "visual.blocks.attn.proj.bias": ("vision_embed",),
    "visual.blocks.mlp.linear_fc1.kernel": ("vision_embed", "vision_mlp"),
    "visual.blocks.mlp.linear_fc1.bias": ("vision_mlp",),
    "visual.blocks.mlp.linear_fc2.kernel": ("vision_mlp", "vision_embed"),
    "visual.blocks.mlp.linear_fc2.bias": ("vision_embed",),
    "visual.merger.norm.scale": ("vision_embed",),
    "visual.merger.norm.bias": ("vision_embed",),
    "visual.merger.linear_fc1.kernel": ("merged", "merger_mlp"),
    "visual.merger.linear_fc1.bias": ("merger_mlp",),
    "visual.merger.linear_fc2.kernel": ("merger_mlp", "embed"),
    "visual.merger.linear_fc2.bias": ("embed",),
    "visual.deepstack_merger_list.norm.scale": ("merged",),
    "visual.deepstack_merger_list.norm.bias": ("merged",),
    "visual.deepstack_merger_list.linear_fc1.kernel": ("merged", "merger_mlp"),
    "visual.deepstack_merger_list.linear_fc1.bias": ("merger_mlp",),
    "visual.deepstack_merger_list.linear_fc2.kernel": ("merger_mlp", "embed"),
    "visual.deepstack_merger_list.linear_fc2.bias": ("embed",),
}

# Modules that can have adapters. A and B take the axes of the matrix that they add to.
_ADAPTED = ("language_model.layers.self_attn.", "language_model.layers.mlp.", "visual.blocks.")

PARAM_AXES: dict[str, tuple[str, ...]] = {
    **_WEIGHTS,
    "language_model.layers.self_attn.qkv_lora.a": ("embed", "lora_rank"),
    "language_model.layers.self_attn.qkv_lora.b": ("lora_rank", "qkv"),
}
for _name, _axes in _WEIGHTS.items():
    if _name.startswith(_ADAPTED) and _name.endswith(".kernel"):
        _prefix = _name.removesuffix("kernel") + "lora."
        PARAM_AXES |= {f"{_prefix}a": (_axes[0], "lora_rank"), f"{_prefix}b": ("lora_rank", _axes[1])}
        if not _name.startswith("visual."):  # Only the decoder is quantized.
            PARAM_AXES[f"{_name}_scale"] = (_axes[1],)

# Where a model's own path begins within an optimizer's.
_ROOTS = ("language_model", "visual", "lm_head")


def table_name(path: Sequence[str]) -> str | None:
    """Finds the key of `PARAM_AXES` for a path in a model's state, or in an optimizer's copy of it.

    Returns:
      None when the path leads to something that is no parameter, such as an optimizer's step count.
    """
    start = next((number for number, name in enumerate(path) if name in _ROOTS), None)
    if start is None:
        return None
    names = ["layers" if name == "first_layers" else name for name in path[start:] if not name.isdigit()]
    return ".".join(names)


def logical_axes(path: Sequence[str], ndim: int) -> tuple[str | None, ...]:
    """Names the axes of a parameter; the leading axis of stacked layers is "layers".

    Returns:
      One name an axis; None for each axis of an array that is no parameter.

    Raises:
      KeyError: the table has no row for it.
    """
    name = table_name(path)
    if name is None:
        return (None,) * ndim
    axes = PARAM_AXES[name]
    return ("layers", *axes) if ndim == len(axes) + 1 else axes


# Logical axis -> the mesh axis that splits it. `tensor` splits the axis between two matrices in sequence
# (up and down, v and o), so that the pair needs one reduction (Megatron-LM, Shoeybi et al. 2019).
RULES: dict[str, str | None] = {
    # Scanned: a device needs its part of every layer.
    "layers": None,
    "lora_rank": None,  # But see `param_spec`.
    "vocab": "tensor",
    # Weights and optimizer state are stored split by it, and gathered layer by layer (`gather_weights`).
    "embed": "fsdp",
    "heads": "tensor",
    "kv_heads": "tensor",
    "head_dim": None,
    # q, k and v are concatenated here: equal parts would not end at a head.
    "qkv": None,
    "mlp": "tensor",
    "patch": None,
    "vision_positions": None,
    "vision_embed": "fsdp",
    "vision_heads": "tensor",
    "vision_qkv": "tensor",
    "vision_mlp": "tensor",
    "merged": "fsdp",
    "merger_mlp": "tensor",
}


def param_spec(path: Sequence[str], shape: tuple[int, ...], mesh: Mesh | AbstractMesh) -> P:
    """Chooses the sharding of one parameter from the table.

    Args:
      path: its path in the state of a model or of an optimizer, such as
        `("language_model", "layers", "mlp", "up_proj", "kernel")`.

    Raises:
      UserError: the mesh does not divide it.
    """
    # An optimizer's moments have their parameter's path and shape, and so its sharding.
    axes = logical_axes(path, len(shape))
    names = [None if axis is None else RULES[axis] for axis in axes]
    if "lora_rank" in axes and "fsdp" not in names:
        # The matrix that the adapter adds to has its other axis split by `fsdp`; the rank is what is left
        # here. With ranks that it does not divide the matrix stays whole, which is small.
        rank = axes.index("lora_rank")
        names[rank] = "fsdp" if shape[rank] % mesh.shape["fsdp"] == 0 else None
    # Norm scales and biases stay whole: gathering them costs more than the memory saved.
    if len(axes) - axes.count("layers") < 2:
        return P()
    for size, axis, name in zip(shape, axes, names, strict=True):
        if name is not None and size % mesh.shape[name]:
            raise UserError(
                f"the mesh does not divide the model: {name}={mesh.shape[name]} cannot split axis {axis} of "
                f"{'.'.join(path)} {list(shape)}; change config.mesh"
            )
    return P(*names)


def param_shardings(state: Any, mesh: Mesh) -> Any:
    """Makes the `NamedSharding` of each array of a model's state, or of a tree that copies its paths."""

    def sharding(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
        return NamedSharding(mesh, param_spec(_names(path), leaf.shape, mesh))

    return jax.tree_util.tree_map_with_path(sharding, state)


def check_mesh(config: Qwen3VLConfig, mesh: Mesh | AbstractMesh) -> None:
    """Refuses a mesh that would leave matrices whole or cut through a head.

    Raises:
      UserError: a mesh axis does not divide an axis of the model; the line names all such axes.
    """
    problems = []
    for name in AXES:
        counts = {axis: size.count for axis, size in axis_sizes(config).items() if RULES[axis] == name}
        bad = [f"{count} {axis}" for axis, count in counts.items() if count % mesh.shape[name]]
        if bad:
            # The largest size that divides all of them.
            most = math.gcd(*counts.values())
            problems.append(
                f"{name}={mesh.shape[name]} does not divide {', '.join(bad)} (a divisor of {most} would)"
            )
    if problems:
        raise UserError(f"the mesh does not divide the model: {'; '.join(problems)}; change config.mesh")


def choose_mesh(settings: MeshConfig, config: Qwen3VLConfig, fill: Callable[[int], float]) -> MeshConfig:
    """Chooses `tensor` if it is 0.

    More devices a row leave fewer rows to fill, at the price of more traffic within a layer. The smallest
    size is taken with which the trees of an optimizer step fill their rows.

    Args:
      fill: number of row shards -> expected share of useful operations.
    """
    devices, tensor = jax.device_count(), settings.tensor
    if not tensor and -1 not in (settings.data, settings.fsdp):
        # What the other axes leave.
        tensor = -1
    elif not tensor:
        heads = axis_sizes(config)["kv_heads"].count
        sizes = [size for size in _TENSOR_SIZES if devices % size == 0 and heads % size == 0]
        fills: dict[int, float] = {}
        for size in sizes if devices > 1 else ():
            fills[size] = fill(devices // size)
            if fills[size] >= _GOOD_FILL:
                break
        tensor = max(fills, key=lambda size: fills[size], default=1)
        logging.info("mesh: tensor=%d chosen for %d devices", tensor, devices)
    return settings.model_copy(update={"tensor": tensor})


def _names(path: tuple[Any, ...]) -> list[str]:
    # nnx wraps every array in a variable, which adds a node to the path.
    return [name for name in map(_key_name, path) if name != "value"]


def _key_name(key: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def gather_weights(state: Any, path: Sequence[str], mesh: Mesh | None) -> Any:
    """Gathers a layer's weights over `fsdp` inside a jitted function; they stay split over `tensor`.

    Without this constraint the partitioner moves the activations of all rows instead, which are larger.

    Args:
      path: path of the layer in the model's state.
    """
    if mesh is None or mesh.size == 1:
        return state

    def gather(names: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
        spec = param_spec([*path, *_names(names)], leaf.shape, mesh)
        return constrain(leaf, mesh, *(None if axis == "fsdp" else axis for axis in spec))

    return jax.tree_util.tree_map_with_path(gather, state)
