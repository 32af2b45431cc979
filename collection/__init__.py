"""The browser side of rmsweb-jax: collect, mine and evaluate. Imports no jax.

The names below are the public interface (docs/own.md); an application is made of
`collection.apps`, and other trainers play by `collection.gym`. Each is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collection.agent.loop import EpisodeRunner
    from collection.browser.config import BrowserConfig
    from collection.browser.guard.config import GuardConfig
    from collection.browser.guard.guard import Guard
    from collection.browser.session import Browser
    from collection.environments.base import Environment, StepResults, View
    from collection.environments.web import WebEnvironment
    from collection.evaluation.benchmarks import Benchmark
    from collection.evaluation.runs import evaluate
    from collection.fleet.collect import collect
    from collection.judges.base import Judge, Verdict, with_verdict
    from collection.judges.notes import Criterion, Reference, TaskNotes
    from collection.llm.actor import ActorModel, ActorReply, LLMActor, StepRequest
    from collection.llm.build import make_model
    from collection.llm.config import ModelConfig
    from collection.llm.model import ModelRequest
    from collection.mining.mine import mine

__all__ = [
    "ActorModel",
    "ActorReply",
    "Benchmark",
    "Browser",
    "BrowserConfig",
    "Criterion",
    "Environment",
    "EpisodeRunner",
    "Guard",
    "GuardConfig",
    "Judge",
    "LLMActor",
    "ModelConfig",
    "ModelRequest",
    "Reference",
    "StepRequest",
    "StepResults",
    "TaskNotes",
    "Verdict",
    "View",
    "WebEnvironment",
    "collect",
    "evaluate",
    "make_model",
    "mine",
    "with_verdict",
]

_NAMES = {
    "agent.loop": ("EpisodeRunner",),
    "browser.config": ("BrowserConfig",),
    "browser.guard.config": ("GuardConfig",),
    "browser.guard.guard": ("Guard",),
    "browser.session": ("Browser",),
    "environments.base": ("Environment", "StepResults", "View"),
    "environments.web": ("WebEnvironment",),
    "evaluation.benchmarks": ("Benchmark",),
    "evaluation.runs": ("evaluate",),
    "fleet.collect": ("collect",),
    "judges.base": ("Judge", "Verdict", "with_verdict"),
    "judges.notes": ("Criterion", "Reference", "TaskNotes"),
    "llm.actor": ("ActorModel", "ActorReply", "LLMActor", "StepRequest"),
    "llm.build": ("make_model",),
    "llm.config": ("ModelConfig",),
    "llm.model": ("ModelRequest",),
    "mining.mine": ("mine",),
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
