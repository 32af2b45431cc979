"""The devices of a run: its processes, the mesh, how arrays are split over it, and what fits its memory.

Axes: `data` (copies of the model), `fsdp` (weights and optimizer split, gathered as they are used) and
`tensor` (matrices split across devices). Rows of a batch are split over `data` and `fsdp`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.stages import Compiled, Lowered

from rmsweb_jax.errors import UserError
from rmsweb_jax.signals import StopRequest

# From the outermost to the innermost: neighbouring devices share `tensor`, which has the most traffic.
AXES = ("data", "fsdp", "tensor")
# The mesh axes that together split the rows of a batch.
ROWS = ("data", "fsdp")
BATCH = P(ROWS)


def any_process(flag: bool) -> bool:
    """True where the flag is set in any process of the run; all must call this at the same step."""
    if jax.process_count() == 1:
        return flag
    # A process that stopped alone would leave the others waiting in their next collective.
    return bool(multihost_utils.process_allgather(np.asarray(flag)).any())


def stop_cause(stop: StopRequest) -> str:
    """The signal that asked a process of the run to stop; all must call this once one was asked."""
    causes = from_all_processes(stop.cause.encode() if stop.requested else b"")
    return next(cause.decode() for cause in causes if cause)


def from_all_processes(data: bytes) -> list[bytes]:
    """Gives every process the bytes that each of them gives; all must call this at the same step."""
    if jax.process_count() == 1:
        return [data]
    lengths = multihost_utils.process_allgather(np.int32(len(data)))
    padded = np.frombuffer(data.ljust(int(lengths.max()), b"\0"), np.uint8)
    rows = multihost_utils.process_allgather(padded)
    return [bytes(row[:length]) for row, length in zip(rows, lengths, strict=True)]


def is_first() -> bool:
    """True in the one process that writes the files of a run."""
    return jax.process_index() == 0


def make_mesh(data: int = 1, fsdp: int = 1, tensor: int = 1) -> Mesh:
    """Makes a mesh with axes `AXES` over all devices; one size may be -1, which takes the devices left.

    Raises:
      UserError: the sizes do not multiply to the number of devices.
    """
    sizes, devices = [data, fsdp, tensor], jax.device_count()
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = devices // math.prod(size for size in sizes if size != -1)
    # Every device must take part: a collective of a multi-host run waits for all of them.
    if math.prod(sizes) != devices:
        raise UserError(
            f"the mesh data={data}, fsdp={fsdp}, tensor={tensor} does not fit {devices} devices: "
            "change config.mesh so that its sizes multiply to that (one may be -1)"
        )
    # Auto: the partitioner chooses all shardings that no constraint fixes.
    return jax.make_mesh(tuple(sizes), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def constrain(x: jax.Array, mesh: Mesh | None, *axes: str | tuple[str, ...] | None) -> jax.Array:
    """Constrains the sharding of `x` inside a jitted function; without a mesh returns it unchanged.

    Args:
      axes: for each axis of `x` the mesh axes that split it, or None.
    """
    if mesh is None or mesh.size == 1:
        return x
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*axes)))


def tree_shardings(tree: Any, specs: Any, mesh: Mesh) -> Any:
    """Makes a `NamedSharding` for each array of a tree.

    Args:
      specs: tree of `PartitionSpec`s; one may replace a whole subtree and then holds for all arrays in it.
    """
    return jax.tree.map(
        lambda spec, part: jax.tree.map(lambda _: NamedSharding(mesh, spec), part),
        specs,
        tree,
        is_leaf=lambda leaf: isinstance(leaf, P),
    )


def constrain_tree(tree: Any, specs: Any, mesh: Mesh | None) -> Any:
    """Applies `constrain` to all arrays of a tree; `specs` are those of `tree_shardings`."""
    if mesh is None or mesh.size == 1:
        return tree
    return jax.lax.with_sharding_constraint(tree, tree_shardings(tree, specs, mesh))


def constrain_rows(x: jax.Array, mesh: Mesh | None) -> jax.Array:
    """Constrains activations between layers: rows over `data` and `fsdp`, tokens over `tensor`.

    The layers before and after split heads and features, not tokens. Splitting tokens here lets each device
    keep a part of what the backward pass needs ("sequence parallelism", Korthikanti et al. 2022).
    """
    tokens = "tensor" if mesh is not None and x.shape[1] % mesh.shape["tensor"] == 0 else None
    return constrain(x, mesh, ROWS, tokens, None)


def row_shards(mesh: Mesh | AbstractMesh | None) -> int:
    """Number of parts that the rows of a batch are split into; 1 without a mesh."""
    return 1 if mesh is None else math.prod(mesh.shape[axis] for axis in ROWS)


def check_rows(mesh: Mesh | AbstractMesh, rows: int, key: str) -> None:
    """Refuses a number of rows that the mesh cannot split evenly.

    Args:
      key: the setting that holds the number, for the message.

    Raises:
      UserError: the mesh does not divide the rows.
    """
    parts = row_shards(mesh)
    if rows % parts:
        raise UserError(
            f"config.{key}={rows} rows do not divide over {' x '.join(ROWS)} = {parts} devices: change it or "
            "config.mesh"
        )


def process_rows(mesh: Mesh, rows: int) -> tuple[int, ...]:
    """Numbers of the batch rows on this process's devices, ascending.

    The rows need not be contiguous, because the order of devices follows a pod's network. Where `tensor`
    splits a row between processes, each of them holds it. The mesh must divide the rows (`check_rows`).
    """
    indices = NamedSharding(mesh, BATCH).addressable_devices_indices_map((rows,)).values()
    # Several devices may hold the same rows (those along `tensor`), hence the unique numbers.
    mine = np.concatenate([np.arange(rows)[index] for index in indices if index is not None])
    return tuple(np.unique(mine).tolist())


def shard_batch(batch: Any, mesh: Mesh, batch_axis: Any = None) -> Any:
    """Puts a host-local numpy batch on the mesh as one global batch.

    Args:
      batch: pytree of arrays; every process holds the rows that `process_rows` names, in that order.
      batch_axis: tree like `batch` with the axis to split in each array; None splits axis 0 of all.
    """

    def put(x: np.ndarray, axis: int) -> jax.Array:
        spec = P(*[None] * axis, BATCH[0])
        # Each process gives the rows of its own devices; no process holds, or sends, the whole batch.
        return jax.make_array_from_process_local_data(NamedSharding(mesh, spec), np.asarray(x))

    if batch_axis is None:
        batch_axis = jax.tree.map(lambda _: 0, batch)
    return jax.tree.map(put, batch, batch_axis)


def device_bytes(tree: Any) -> int:
    """Counts the bytes of sharded arrays, also abstract ones, on one device."""
    leaves = jax.tree.leaves(tree)
    # An abstract array without a sharding is on one device.
    shapes = [leaf.sharding.shard_shape(leaf.shape) if leaf.sharding else leaf.shape for leaf in leaves]
    return sum(math.prod(shape) * _item_bytes(leaf.dtype) for shape, leaf in zip(shapes, leaves, strict=True))


def uneven_split(tree: Any, devices: int) -> float:
    """Bytes of sharded arrays on one device over those of an even split; `devices` if each has a copy."""
    whole = sum(math.prod(leaf.shape) * _item_bytes(leaf.dtype) for leaf in jax.tree.leaves(tree))
    return device_bytes(tree) * devices / whole


def _item_bytes(dtype: Any) -> int:
    # A PRNG key has no itemsize of its own; its implementation has two words.
    return 8 if jnp.issubdtype(dtype, jax.dtypes.prng_key) else dtype.itemsize


def choose_remat(fits: Callable[[str], bool]) -> str:
    """Returns "named" if a program fits with it in all processes, otherwise "full".

    Not "offload": an 8B layer would move 160 KB a token to the host and back, which takes longer than "full"
    needs to compute them again where the host is behind PCIe (5 and 2 us at 32 GB/s and 50 % of a v5p).
    """
    chosen = "full" if any_process(not fits("named")) else "named"
    logging.info("remat=%s chosen", chosen)
    return chosen


def program_bytes(compiled: Compiled) -> int:
    """Counts the memory of a device that a program needs, with its arguments."""
    memory = compiled.memory_analysis()
    if memory is None:
        return 0
    # Not the compiler's peak, which counts arrays in host memory as well.
    return (
        memory.argument_size_in_bytes
        + memory.temp_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
        + memory.generated_code_size_in_bytes
    )


def out_of_memory(error: Exception) -> bool:
    """True if a program does not fit the memory of a device; a kernel may also lack fast memory."""
    return "RESOURCE_EXHAUSTED" in str(error) and "Vmem" not in str(error)


def fits_device(lower: Callable[[], Lowered], resident: Any) -> bool:
    """True if a program fits the devices of this machine, or if their memory is not known.

    Args:
      lower: makes the program, which is compiled unless the memory is not known.
      resident: other arrays that stay on the devices.
    """
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    if limit is None:
        return True
    try:
        needed = program_bytes(lower().compile())
    except jax.errors.JaxRuntimeError as error:
        if not out_of_memory(error):
            raise
        return False
    return needed + device_bytes(resident) <= limit
