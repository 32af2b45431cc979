"""Registry of the served model and the LoRA adapters that clients load onto it."""

from __future__ import annotations

import threading
from pathlib import Path

from flax import nnx

from rmsweb_jax.decoding.generator import Generator
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.peft import load_adapters
from rmsweb_jax.serve.protocol import BadRequestError

# Registry key of the model without adapters.
BASE = ""


class AdapterRegistry:
    """Generators by name. Thread-safe.

    Args:
      model: without adapters; not modified.
    """

    def __init__(self, model: Qwen3VL):
        self._model = model
        self._generators = {BASE: Generator(model)}
        self._changing = threading.Lock()

    @property
    def base(self) -> Generator:
        return self._generators[BASE]

    def names(self) -> list[str]:
        """Returns the adapters' names in order of loading."""
        return [name for name in list(self._generators) if name != BASE]

    def get(self, name: str) -> Generator | None:
        return self._generators.get(name)

    def holds(self, generator: Generator) -> bool:
        """Returns True if a generator belongs to a loaded adapter or the model."""
        return any(generator is one for one in list(self._generators.values()))

    def load(self, name: str, folder: Path) -> None:
        """Copies the model, which doubles its memory, and loads a PEFT folder's adapters into the copy.

        Raises:
          BadRequestError: the name is taken, or the adapters cannot be used.
        """
        # One change at a time, but without blocking requests: `get` reads the dictionary without the lock.
        with self._changing:
            if name in self._generators:
                raise BadRequestError(f"lora_name: {name!r} has already been loaded", "lora_name")
            # A copy, since adapters are merged: running requests of other adapters keep their weights.
            model = nnx.clone(self._model)
            try:
                load_adapters(model, folder)
            except UserError as error:
                raise BadRequestError(f"lora_path: {error}", "lora_path") from None
            self._generators[name] = Generator(model)

    def unload(self, name: str) -> None:
        """Unloads an adapter; requests submitted before are still answered.

        Raises:
          BadRequestError: no adapter has this name.
        """
        with self._changing:
            if name == BASE or self._generators.pop(name, None) is None:
                raise BadRequestError(f"lora_name: {name!r} is not loaded", "lora_name")
