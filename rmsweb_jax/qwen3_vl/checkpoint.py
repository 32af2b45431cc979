"""Hugging Face checkpoints in and out: the names, shapes and files of the released models."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from importlib import resources
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding

from rmsweb_jax.errors import UserError
from rmsweb_jax.mesh import check_mesh, param_spec
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.hf_names import HFTensor, base_state, hf_tensors
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.tensor_files import (
    MAX_FILE_BYTES,
    TensorFolder,
    TensorInfo,
    plan_files,
    write_folder,
    write_text,
)


def _indices(index: tuple[slice, ...], shape: tuple[int, ...]) -> tuple[slice, ...]:
    """With starts and ends instead of None."""
    return tuple(slice(*part.indices(size)[:2]) for part, size in zip(index, shape, strict=True))


def _read_part(folder: TensorFolder, tensor: HFTensor, index: tuple[slice, ...]) -> np.ndarray:
    """What a checkpoint's tensor holds of its parameter at `index` (without a layer axis)."""
    if not tensor.transposed:
        return folder.read(tensor.name, index)
    into, out = index
    if len(tensor.shape) == 2:
        return folder.read(tensor.name, (out, into)).T
    flat = folder.read(tensor.name, (out,))
    return flat.reshape(len(flat), -1)[:, into].T


def _read_shard(
    folder: TensorFolder, tensors: list[HFTensor], index: tuple[slice, ...], dtype: Any
) -> np.ndarray:
    """One device's share of a parameter: stacked layers are read one by one into one buffer."""
    out = np.empty([part.stop - part.start for part in index], dtype)
    if tensors[0].layer is None:
        out[...] = _read_part(folder, tensors[0], index)
        return out
    for place, tensor in zip(out, tensors[index[0]], strict=True):
        place[...] = _read_part(folder, tensor, index[1:])
    return out


def _load_param(
    folder: TensorFolder,
    tensors: list[HFTensor],
    shape: tuple[int, ...],
    dtype: Any,
    sharding: NamedSharding | None,
) -> jax.Array:
    """A parameter on its devices; this process reads its own shards, each once, and keeps none."""
    if sharding is None:
        whole = tuple(slice(0, size) for size in shape)
        return jax.block_until_ready(jax.device_put(_read_shard(folder, tensors, whole, dtype)))
    devices: dict[tuple[tuple[int, int], ...], list[Any]] = {}
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        assert index is not None
        key = tuple((part.start, part.stop) for part in _indices(index, shape))
        devices.setdefault(key, []).append(device)
    arrays = []
    for key, holders in devices.items():
        shard = _read_shard(folder, tensors, tuple(slice(*part) for part in key), dtype)
        arrays += [jax.device_put(shard, device) for device in holders]
    return jax.block_until_ready(jax.make_array_from_single_device_arrays(shape, sharding, arrays))


def _by_path(tensors: Iterable[HFTensor]) -> dict[tuple[Any, ...], list[HFTensor]]:
    grouped: dict[tuple[Any, ...], list[HFTensor]] = {}
    for tensor in tensors:
        grouped.setdefault(tensor.path, []).append(tensor)
    return grouped


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _check(model: Qwen3VL, folder: TensorFolder) -> None:
    expected = {tensor.name: tensor.shape for tensor in hf_tensors(model)}
    shapes = folder.shapes
    # A tied checkpoint may carry the head as a copy of the embedding.
    extra_allowed = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    missing = sorted(set(expected) - set(shapes))
    extra = sorted(set(shapes) - set(expected) - extra_allowed)
    misshapen = [
        f"{name} {list(shapes[name])} instead of {list(shape)} in {folder.files[name].name}"
        for name, shape in expected.items()
        if name in shapes and shapes[name] != shape
    ]
    for kind, names in (("missing", missing), ("unknown", extra), ("misshapen", misshapen)):
        if names:
            files = {folder.files[name].name for name in names if name in folder.files}
            where = f" (in {_listed(sorted(files))})" if files else ""
            raise UserError(
                f"{folder.folder}: {kind} tensors {_listed(names)}{where}; take weights that fit config.json"
            )


def resolve_model(name: str | os.PathLike[str]) -> Path:
    """The folder of a model: a packaged one by name ("tiny_base"), or a folder.

    Raises:
      UserError: there is no `config.json` there.
    """
    packaged = Path(str(resources.files("rmsweb_jax"))) / "tiny_base"
    folder = packaged if str(name) == "tiny_base" else Path(name)
    if not (folder / "config.json").exists():
        raise UserError(f"no model at {folder} (config.json is missing); give a model folder or tiny_base")
    return folder


