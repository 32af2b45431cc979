"""The browser side of rmsweb-jax: collect, mine and evaluate. Imports no jax.

The names below are the public interface. Each is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collection.agent.loop import EpisodeRunner
    from collection.browser.session import Browser
    from collection.evaluation.runs import evaluate
    from collection.fleet.collect import collect
    from collection.mining.mine import mine

__all__ = ["Browser", "EpisodeRunner", "collect", "evaluate", "mine"]

_MODULES = {
    "Browser": "browser.session",
    "EpisodeRunner": "agent.loop",
    "collect": "fleet.collect",
    "evaluate": "evaluation.runs",
    "mine": "mining.mine",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # The next access finds it without this function.
    return value


def __dir__() -> list[str]:
    return list(__all__)
