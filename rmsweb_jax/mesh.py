"""The device mesh and where arrays lie on it; on one device everything here is trivial.

Axes: `data` (copies of the model), `fsdp` (weights and optimizer split, gathered as they are used) and
`tensor` (matrices split across devices). Rows of a batch are split over `data` and `fsdp`.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from rmsweb_jax.errors import UserError

AXES = ("data", "fsdp", "tensor")
BATCH = P(("data", "fsdp"))

# Matrices that read what a split matrix has written: their input is split over `tensor`, so that the pair
# needs one reduction.
_ROW_PARALLEL = ("o_proj", "down_proj", "linear_fc2", "proj")


def make_mesh(data: int = 1, fsdp: int = 1, tensor: int = 1) -> Mesh:
    """A mesh with axes `AXES` over all devices; one size may be -1, for what is left.

    Raises:
      UserError: the sizes do not multiply to the number of devices.
    """
    sizes, devices = [data, fsdp, tensor], jax.device_count()
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = devices // math.prod(size for size in sizes if size != -1)
    if math.prod(sizes) != devices:
        raise UserError(
            f"the mesh data={data}, fsdp={fsdp}, tensor={tensor} does not fit {devices} devices: "
            "change config.mesh so that its sizes multiply to that (one may be -1)"
        )
    return jax.make_mesh(tuple(sizes), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def param_spec(path: tuple[Any, ...], shape: tuple[int, ...], mesh: Mesh) -> P:
    """How one parameter is split; an axis that does not divide stays whole.

    Args:
      path: of the parameter in the model's state, such as `("language_model", "layers", "mlp", ...)`.
      shape: kernels are [..., in, out], embeddings [rows, hidden], adapters [..., in, rank] and
        [..., rank, out].
    """
    names = [str(part) for part in path]
    row_parallel = any(name in _ROW_PARALLEL for name in names)
    into, out = ("tensor", "fsdp") if row_parallel else ("fsdp", "tensor")
    last_two = {
        "kernel": (into, out),
        "embedding": ("tensor", "fsdp"),
        "a": (into, None),
        "b": (None, out),
    }.get(names[-1])
    if last_two is None or len(shape) < 2:
        return P()
    fitting = [
        axis if axis is not None and size % mesh.shape[axis] == 0 else None
        for axis, size in zip(last_two, shape[-2:], strict=True)
    ]
    return P(*[None] * (len(shape) - 2), *fitting)


def param_shardings(state: Any, mesh: Mesh) -> Any:
    """The `NamedSharding` of each array of a model state (or of anything shaped like one)."""

    def sharding(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
        names = tuple(_key_name(key) for key in path)
        # nnx wraps every array in a variable, which is a node of the path of its own.
        names = tuple(name for name in names if name != "value")
        return NamedSharding(mesh, param_spec(names, leaf.shape, mesh))

    return jax.tree_util.tree_map_with_path(sharding, state)


def _key_name(key: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def shard_batch(batch: Any, mesh: Mesh, batch_axis: Any = None) -> Any:
    """Puts a host-local numpy batch on the mesh as one global batch.

    Args:
      batch: pytree of arrays; every process holds its rows, in process order.
      batch_axis: pytree prefix like `batch` with the axis to split in each array; None: axis 0 in all.
    """

    def put(x: np.ndarray, axis: int) -> jax.Array:
        spec = P(*[None] * axis, BATCH[0])
        return jax.make_array_from_process_local_data(NamedSharding(mesh, spec), np.asarray(x))

    if batch_axis is None:
        batch_axis = jax.tree.map(lambda _: 0, batch)
    return jax.tree.map(put, batch, batch_axis)


def replicate(tree: Any, mesh: Mesh) -> Any:
    """Puts the same values on every device."""
    return jax.device_put(tree, NamedSharding(mesh, P()))