def load_model(
    folder: str | os.PathLike[str],
    dtype: Any = jnp.float32,
    *,
    param_dtype: Any = None,
    remat: str = "none",
    mesh: Mesh | None = None,
) -> Qwen3VL:
    """Reads `config.json` and the safetensors of a model folder, a parameter at a time.

    Host memory holds the share of one parameter beside what is loaded already; of several processes each
    reads the shards of its devices.

    Args:
      dtype: of the computation, and of the stored weights unless `param_dtype` says otherwise.
      mesh: where the weights go, as `param_shardings` says; None: the default device.

    Raises:
      UserError: files are missing or broken, tensors are missing, unknown or misshapen (named), or the mesh
        does not divide the model.
    """
    folder = Path(folder)
    config = Qwen3VLConfig.from_hf(folder / "config.json")
    if mesh is not None:
        check_mesh(config, mesh)
    param_dtype = dtype if param_dtype is None else param_dtype
    model = nnx.eval_shape(
        lambda: Qwen3VL(config, rngs=nnx.Rngs(0), dtype=dtype, param_dtype=param_dtype, remat=remat)
    )
    weights = TensorFolder(folder)
    _check(model, weights)
    variables = base_state(model)
    for path, tensors in _by_path(hf_tensors(model)).items():
        shape = tuple(variables[path].get_value().shape)
        names = [str(part) for part in path]
        sharding = None if mesh is None else NamedSharding(mesh, param_spec(names, shape, mesh))
        variables[path].set_value(_load_param(weights, tensors, shape, param_dtype, sharding))
    return model


@jax.jit
def _take_layer(value: jax.Array, layer: int) -> jax.Array:
    return jax.lax.dynamic_index_in_dim(value, layer, keepdims=False)


def gather(value: jax.Array, layer: int | None = None) -> np.ndarray:
    """An array, or one layer of a stacked one, on this host from wherever its shards lie.

    With several processes all of them must call this, in the same order.
    """
    part = value if layer is None else _take_layer(value, layer)
    if isinstance(part, jax.Array) and not part.is_fully_addressable:
        part = multihost_utils.process_allgather(part, tiled=True)
    return np.asarray(part)


def save_model(
    model: Qwen3VL,
    folder: str | os.PathLike[str],
    dtype: Any = jnp.float32,
    *,
    max_file_bytes: int = MAX_FILE_BYTES,
) -> None:
    """Writes `config.json` and the weights: one file, or shards and their index when that would be too large.

    Tensors are gathered and written one by one; each file appears whole or not at all. With several
    processes all of them must call this; the first one writes, and all return when it has.
    Adapters are not written: merge them first (`merge_lora`), or export them (`peft.save_adapters`).

    Args:
      max_file_bytes: largest file, unless a single tensor is larger.

    Raises:
      UserError: a file cannot be written.
    """
    folder, storage = Path(folder), np.dtype(dtype)
    variables = base_state(model)
    tensors = {tensor.name: tensor for tensor in hf_tensors(model)}

    def read(name: str) -> np.ndarray:
        tensor = tensors[name]
        value = gather(variables[tensor.path].get_value(), tensor.layer)
        value = value.T.reshape(tensor.shape) if tensor.transposed else value
        return value.astype(storage)

    plan = plan_files(
        (TensorInfo(name, tensor.shape, storage) for name, tensor in tensors.items()), max_file_bytes
    )

    def write() -> None:
        write_config(model.config, folder, storage)
        write_folder(folder, plan, read)

    write_from_first_process(read, tensors, write)


def write_config(config: Qwen3VLConfig, folder: Path, dtype: np.dtype) -> None:
    """Writes the `config.json` of a model folder whose weights are stored as `dtype`."""
    content = {**config.to_hf(), "dtype": dtype.name}
    write_text(folder / "config.json", json.dumps(content, indent=2) + "\n")


def write_from_first_process(
    read: Callable[[str], np.ndarray], names: Iterable[str], write: Callable[[], None]
) -> None:
    """Runs `write`, which reads `names` in order, in the first process; the others take part in each read."""
    if jax.process_index() == 0:
        write()
    else:
        for name in names:
            read(name)
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("write_from_first_process")
