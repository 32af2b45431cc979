"""Tasks for trainers and harnesses of others (docs/harnesses.md); names are imported when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collection.gym.errors import EpisodeLostError
    from collection.gym.gymnasium_env import WebEnv
    from collection.gym.session import Session
    from collection.gym.trl_task import WebReplies, WebTools, carry_out, rows

__all__ = ["EpisodeLostError", "Session", "WebEnv", "WebReplies", "WebTools", "carry_out", "rows"]

_MODULES = {
    "EpisodeLostError": "errors",
    "Session": "session",
    "WebEnv": "gymnasium_env",
    **dict.fromkeys(("WebReplies", "WebTools", "carry_out", "rows"), "trl_task"),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
