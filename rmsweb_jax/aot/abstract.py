"""A training run whose arrays are shapes and shardings, and the TPU slices that it is compiled for."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from rmsweb_jax.data.batching import Batch, ScoredTokens, round_up
from rmsweb_jax.data.packing import RowShape
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.backends import choose_attention
from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.inputs import CHUNK, ModelInputs, TreeTables, VisionInputs
from rmsweb_jax.qwen.lora import add_lora, count_parameters
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.quantize import quantize_base
from rmsweb_jax.qwen.sharding import check_mesh, param_shardings
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.sft.config import SftConfig
from rmsweb_jax.sft.step import split_model
from rmsweb_jax.training.config import LoRAConfig
from rmsweb_jax.training.mesh import AXES, BATCH
from rmsweb_jax.training.step import TrainState, adamw


@dataclasses.dataclass(frozen=True)
class AbstractRun:
    """A sharded model, split for LoRA training; all arrays are `jax.ShapeDtypeStruct`s with shardings."""

    config: Qwen3VLConfig
    mesh: Mesh
    graphdef: Any
    state: TrainState
    frozen: Any
    optimizer: Any
    adapters: int

    def rows(self, shape: tuple[int, ...], dtype: Any, axis: int = 0) -> Any:
        """Makes an abstract array whose `axis` is split like the rows of a batch."""
        sharding = NamedSharding(self.mesh, P(*[None] * axis, BATCH[0]))
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    def everywhere(self, tree: Any) -> Any:
        """Replicates abstract arrays over the mesh."""
        return on_mesh(tree, jax.tree.map(lambda _: NamedSharding(self.mesh, P()), tree))


def on_mesh(tree: Any, shardings: Any) -> Any:
    """Adds shardings to abstract arrays."""
    return jax.tree.map(
        lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree, shardings
    )


def abstract_run(
    config: Qwen3VLConfig,
    mesh: Mesh,
    settings: SftConfig | RlConfig,
    lora: LoRAConfig,
    trainable: str = "lora",
) -> AbstractRun:
    """Makes model, adapters and optimizer of a run; allocates nothing.

    Args:
      lora, trainable: adapters, and whether they ("lora") or all weights ("all") are trained.

    Raises:
      UserError: the mesh does not divide the model.
    """
    check_mesh(config, mesh)

    def make() -> Qwen3VL:
        model = Qwen3VL(
            config,
            rngs=nnx.Rngs(0),
            dtype=jnp.dtype(settings.dtype),
            param_dtype=jnp.dtype(settings.param_dtype),
            remat=settings.remat,
            # The target's platform, not the one on which this runs.
            attention=choose_attention(
                config.text.head_dim,
                settings.dtype,
                mesh,
                backend=settings.attention,
                block=settings.attention_block,
                platform=platform,
            ),
        )
        if settings.quantize == "int8":
            quantize_base(model)
        if trainable == "lora":
            add_lora(model, lora, nnx.Rngs(0))
        return model

    platform = mesh.devices.flat[0].platform

    model = nnx.eval_shape(make)
    graphdef, params, frozen = split_model(model, trainable)
    optimizer = adamw(
        settings.learning_rate, weight_decay=settings.weight_decay, clip_norm=settings.clip_norm
    )
    opt_state = jax.eval_shape(optimizer.init, params)
    params, opt_state, frozen = (
        on_mesh(tree, param_shardings(tree, mesh)) for tree in (params, opt_state, frozen)
    )
    adapters = count_parameters(model).get("adapters", 0)
    return AbstractRun(config, mesh, graphdef, TrainState(params, opt_state), frozen, optimizer, adapters)


def image_window(config: Qwen3VLConfig, max_pixels: int) -> int:
    """Patches of an image of the largest size."""
    vision = config.vision
    return round_up(max_pixels // vision.patch_size**2, vision.merge_unit)


def abstract_inputs(run: AbstractRun, shape: RowShape) -> ModelInputs:
    """Makes the inputs of rows of this shape."""
    rows, width, count = shape.rows, shape.width, shape.rows * shape.images * shape.window
    vision = VisionInputs(
        patches=run.rows((count, run.config.vision.patch_dim), jnp.float32),
        segment_ids=run.rows((count,), jnp.int32),
        pos_index=run.rows((count, 4), jnp.int32),
        pos_weight=run.rows((count, 4), jnp.float32),
        hw=run.rows((count, 2), jnp.int32),
        window=shape.window,
    )
    return ModelInputs(
        tokens=run.rows((rows, width), jnp.int32),
        positions=run.rows((3, rows, width), jnp.int32, axis=1),
        until=run.rows((rows, width), jnp.int32),
        image_index=run.rows((rows, width), jnp.int32),
        vision=vision if count else None,
        tables=_abstract_tables(run, rows, width) if run.config.text.delta else None,
    )


def _abstract_tables(run: AbstractRun, rows: int, width: int) -> TreeTables:
    """Tables of rows of prompts with responses, which have one fork on each path."""
    chunks = -(-width // CHUNK)
    shapes = (rows, width), (rows, chunks * CHUNK), (rows, chunks, 1)
    return TreeTables(*(run.rows(shape, jnp.int32) for shape in shapes))


def abstract_batch(run: AbstractRun, shape: RowShape, names: Sequence[str]) -> Batch:
    """Makes a micro-batch of rows of this shape, whose tokens have values of these names."""
    tokens = (shape.rows, shape.width)
    index, ids, branch = (run.rows(tokens, jnp.int32) for _ in range(3))
    values = {name: run.rows(tokens, jnp.float32) for name in names}
    return Batch(abstract_inputs(run, shape), ScoredTokens(index, ids, branch, values))


# Values that libtpu otherwise asks the metadata server of a TPU host for; these serve every slice type.
_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


# GiB of a device's memory that programs may use, according to the compiler's out-of-memory message. The
# compiler sees the two cores of a v4 chip and the two halves of a TPU7x as devices.
HBM_GIB = {"v4": 15.25, "v5e": 15.75, "v5p": 95.73, "v6e": 31.24, "tpu7x": 94.74}


def slice_mesh(topology: str, data: int = 1, fsdp: int = -1, tensor: int = 1) -> Mesh:
    """Makes a mesh over the devices of a slice such as "v5p:2x2x2"; one size may be -1, for those left.

    Raises:
      UserError: there is no such slice, libtpu is missing, or the sizes do not multiply to its devices.
    """
    if topology.partition(":")[0] not in HBM_GIB:
        raise UserError(f"--topology={topology}: give one of {', '.join(HBM_GIB)} and a shape, as v5p:2x2x2")
    if importlib.util.find_spec("libtpu") is None:
        raise UserError("the TPU compiler is missing: pip install libtpu (it needs no TPU)")
    # Only the compiler is needed, and a TPU of this machine may be in use by another process.
    jax.config.update("jax_platforms", "cpu")
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    except jax.errors.JaxRuntimeError as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"--topology={topology}: there is no such slice ({reason})") from error
    # Where training would choose `tensor` by its data (0), there are none here.
    sizes = [data, fsdp, tensor or 1]
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = len(devices) // math.prod(size for size in sizes if size != -1)
    if math.prod(sizes) != len(devices):
        raise UserError(
            f"the mesh data={data}, fsdp={fsdp}, tensor={tensor} does not fit the {len(devices)} devices of "
            f"{topology}: change config.mesh so that its sizes multiply to that (one may be -1)"
        )
    # Devices in the order of the torus, so that the innermost axis, which has the most traffic, joins
    # neighbours.
    return Mesh(np.asarray(devices).reshape(sizes), AXES, axis_types=(AxisType.Auto,) * len(AXES))
