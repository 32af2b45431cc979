"""Reads and writes Hugging Face checkpoints, with the names, shapes and files of the released models."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.backends import choose_attention
from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.layers import LoRAParam
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.sharding import check_mesh, param_spec
from rmsweb_jax.records.files import make_folder, sync_folder
from rmsweb_jax.storage import StorePath, fetch_folder, parse_path

INDEX_FILE, SINGLE_FILE = "model.safetensors.index.json", "model.safetensors"
# That of PEFT.
ADAPTER_FILE = "adapter_config.json"
MAX_FILE_BYTES = 5 * 10**9
_AGAIN = "copy or download the model again"
# Others are quantized: without their scales they are nonsense.
_DTYPES = ("F32", "F16", "BF16")
# A model's name on the Hugging Face Hub.
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_HEAD, _EMBEDDING = "lm_head.weight", "model.language_model.embed_tokens.weight"
# Layers of Qwen3.5 that draft tokens: they are not computed, and exports carry them.
_DRAFTS = "mtp."
# Rows of the head that are compared at once.
_HEAD_ROWS = 4096
_LEAF_NAMES = {"kernel": "weight", "scale": "weight", "embedding": "weight"}


class HFTensor(NamedTuple):
    """A tensor of a checkpoint, and the parameter of the model that holds it.

    Attributes:
      name, shape: those in the checkpoint.
      path: path of the parameter in the model's state.
      layer: index into the leading axis of a stacked parameter, or None.
      transposed: True where the checkpoint has [outputs, inputs(...)] and the model [inputs, outputs].
    """

    name: str
    shape: tuple[int, ...]
    path: tuple[Any, ...]
    layer: int | None
    transposed: bool


def base_state(model: Qwen3VL) -> dict[tuple[Any, ...], nnx.Variable]:
    """Returns the parameters without adapters, by path."""
    state = nnx.state(model, nnx.All(nnx.Param, nnx.Not(LoRAParam)))
    return dict(nnx.to_flat_state(state))


def _hf_name(path: tuple[Any, ...], layer: int) -> str:
    *parts, leaf = path
    names = [str(part) for part in parts]
    # Checkpoints have one list of layers; the model splits off the first ones and stacks the others, of which
    # those of a kind are together.
    if names[:2] == ["language_model", "first_layers"]:
        names[1] = "layers"
    elif names[:2] == ["language_model", "layers"]:
        names[2] = str(layer)
    elif names[:2] == ["visual", "blocks"]:
        names.insert(2, str(layer))
    prefix = "" if names[0] == "lm_head" else "model."
    return f"{prefix}{'.'.join(names)}.{_LEAF_NAMES.get(str(leaf), leaf)}"


def hf_tensors(model: Qwen3VL) -> Iterator[HFTensor]:
    """Yields every tensor of the model's checkpoint; also of abstract models."""
    config = model.config
    vision, kinds = config.vision, len(config.text.layer_types)
    # The patch embedding is stored as a 3-D convolution's kernel.
    conv = (
        vision.hidden_size,
        vision.in_channels,
        vision.temporal_patch_size,
        vision.patch_size,
        vision.patch_size,
    )
    for path, variable in base_state(model).items():
        shape = tuple(variable.get_value().shape)
        # torch stores [outputs, inputs]; x @ kernel needs [inputs, outputs].
        transposed = path[-1] == "kernel"
        in_decoder = path[:2] == ("language_model", "layers")
        stacked = in_decoder or path[:2] == ("visual", "blocks")
        first, step = (config.num_deepstack + path[2], kinds) if in_decoder else (0, 1)
        inner = shape[1:] if stacked else shape
        if path[:2] == ("visual", "patch_embed") and transposed:
            inner = conv
        elif "conv1d" in path:
            inner = (inner[1], 1, inner[0])
        elif transposed:
            inner = inner[::-1]
        for index in range(shape[0]) if stacked else (None,):
            name = _hf_name(path, first + step * (index or 0))
            yield HFTensor(name, inner, path, index, transposed)


