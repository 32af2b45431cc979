"""The model that is served, and adapters on it that clients load and unload."""

from __future__ import annotations

import threading
from pathlib import Path

from flax import nnx

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.decode import Generator
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.peft import load_adapters
from rmsweb_jax.serve.protocol import BadRequestError

# The model's own name among the policies.
BASE = ""


class Policies:
    """Generators by name; any thread may call.

    Args:
      model: without adapters, read only.
    """

    def __init__(self, model: Qwen3VL):
        self._model = model
        self._generators = {BASE: Generator(model)}
        self._changing = threading.Lock()

    @property
    def base(self) -> Generator:
        return self._generators[BASE]

    def names(self) -> list[str]:
        """Of the adapters, in order of loading."""
        return [name for name in list(self._generators) if name != BASE]

    def get(self, name: str) -> Generator | None:
        return self._generators.get(name)

    def holds(self, generator: Generator) -> bool:
        """Whether a generator is of a policy that is loaded."""
        return any(generator is one for one in list(self._generators.values()))

    def load(self, name: str, folder: Path) -> None:
        """Adds a policy: the model with the adapters of a PEFT folder. It takes as much memory as the model.

        Raises:
          BadRequestError: the name is taken, or the adapters cannot be used.
        """
        with self._changing:
            if name in self._generators:
                raise BadRequestError(f"lora_name: {name!r} has already been loaded", "lora_name")
            model = nnx.clone(self._model)
            try:
                load_adapters(model, folder)
            except UserError as error:
                raise BadRequestError(f"lora_path: {error}", "lora_path") from None
            self._generators[name] = Generator(model)

    def unload(self, name: str) -> None:
        """Forgets a policy; requests that were submitted are still answered.

        Raises:
          BadRequestError: no adapters have this name.
        """
        with self._changing:
            if name == BASE or self._generators.pop(name, None) is None:
                raise BadRequestError(f"lora_name: {name!r} is not loaded", "lora_name")
