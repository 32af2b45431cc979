"""rmsweb-jax: Reflection, failure-mode Mining and Salvage-DS for web agents, in JAX.

The names below are the public interface. Each is imported when it is first used, so that
`import rmsweb_jax` is instant and machines without jax can read records and score replies.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmsweb_jax.actions.reward import score_response
    from rmsweb_jax.api import Policy, train_rl, train_sft
    from rmsweb_jax.export.adapters import merge_adapters
    from rmsweb_jax.qwen3_vl.checkpoint import load_model
    from rmsweb_jax.qwen3_vl.processor import Processor
    from rmsweb_jax.records.dataset import read_dataset

__version__ = "0.1.0"
__all__ = [
    "Policy",
    "Processor",
    "__version__",
    "load_model",
    "merge_adapters",
    "read_dataset",
    "score_response",
    "train_rl",
    "train_sft",
]

_MODULES = {
    "Policy": "api",
    "Processor": "qwen3_vl.processor",
    "load_model": "qwen3_vl.checkpoint",
    "merge_adapters": "export.adapters",
    "read_dataset": "records.dataset",
    "score_response": "actions.reward",
    "train_rl": "api",
    "train_sft": "api",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # The next access finds it without this function.
    return value


def __dir__() -> list[str]:
    return list(__all__)