@contextlib.contextmanager
def file_errors(path: Path, remedy: str) -> Iterator[None]:
    """Makes one line of the errors of files and of safetensors, which do not always name the file."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: {error}; {remedy}") from error


def read_shapes(path: Path, remedy: str) -> dict[str, tuple[int, ...]]:
    """Reads the shapes of the tensors in a safetensors file, and checks that it is whole.

    Raises:
      UserError: it is missing or damaged, or its tensors are quantized.
    """
    shapes = {}
    with file_errors(path, remedy), safe_open(path, "numpy") as file:
        for name in file.keys():  # noqa: SIM118 - no dict
            part = file.get_slice(name)
            if part.get_dtype() not in _DTYPES:
                raise UserError(f"{path}: {name} is {part.get_dtype()}; take {', '.join(_DTYPES)}")
            shapes[name] = tuple(part.get_shape())
    return shapes


class TensorFolder:
    """The weights of a model folder: one file, or shards with an index.

    Attributes:
      shapes: shape of each tensor by name.
      files: the file that holds it.

    Raises:
      UserError: a file is missing or damaged, or its tensors are quantized.
    """

    def __init__(self, folder: Path):
        self.folder, index = folder, folder / INDEX_FILE
        self.files: dict[str, Path] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        paths = [folder / SINGLE_FILE]
        try:
            if index.exists():
                names = json.loads(index.read_bytes())["weight_map"].values()
                paths = sorted({folder / name for name in names})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{index} is not a safetensors index ({error}); {_AGAIN}") from error
        for path in paths:
            shapes = read_shapes(path, _AGAIN)
            self.files |= dict.fromkeys(shapes, path)
            self.shapes |= shapes

    def read(self, name: str, index: tuple[slice, ...] = ()) -> np.ndarray:
        """Reads a tensor, or the part of it at `index`, in its stored dtype."""
        # Opened for this call only: mapped pages count as memory of the process.
        path = self.files[name]
        with file_errors(path, _AGAIN), safe_open(path, "numpy") as file:
            return file.get_slice(name)[index] if index else file.get_tensor(name)


def _indices(index: tuple[slice, ...], shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Replaces None in slices by starts and ends."""
    return tuple(slice(*part.indices(size)[:2]) for part, size in zip(index, shape, strict=True))


def _read_part(folder: TensorFolder, tensor: HFTensor, index: tuple[slice, ...]) -> np.ndarray:
    """Reads the part of a parameter at `index` (without a layer axis) from its tensor in the checkpoint."""
    if not tensor.transposed:
        return folder.read(tensor.name, index)
    into, out = index
    if len(tensor.shape) == 2:
        return folder.read(tensor.name, (out, into)).T
    # A convolution in the checkpoint: its kernel axes are our inputs.
    flat = folder.read(tensor.name, (out,))
    return flat.reshape(len(flat), -1)[:, into].T


def _read_shard(
    folder: TensorFolder, tensors: list[HFTensor], index: tuple[slice, ...], dtype: Any
) -> np.ndarray:
    """Reads one device's shard of a parameter; stacked layers one by one into one buffer."""
    out = np.empty([part.stop - part.start for part in index], dtype)
    if tensors[0].layer is None:
        out[...] = _read_part(folder, tensors[0], index)
        return out
    for layer, tensor in zip(out, tensors[index[0]], strict=True):
        layer[...] = _read_part(folder, tensor, index[1:])
    return out


def _load_param(
    folder: TensorFolder,
    tensors: list[HFTensor],
    shape: tuple[int, ...],
    dtype: Any,
    sharding: NamedSharding | None,
) -> jax.Array:
    """Loads a parameter to its devices; this process reads its own shards, each once, and keeps no copy."""
    if sharding is None:
        whole = tuple(slice(0, size) for size in shape)
        # Waits, so that the host's copy is freed before the next parameter is read.
        return jax.block_until_ready(jax.device_put(_read_shard(folder, tensors, whole, dtype)))
    # Devices that hold the same shard share one read of it.
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


def _check(model: Qwen3VL, folder: TensorFolder) -> None:
    expected, found = {tensor.name: tensor.shape for tensor in hf_tensors(model)}, dict(folder.shapes)
    # A tied checkpoint may carry the head as a copy of the embedding.
    copied_head = model.config.tie_word_embeddings and found.pop(_HEAD, None)
    if model.config.text.delta is not None:
        found = {name: shape for name, shape in found.items() if not name.startswith(_DRAFTS)}
    both = expected.keys() & found.keys()
    problems = {
        "missing": expected.keys() - both,
        "unknown": found.keys() - both,
        "misshapen": {name for name in both if found[name] != expected[name]},
    }
    for kind, names in problems.items():
        if names:
            name = min(names)
            shapes = f" {list(found[name])} instead of {list(expected[name])}" if name in both else ""
            raise UserError(
                f"{folder.folder}: {len(names)} {kind} tensors, such as {name}{shapes}; take weights that "
                "fit config.json"
            )
    if copied_head:
        _check_copied_head(folder)


