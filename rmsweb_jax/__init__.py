"""rmsweb-jax: Reflection, failure-mode Mining and Salvage-DS for web agents, in JAX.

The names below are the public interface (docs/own.md). Each is imported when it is first used, so that
`import rmsweb_jax` is instant and machines without jax can read records and score replies.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmsweb_jax.actions import Action, Reply, ReplyError, parse_reply, render_reply, score_response
    from rmsweb_jax.api import Policy, train_rl, train_sft
    from rmsweb_jax.errors import UserError
    from rmsweb_jax.export.adapters import merge_adapters
    from rmsweb_jax.qwen.checkpoint import load_model
    from rmsweb_jax.qwen.processor import Processor
    from rmsweb_jax.records.dataset import read_dataset, write_dataset
    from rmsweb_jax.records.images import ImageStore
    from rmsweb_jax.records.schema import (
        ActionResult,
        Element,
        ImagePart,
        Message,
        Observation,
        RlPrompt,
        SftSample,
        Step,
        Tab,
        Task,
        TextPart,
        Trajectory,
    )
    from rmsweb_jax.rl.gates import Gated, contrast
    from rmsweb_jax.rl.losses import TokenBatch

__version__ = "0.1.0"
__all__ = [
    "Action",
    "ActionResult",
    "Element",
    "Gated",
    "ImagePart",
    "ImageStore",
    "Message",
    "Observation",
    "Policy",
    "Processor",
    "Reply",
    "ReplyError",
    "RlPrompt",
    "SftSample",
    "Step",
    "Tab",
    "Task",
    "TextPart",
    "TokenBatch",
    "Trajectory",
    "UserError",
    "__version__",
    "contrast",
    "load_model",
    "merge_adapters",
    "parse_reply",
    "read_dataset",
    "render_reply",
    "score_response",
    "train_rl",
    "train_sft",
    "write_dataset",
]

_NAMES = {
    "actions": ("Action", "Reply", "ReplyError", "parse_reply", "render_reply", "score_response"),
    "api": ("Policy", "train_rl", "train_sft"),
    "errors": ("UserError",),
    "export.adapters": ("merge_adapters",),
    "qwen.checkpoint": ("load_model",),
    "qwen.processor": ("Processor",),
    "records.dataset": ("read_dataset", "write_dataset"),
    "records.images": ("ImageStore",),
    "records.schema": (
        "ActionResult",
        "Element",
        "ImagePart",
        "Message",
        "Observation",
        "RlPrompt",
        "SftSample",
        "Step",
        "Tab",
        "Task",
        "TextPart",
        "Trajectory",
    ),
    "rl.gates": ("Gated", "contrast"),
    "rl.losses": ("TokenBatch",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # The next access finds it without this function.
    return value


def __dir__() -> list[str]:
    return list(__all__)
