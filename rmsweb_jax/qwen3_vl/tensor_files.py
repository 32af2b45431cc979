"""Reads and writes folders of safetensors files a tensor at a time, so that memory holds one of them."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import sync_folder

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
MAX_FILE_BYTES = 5 * 10**9

_DTYPES = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16)}
_DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_AGAIN = "copy or download the file again"


class TensorInfo(NamedTuple):
    """Name, shape and dtype of a tensor to write."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class TensorFolder:
    """The weights of a model folder: one file, or shards with an index.

    Attributes:
      shapes: shape of each tensor by name.
      files: the file that holds it.

    Raises:
      UserError: a file is missing, truncated or does not match the index; the message names file and tensor.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        index = folder / INDEX_FILE
        if index.exists():
            self.files = _read_index(index)
        elif (folder / SINGLE_FILE).exists():
            self.files = {}
        else:
            raise UserError(f"{folder} has neither {SINGLE_FILE} nor {INDEX_FILE}; give a model folder")
        paths = sorted(set(self.files.values())) or [folder / SINGLE_FILE]
        found = {path: read_header(path) for path in paths}
        for name, path in self.files.items():
            if name not in found[path]:
                raise UserError(f"{path}: {name} is not in this file, but {INDEX_FILE} says so; {_AGAIN}")
        self.files = {name: path for path, header in found.items() for name in header}
        self.shapes = {name: shape for header in found.values() for name, shape in header.items()}

    def read(self, name: str, index: tuple[slice, ...] = ()) -> np.ndarray:
        """Reads a tensor, or the part of it at `index`, in its stored dtype."""
        # Opened for this call only: mapped pages count as memory of the process.
        path = self.files[name]
        try:
            with safe_open(path, framework="numpy") as file:
                return file.get_slice(name)[index] if index else file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise UserError(f"{path}: cannot read {name} ({error}); {_AGAIN}") from error


def _read_index(index: Path) -> dict[str, Path]:
    try:
        weight_map = json.loads(index.read_text())["weight_map"]
        files = {str(name): index.parent / str(file) for name, file in weight_map.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{index} is not a safetensors index ({error}); {_AGAIN}") from error
    if not files:
        raise UserError(f"{index} names no tensors; {_AGAIN}")
    for name, path in files.items():
        if not path.exists():
            raise UserError(f"{path} is missing: {INDEX_FILE} says that it holds {name}; {_AGAIN}")
    return files


def read_header(path: Path) -> dict[str, tuple[int, ...]]:
    """Reads the shapes of the tensors in a safetensors file.

    Raises:
      UserError: the file is truncated or not a safetensors file, or has tensors of an unsupported dtype.
    """
    try:
        total = path.stat().st_size
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > total - 8:
                raise UserError(f"{path} ends within its header, before any tensor; {_AGAIN}")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        entries = {
            name: (entry["dtype"], entry["shape"], entry["data_offsets"][1]) for name, entry in header.items()
        }
    except (OSError, struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not a safetensors file ({error}); {_AGAIN}") from error
    for name, (dtype, _, end) in entries.items():
        if dtype not in _DTYPES:
            raise UserError(f"{path}: {name} is stored as {dtype}; take weights in {', '.join(_DTYPES)}")
        if 8 + length + end > total:
            raise UserError(f"{path} ends within {name} ({total} of {8 + length + end} bytes); {_AGAIN}")
    return {name: tuple(shape) for name, (_, shape, _) in entries.items()}


def write_file(path: Path, tensors: Iterable[TensorInfo], read: Callable[[str], np.ndarray]) -> None:
    """Writes a safetensors file whole or not at all, a tensor at a time.

    Raises:
      UserError: it cannot be written.
    """
    tensors, offset = list(tensors), 0
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for info in tensors:
        header[info.name] = {
            "dtype": _DTYPE_NAMES[info.dtype],
            "shape": list(info.shape),
            "data_offsets": [offset, offset + info.nbytes],
        }
        offset += info.nbytes
    # The format: header length (8 bytes), header, then the tensors' bytes at the header's offsets.
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)

    def write(file: Any) -> None:
        file.write(struct.pack("<Q", len(text)) + text)
        for info in tensors:
            value = np.ascontiguousarray(read(info.name))
            if value.shape != info.shape or value.dtype != info.dtype:
                raise ValueError(f"{info.name} is {value.dtype}{value.shape}, not {info.dtype}{info.shape}")
            file.write(value.reshape(-1).view(np.uint8).data)

    _write_whole(path, write)


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all."""
    _write_whole(path, lambda file: file.write(text.encode()))


def _write_whole(path: Path, write: Callable[[Any], Any]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error}; free space or choose another folder") from error
    finally:
        temporary.unlink(missing_ok=True)


def plan_files(tensors: Iterable[TensorInfo], max_bytes: int) -> dict[str, list[TensorInfo]]:
    """Assigns tensors to files, in order: one file if all fit into `max_bytes`, else numbered shards."""
    # The number of shards is part of each name, so all files are planned before the first one is written.
    groups: list[list[TensorInfo]] = [[]]
    used = 0
    for info in tensors:
        if groups[-1] and used + info.nbytes > max_bytes:
            groups.append([])
            used = 0
        groups[-1].append(info)
        used += info.nbytes
    if len(groups) == 1:
        return {SINGLE_FILE: groups[0]}
    names = (f"model-{number:05}-of-{len(groups):05}.safetensors" for number in range(1, len(groups) + 1))
    return dict(zip(names, groups, strict=True))


def write_folder(
    folder: Path, plan: Mapping[str, list[TensorInfo]], read: Callable[[str], np.ndarray]
) -> None:
    """Writes the files of `plan` and their index, in place of any weights that the folder has.

    A reader finds the old weights, the new ones, or none, but never a mixture: the old index is removed
    first, and the new one is written last.
    """
    index = folder / INDEX_FILE
    sharded = SINGLE_FILE not in plan
    if sharded:
        index.unlink(missing_ok=True)
    for file, tensors in plan.items():
        write_file(folder / file, tensors, read)
    if sharded:
        sizes = sum(info.nbytes for tensors in plan.values() for info in tensors)
        weight_map = {info.name: file for file, tensors in plan.items() for info in tensors}
        content = {"metadata": {"total_size": sizes}, "weight_map": weight_map}
        write_text(index, json.dumps(content, indent=1) + "\n")
    else:
        index.unlink(missing_ok=True)
    # Files of an earlier export with another number of shards, which a loader might prefer.
    for path in (folder / SINGLE_FILE, *folder.glob("model-*-of-*.safetensors")):
        if path.name not in plan:
            path.unlink(missing_ok=True)
