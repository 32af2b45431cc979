"""Sharding of the model's weights: the mesh axis that splits each of the axes that a matrix names."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from flax import nnx
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.config import Qwen3VLConfig, TextConfig
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
    """Size of every axis that a matrix names except "lora_rank", which does not depend on `config` alone."""
    text, vision = config.text, config.vision
    # Heads are blocks: a mesh axis must divide their number, not only the number of entries.
    return {
        "vocab": Axis(text.vocab_size),
        "embed": Axis(text.hidden_size),
        "heads": Axis(text.num_attention_heads, text.head_dim),
        "kv_heads": Axis(text.num_key_value_heads, text.head_dim),
        "qkv": Axis((1 + (text.delta is not None)) * text.query_dim + 2 * text.kv_dim),
        "mlp": Axis(text.intermediate_size),
        **_delta_axes(text),
        "patch": Axis(vision.patch_dim),
        "vision_positions": Axis(vision.num_position_embeddings),
        "vision_embed": Axis(vision.hidden_size),
        "vision_heads": Axis(vision.num_heads, vision.head_dim),
        "vision_qkv": Axis(vision.num_heads, 3 * vision.head_dim),
        "vision_mlp": Axis(vision.intermediate_size),
        "merged": Axis(vision.hidden_size * vision.merge_unit),
        "merger_mlp": Axis(vision.hidden_size * vision.merge_unit),
    }


def _delta_axes(text: TextConfig) -> dict[str, Axis]:
    """Axes of what Qwen3.5 has alone; a query and its gate are a block, as are a key head and its values."""
    if (delta := text.delta) is None:
        return {}
    heads = delta.linear_num_key_heads
    return {
        "gated_heads": Axis(text.num_attention_heads, 2 * text.head_dim),
        "delta_qkv": Axis(delta.channels),
        "delta_value": Axis(heads, delta.value_dim // heads),
        "delta_heads": Axis(heads, delta.linear_num_value_heads // heads),
        "taps": Axis(delta.linear_conv_kernel_dim),
    }


# Logical axis -> the mesh axis that splits it. `tensor` splits the axis between two matrices in sequence
# (up and down, v and o), so that the pair needs one reduction (Megatron-LM, Shoeybi et al. 2019).
RULES = {
    "vocab": "tensor",
    # Weights and optimizer state are stored split by it, and gathered layer by layer (`gather_weights`).
    "embed": "fsdp",
    "heads": "tensor",
    "kv_heads": "tensor",
    "mlp": "tensor",
    # The matrix of queries, keys and values is whole: they follow one another in it, each with its heads.
    "gated_heads": "tensor",
    "delta_value": "tensor",
    "delta_heads": "tensor",
    "vision_embed": "fsdp",
    "vision_heads": "tensor",
    "vision_qkv": "tensor",
    "vision_mlp": "tensor",
    "merged": "fsdp",
    "merger_mlp": "tensor",
}


def param_spec(variable: Any, mesh: Mesh | AbstractMesh, name: str = "a weight") -> P:
    """Chooses the sharding of a parameter by the names of its axes, see `layers.Axes`.

    Args:
      variable: the `nnx.Variable`; an optimizer's moments keep the names of their parameter.
      name: of the parameter, for the error.

    Raises:
      UserError: the mesh does not divide it.
    """
    axes = variable.get_metadata().get("axes")
    # Norm scales, biases and counts stay whole: gathering them costs more than the memory saved.
    if axes is None:
        return P()
    *stacked, fan_in, fan_out = variable.shape
    names = [RULES.get(axis) for axis in axes]
    if "lora_rank" in axes and "fsdp" not in names:
        # The matrix that the adapter adds to has its other axis split by `fsdp`; the rank is what is left
        # here. With ranks that it does not divide the matrix stays whole, which is small.
        rank = axes.index("lora_rank")
        names[rank] = "fsdp" if (fan_in, fan_out)[rank] % mesh.shape["fsdp"] == 0 else None
    for size, axis, split in zip((fan_in, fan_out), axes, names, strict=True):
        if split is not None and size % mesh.shape[split]:
            raise UserError(
                f"the mesh does not divide the model: {split}={mesh.shape[split]} cannot split axis {axis} "
                f"of {name} {[*variable.shape]}; change config.mesh"
            )
    # Stacked layers are scanned: a device needs its part of each.
    return P(*[None] * len(stacked), *names)


def _map_variables(make: Callable[[P, Any], Any], tree: Any, mesh: Mesh | AbstractMesh) -> Any:
    """Applies `make(spec, array)` to all arrays of a tree with parameters in it."""

    def made(path: tuple[Any, ...], leaf: Any) -> Any:
        name = ".".join(str(getattr(key, "key", getattr(key, "name", key))) for key in path)
        spec = param_spec(leaf, mesh, name) if isinstance(leaf, nnx.Variable) else P()
        return jax.tree.map(lambda array: make(spec, array), leaf)

    return jax.tree_util.tree_map_with_path(made, tree, is_leaf=lambda x: isinstance(x, nnx.Variable))


def param_shardings(state: Any, mesh: Mesh) -> Any:
    """Makes the `NamedSharding` of each array of a model's state, or of an optimizer's."""
    return _map_variables(lambda spec, array: NamedSharding(mesh, spec), state, mesh)


def check_mesh(config: Qwen3VLConfig, mesh: Mesh | AbstractMesh) -> None:
    """Refuses a mesh that would leave matrices whole or cut through a head.

    Raises:
      UserError: a mesh axis does not divide an axis of the model; the line names all such axes.
    """
    problems = []
    for name in AXES:
        counts = {axis: size.count for axis, size in axis_sizes(config).items() if RULES.get(axis) == name}
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


def gather_weights(state: Any, mesh: Mesh | None) -> Any:
    """Gathers a layer's weights over `fsdp` inside a jitted function; they stay split over `tensor`.

    Without this constraint the partitioner moves the activations of all rows instead, which are larger.
    """
    if mesh is None or mesh.size == 1:
        return state

    def gather(spec: P, array: jax.Array) -> jax.Array:
        return constrain(array, mesh, *(None if axis == "fsdp" else axis for axis in spec))

    return _map_variables(gather, state, mesh)
