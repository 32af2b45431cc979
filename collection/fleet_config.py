"""From the sections of an experiment's config to what the fleet takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collection.agent.loop import Limits
from collection.agent.prompt import PromptConfig
from collection.browser.session import BrowserConfig
from collection.fleet import FleetConfig
from collection.llm.config import ActorConfig
from collection.llm.scripted.mistakes import MistakeConfig
from collection.worker import WorkerConfig


def fleet_config(sections: Mapping[str, Any]) -> FleetConfig:
    """Reads the sections `actor`, `browser`, `prompt`, `limits`, `fleet` and, where there is one, `mistakes`.

    Args:
      sections: the config as plain dictionaries (`config.to_dict()`).

    Raises:
      UserError: the actor cannot be what it is asked to be.
    """
    mistakes = MistakeConfig(**sections.get("mistakes", {}))
    fleet = sections["fleet"]
    worker = WorkerConfig(
        actor=ActorConfig(**sections["actor"], mistakes=mistakes).resolve(),
        browser=BrowserConfig(**sections["browser"]),
        prompt=PromptConfig(**sections["prompt"]),
        limits=Limits(**sections["limits"]),
        crashes=fleet["crashes"],
    )
    return FleetConfig(workers=fleet["workers"], retries=fleet["retries"], worker=worker)