def _check_copied_head(folder: TensorFolder) -> None:
    """Refuses a head that differs from the embedding, since a tied model has no place for it.

    transformers drops such a head without a word, and the model then is not the one that was trained.
    """
    shape = folder.shapes[_HEAD]
    equal = shape == folder.shapes[_EMBEDDING]
    # In parts, as the whole takes gigabytes.
    for start in range(0, shape[0] if equal else 0, _HEAD_ROWS):
        rows = (slice(start, min(start + _HEAD_ROWS, shape[0])),)
        equal = equal and np.array_equal(folder.read(_HEAD, rows), folder.read(_EMBEDDING, rows))
    if not equal:
        raise UserError(
            f"{folder.files[_HEAD]}: {_HEAD} differs from {_EMBEDDING}, although config.json says "
            "tie_word_embeddings; set that to false, or delete the tensor if it is not meant"
        )


def resolve_model(name: str | os.PathLike[str], file: str = "config.json") -> Path:
    """Finds the folder of a model: the packaged one ("tiny_base"), a path, or one of the Hugging Face Hub.

    A Hub model (`org/name`) or a folder in a bucket is downloaded, unless the local cache has it already.

    Args:
      file: what the folder must hold: `config.json`, or `ADAPTER_FILE` for adapters.

    Raises:
      UserError: it is not there, nor on the Hub; of adapters in place of a model it says so.
    """
    path = parse_path(str(name), "model")
    packaged = Path(str(resources.files("rmsweb_jax"))) / "tiny_base"
    folder = path if isinstance(path, StorePath) else packaged if str(name) == "tiny_base" else Path(name)
    problem = ""
    # A folder that does not exist in one that does is a mistyped path.
    if isinstance(folder, Path) and _HUB_NAME.fullmatch(str(name)) and not folder.parent.exists():
        try:
            folder = _download(str(name))
        except (OSError, ValueError) as error:
            problem = f", nor on the Hugging Face Hub ({str(error).splitlines()[0]})"
    if (folder / file).exists():
        return fetch_folder(folder) if isinstance(folder, StorePath) else folder
    if (folder / ADAPTER_FILE).exists():
        try:
            base = json.loads((folder / ADAPTER_FILE).read_bytes())["base_model_name_or_path"]
        except (ValueError, LookupError, TypeError):
            base = None
        raise UserError(
            f"{name}: this is an adapter of {base or 'a model that it does not name'}: merge it first, by "
            f"python -m experiments.merge --adapter={name} --output=FOLDER (rmsweb_jax.merge_adapters)"
        )
    kind, give = "model", "a model folder, tiny_base or the name of a Hub model (org/name)"
    if file == ADAPTER_FILE:
        kind, give = "adapter", "a PEFT folder or the name of one on the Hub (org/name)"
    raise UserError(f"no {kind} at {folder} ({file} is missing){problem}: give {give}")


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download

    get = functools.partial(snapshot_download, name, allow_patterns=["*.json", "*.safetensors"])
    # The cache first: a run without network access must find the model that it has already.
    try:
        return Path(get(local_files_only=True))
    except OSError:
        return Path(get())


def load_model(
    folder: str | os.PathLike[str],
    dtype: Any = jnp.float32,
    *,
    param_dtype: Any = None,
    remat: str = "none",
    mesh: Mesh | None = None,
    attention: str = "auto",
    attention_block: int = 0,
) -> Qwen3VL:
    """Reads `config.json` and the safetensors of a model, a parameter at a time.

    Host memory holds one parameter's shards at a time; each process reads those of its devices only.

    Args:
      folder: a model folder, or a name that `resolve_model` accepts.
      dtype: dtype of the computation, and of the stored weights unless `param_dtype` is given.
      mesh: the weights are split over it as `param_spec` says, and the attention runs on it; None loads to
        the default device.
      attention, attention_block: see `choose_attention`.

    Raises:
      UserError: a file is missing or damaged, a tensor is missing, unknown or misshapen (the message names
        it), or the mesh does not divide the model.
    """
    folder = resolve_model(folder)
    config = Qwen3VLConfig.from_hf(folder / "config.json")
    if mesh is not None:
        check_mesh(config, mesh)
    param_dtype = dtype if param_dtype is None else param_dtype
    # Shapes only: random weights would take the memory that the loaded ones need.
    model = nnx.eval_shape(
        lambda: Qwen3VL(config, rngs=nnx.Rngs(0), dtype=dtype, param_dtype=param_dtype, remat=remat)
    )
    weights = TensorFolder(folder)
    _check(model, weights)
    variables = base_state(model)
    for path, tensors in itertools.groupby(hf_tensors(model), lambda tensor: tensor.path):
        shape = tuple(variables[path].get_value().shape)
        name = ".".join(map(str, path))
        sharding = mesh and NamedSharding(mesh, param_spec(variables[path], mesh, name))
        dtype = variables[path].get_value().dtype
        variables[path].set_value(_load_param(weights, list(tensors), shape, dtype, sharding))
    if any(name.startswith(_DRAFTS) for name in weights.shapes):
        model.carried = str(folder)
    model.attention = choose_attention(
        config.text.head_dim, dtype, mesh, backend=attention, block=attention_block
    )
    return model


