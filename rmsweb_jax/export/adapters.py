"""Merges adapters of PEFT into their base model, a tensor at a time, without a device."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from rmsweb_jax.errors import UserError
from rmsweb_jax.export.folder import new_folder
from rmsweb_jax.qwen.checkpoint import (
    ADAPTER_FILE,
    INDEX_FILE,
    TensorFolder,
    read_shapes,
    resolve_model,
    write_folder,
)
from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.lora import WEIGHTS_FILE, check_plain

_TENSOR = re.compile(r"base_model\.model\.(.+)\.lora_(A|B|magnitude_vector)(?:\.weight)?")


def merge_adapters(
    adapter: str | os.PathLike[str], output: str | os.PathLike[str], base: str | os.PathLike[str] = ""
) -> Path:
    """Merges a PEFT folder into its base, and writes a model folder for `Policy.load`, training and servers.

    The adapters may be on any matrices of any layers, with ranks and alphas of their own, rank-stabilized or
    with magnitudes (DoRA).

    Args:
      adapter: a PEFT folder, or the name of one on the Hugging Face Hub.
      output: the new folder, which appears whole or not at all.
      base: the base model's folder or Hub name; "": the one that the adapter names.

    Raises:
      UserError: the folder is damaged or of another kind, the base is missing or does not fit, or `output` is
        not empty.
    """
    folder = resolve_model(adapter, ADAPTER_FILE)
    settings = _read_settings(folder / ADAPTER_FILE)
    base = base or settings.get("base_model_name_or_path") or ""
    if not base:
        raise UserError(f"{folder / ADAPTER_FILE}: names no base model: give it as base")
    source = resolve_model(base)
    config, weights = Qwen3VLConfig.from_hf(source / "config.json"), TensorFolder(source)
    modules = _modules(folder, weights, bool(settings.get("use_dora")))

    def read(name: str) -> np.ndarray:
        weight = weights.read(name)
        module = name.removesuffix(".weight")
        return (
            merged(weight, modules[module], _scale(settings, module, modules[module]))
            if module in modules
            else weight
        )

    dtype = weights.read(f"{next(iter(modules))}.weight", (slice(0, 0), slice(0, 0))).dtype
    with new_folder(Path(output)) as new:
        write_folder(new, config, weights.shapes, read, dtype)
        for path in source.iterdir():  # The tokenizer's.
            if path.suffix in (".json", ".txt", ".jinja") and path.name not in ("config.json", INDEX_FILE):
                shutil.copyfile(path, new / path.name)
    return Path(output)


def merged(weight: np.ndarray, parts: Mapping[str, np.ndarray], scale: float) -> np.ndarray:
    """Adds an adapter to a matrix, in float32.

    Args:
      weight: [outputs, inputs].
      parts: A [rank, inputs], B [outputs, rank], and the magnitudes [outputs] of DoRA.
    """
    a, b = (parts[name].astype(np.float32) for name in "AB")
    total = weight.astype(np.float32) + scale * (b @ a)
    if (magnitudes := parts.get("magnitude_vector")) is not None:
        total *= (magnitudes.astype(np.float32) / np.linalg.norm(total, axis=1))[:, None]
    return total


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_bytes())
        check_plain(path, settings, merging=True)
        alphas = [settings["lora_alpha"], *(settings.get("alpha_pattern") or {}).values()]
        if not all(math.isfinite(alpha) for alpha in alphas):
            raise ValueError("lora_alpha is not finite")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"cannot read the adapters' settings {path} ({error!r}); give a PEFT folder"
        ) from error
    return settings


def _modules(folder: Path, weights: TensorFolder, dora: bool) -> dict[str, dict[str, np.ndarray]]:
    """Reads the adapters by the name of their matrix in the base, checked to fit it."""
    path, modules = folder / WEIGHTS_FILE, dict[str, dict[str, np.ndarray]]()
    read_shapes(path, "give a PEFT folder with whole safetensors")
    for name, value in load_file(path).items():
        found = _TENSOR.fullmatch(name)
        if not found or len(weights.shapes.get(f"{found[1]}.weight", ())) != 2:
            raise UserError(f"{path}: {name} belongs to no matrix of {weights.folder}: give its base model")
        modules.setdefault(found[1], {})[found[2]] = value
    if not modules:
        raise UserError(f"{path}: it has no adapters")
    for module, parts in modules.items():
        outputs, inputs = weights.shapes[f"{module}.weight"]
        rank = parts["A"].shape[0] if "A" in parts else 0
        shapes = {"A": (rank, inputs), "B": (outputs, rank), "magnitude_vector": (outputs,)}
        wanted = {"A", "B", "magnitude_vector"} if dora else {"A", "B"}
        for name in sorted({*wanted, *parts}):
            if (shape := parts[name].shape if name in parts else None) != shapes[name] or not rank:
                given = "missing" if shape is None else f"{list(shape)} instead of {list(shapes[name])}"
                raise UserError(
                    f"{path}: {module}.lora_{name} is {given}: give the base model of these adapters"
                )
    return modules


def _scale(settings: Mapping[str, Any], module: str, parts: Mapping[str, np.ndarray]) -> float:
    """The factor of B A: alpha over the rank or, rank-stabilized, over its root."""
    patterns = settings.get("alpha_pattern") or {}
    # As PEFT matches them: the end of the module's name.
    found = (alpha for key, alpha in patterns.items() if re.match(rf"(.*\.)?({key})$", module))
    alpha, rank = next(found, settings["lora_alpha"]), parts["A"].shape[0]
    return alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
