"""Hugging Face checkpoints in and out: the names, shapes and files of the released models."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from flax import nnx
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.layers import LoRAParam
from rmsweb_jax.qwen3_vl.model import Qwen3VL

_LEAF_NAMES = {"kernel": "weight", "scale": "weight", "embedding": "weight", "bias": "bias"}
_INDEX_FILE = "model.safetensors.index.json"
_SINGLE_FILE = "model.safetensors"


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


def _base_state(model: Qwen3VL) -> dict[tuple[Any, ...], nnx.Variable]:
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
    for path, variable in _base_state(model).items():
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


def _to_model(value: np.ndarray, tensor: HFTensor) -> np.ndarray:
    return value.reshape(value.shape[0], -1).T if tensor.transposed else value


def assign_tensors(model: Qwen3VL, read: Callable[[str], np.ndarray], dtype: Any) -> None:
    """Fills the model's base parameters from `read(name)`, casting to `dtype`."""
    grouped: dict[tuple[Any, ...], list[HFTensor]] = {}
    for tensor in hf_tensors(model):
        grouped.setdefault(tensor.path, []).append(tensor)
    variables = _base_state(model)
    for path, tensors in grouped.items():
        parts = [_to_model(read(tensor.name), tensor).astype(dtype) for tensor in tensors]
        variables[path].set_value(jnp.asarray(parts[0] if tensors[0].layer is None else np.stack(parts)))


def export_tensors(model: Qwen3VL, dtype: Any) -> dict[str, np.ndarray]:
    """The base weights under their Hugging Face names and shapes, layers un-stacked."""
    variables = _base_state(model)
    values = {path: np.asarray(variable.get_value()) for path, variable in variables.items()}
    out = {}
    for tensor in hf_tensors(model):
        value = values[tensor.path] if tensor.layer is None else values[tensor.path][tensor.layer]
        value = value.T.reshape(tensor.shape) if tensor.transposed else value
        out[tensor.name] = np.ascontiguousarray(value.astype(dtype))
    return out


def _shard_files(folder: Path) -> dict[str, Path]:
    """File of every tensor in a checkpoint folder."""
    index = folder / _INDEX_FILE
    if index.exists():
        try:
            return {name: folder / file for name, file in json.loads(index.read_text())["weight_map"].items()}
        except (json.JSONDecodeError, KeyError, AttributeError) as error:
            raise UserError(
                f"{index} is not a safetensors index ({error}); download the checkpoint again"
            ) from error
    single = folder / _SINGLE_FILE
    if not single.exists():
        raise UserError(f"{folder} has neither {_SINGLE_FILE} nor {_INDEX_FILE}; give a model folder")
    with _open(single) as file:
        return dict.fromkeys(file.keys(), single)


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="numpy")
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"cannot read the weights {path}: {error}; copy or download the file again"
        ) from error


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _check(model: Qwen3VL, folder: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    expected = {tensor.name: tensor.shape for tensor in hf_tensors(model)}
    # A tied checkpoint may carry the head as a copy of the embedding.
    extra_allowed = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    missing = sorted(set(expected) - set(shapes))
    extra = sorted(set(shapes) - set(expected) - extra_allowed)
    misshapen = [
        f"{name} {list(shapes[name])} instead of {list(shape)}"
        for name, shape in expected.items()
        if name in shapes and shapes[name] != shape
    ]
    for kind, names in (("missing", missing), ("unknown", extra), ("misshapen", misshapen)):
        if names:
            raise UserError(f"{folder}: {kind} tensors {_listed(names)}; take weights that fit config.json")


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
    folder: str | os.PathLike[str], dtype: Any = jnp.float32, *, param_dtype: Any = None, remat: str = "none"
) -> Qwen3VL:
    """Reads `config.json` and the safetensors of a model folder.

    Args:
      dtype: of the computation, and of the stored weights unless `param_dtype` says otherwise.

    Raises:
      UserError: files are missing or broken, or tensors are missing, unknown or misshapen (named).
    """
    folder = Path(folder)
    config = Qwen3VLConfig.from_hf(folder / "config.json")
    param_dtype = dtype if param_dtype is None else param_dtype
    model = nnx.eval_shape(
        lambda: Qwen3VL(config, rngs=nnx.Rngs(0), dtype=dtype, param_dtype=param_dtype, remat=remat)
    )
    files = _shard_files(folder)
    handles = {path: _open(path) for path in set(files.values())}
    try:
        shapes = {name: tuple(handles[path].get_slice(name).get_shape()) for name, path in files.items()}
        _check(model, folder, shapes)
        assign_tensors(model, lambda name: handles[files[name]].get_tensor(name), param_dtype)
    except SafetensorError as error:
        raise UserError(f"{folder}: {error}; download the checkpoint again") from error
    return model


def _storage_dtype(dtype: Any) -> Any:
    return ml_dtypes.bfloat16 if jnp.dtype(dtype) == jnp.bfloat16 else np.dtype(dtype)


def save_model(model: Qwen3VL, folder: str | os.PathLike[str], dtype: Any = jnp.float32) -> None:
    """Writes `config.json` and `model.safetensors`; each appears whole or not at all.

    Adapters are not written: merge them first (`merge_lora`), or export them (`to_peft_tensors`).
    """
    folder = Path(folder)
    tensors = export_tensors(model, _storage_dtype(dtype))
    config = {**model.config.to_hf(), "dtype": jnp.dtype(dtype).name}
    text = json.dumps(config, indent=2) + "\n"
    _write(folder / _SINGLE_FILE, lambda path: save_file(tensors, path, metadata={"format": "pt"}))
    _write(folder / "config.json", lambda path: path.write_text(text))


def _write(path: Path, write: Callable[[Path], Any]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot write {path}: {error}; free space or choose another folder") from error
    finally:
        temporary.unlink(missing_ok=True)
