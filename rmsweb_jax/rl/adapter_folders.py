"""Each policy's adapters as a folder that an inference server can load."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from pathlib import Path

import jax

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.lora import LoRAConfig
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.peft import CONFIG_FILE, WEIGHTS_FILE, save_adapters
from rmsweb_jax.qwen3_vl.tensor_files import read_header


def publish_adapters(model: Qwen3VL, lora: LoRAConfig, root: Path, base: str, version: int) -> Path:
    """Writes the model's adapters as a new folder below `root`, which appears whole.

    Its name tells version and weights. With several processes all must call this; the first one writes.

    Args:
      base: name of the model that they belong to.

    Raises:
      UserError: it cannot be written.
    """
    root = root.absolute()
    temporary = root / f".adapters.{secrets.token_hex(8)}.tmp"
    save_adapters(model, lora, temporary, base)
    if jax.process_index() != 0:
        return root
    try:
        _name_modules(temporary)
        digest = hashlib.sha256((temporary / WEIGHTS_FILE).read_bytes()).hexdigest()
        folder = root / f"policy-{version:06d}-{digest[:12]}"
        # A run that was killed left it.
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(temporary, folder)
    except OSError as error:
        raise UserError(
            f"cannot write adapters below {root} ({error}); see config.endpoint.adapter_folder"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _name_modules(folder: Path) -> None:
    """Lists the adapted modules by name: servers do not read the pattern that PEFT understands."""
    path = folder / CONFIG_FILE
    names = sorted({key.split(".")[-3] for key in read_header(folder / WEIGHTS_FILE)})
    path.write_text(json.dumps(json.loads(path.read_text()) | {"target_modules": names}, indent=2) + "\n")