@jax.jit
def _take_layer(value: jax.Array, layer: int) -> jax.Array:
    return jax.lax.dynamic_index_in_dim(value, layer, keepdims=False)


def gather(value: jax.Array, layer: int | None = None) -> np.ndarray:
    """Copies an array, or one layer of a stacked one, to this host from all devices.

    With several processes all of them must call this, in the same order.
    """
    # By a compiled program with the layer as an argument: one compilation for all layers.
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
    """Writes `config.json` and the weights, as one file or as shards with an index.

    They take the place of those in the folder when all are written. Host memory holds one file's tensors.
    With several processes all of them must call this; the first one writes, and all return when it has.
    Adapters are not written: merge them first (`merge_lora`), or export them (`lora.save_adapters`).
    What the model was loaded with and does not compute is copied (`Qwen3VL.carried`).

    Args:
      max_file_bytes: largest file, unless a single tensor is larger.

    Raises:
      UserError: a file cannot be written; the folder is as before.
    """
    variables = base_state(model)
    tensors = {tensor.name: tensor for tensor in hf_tensors(model)}

    carried = TensorFolder(Path(model.carried)) if model.carried else None

    def read(name: str) -> np.ndarray:
        if carried is not None and name not in tensors:
            return carried.read(name)
        tensor = tensors[name]
        value = gather(variables[tensor.path].get_value(), tensor.layer)
        return value.T.reshape(tensor.shape) if tensor.transposed else value

    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    if carried is not None:
        shapes |= {name: shape for name, shape in carried.shapes.items() if name.startswith(_DRAFTS)}
    write_folder(Path(folder), model.config, shapes, read, np.dtype(dtype), max_file_bytes)


def write_folder(
    folder: Path,
    config: Qwen3VLConfig,
    shapes: Mapping[str, tuple[int, ...]],
    read: Callable[[str], np.ndarray],
    dtype: np.dtype,
    max_file_bytes: int = MAX_FILE_BYTES,
) -> None:
    """Writes a model folder from tensors by name, see `save_model`.

    Args:
      read: returns a tensor, which becomes `dtype`; called in the same order by all processes.
    """
    from huggingface_hub import split_state_dict_into_shards_factory

    plan = split_state_dict_into_shards_factory(
        dict(shapes),
        get_storage_size=lambda shape: math.prod(shape) * dtype.itemsize,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=max_file_bytes,
    )
    new, texts = folder / ".new", {"config.json": {**config.to_hf(), "dtype": dtype.name}}
    if plan.is_sharded:
        texts[INDEX_FILE] = {"metadata": plan.metadata, "weight_map": plan.tensor_to_filename}
    first = jax.process_index() == 0
    with file_errors(folder, "free space or choose another folder"), contextlib.ExitStack() as stack:
        if first:
            shutil.rmtree(new, ignore_errors=True)  # Left by a killed run.
            make_folder(new)
            stack.callback(shutil.rmtree, new, ignore_errors=True)
        for file, names in plan.filename_to_tensors.items():
            tensors = ((name, np.ascontiguousarray(read(name), dtype)) for name in names)
            if first:
                save_file(dict(tensors), new / file, {"format": "pt"})
            else:
                for _ in tensors:  # To read a tensor gathers it from all processes.
                    pass
        if first:
            for name, content in texts.items():
                (new / name).write_text(json.dumps(content, indent=2) + "\n")
            _replace(folder, new)
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("write_folder")


def _replace(folder: Path, new: Path) -> None:
    """Moves what is in `new` to `folder`: a reader finds the old weights, the new ones, or none."""
    # The index last: without it a reader finds no shards.
    paths = sorted(new.iterdir(), key=lambda path: path.name == INDEX_FILE)
    for path in paths:
        with open(path, "rb+") as file:
            os.fsync(file.fileno())  # Otherwise a power cut may leave the new name with an empty file.
    # Of another number of shards, they would stay with the new ones.
    for old in (folder / INDEX_FILE, *folder.glob("model*.safetensors")):
        old.unlink(missing_ok=True)
    for path in paths:
        os.replace(path, folder / path.name)
    sync_folder(folder)
