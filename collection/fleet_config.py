"""From the sections of an experiment's config to what the fleet takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from collection.agent.loop import Limits
from collection.agent.prompt import PromptConfig
from collection.agent.web_session import WebConfig
from collection.browser.guard.config import GuardConfig
from collection.browser.session import BrowserConfig
from collection.fleet import FleetConfig, SiteLimits
from collection.judges.config import judge_config
from collection.judges.notes import TaskNotes
from collection.llm.config import ActorConfig
from collection.llm.scripted.mistakes import MistakeConfig
from collection.station import Wear
from collection.worker import WorkerConfig

# What may change between the runs of one workdir: where and how fast it goes, not what comes out.
SAFE_FLEET_KEYS = (
    "browser.grid_url",
    *(
        f"fleet.{name}"
        for name in (
            *("engine", "ray_address", "workers", "retries", "crashes", "drain_seconds"),
            *("max_per_site", "site_interval_s", "backoff_s", "backoff_max_s"),
            *("browser_max_age_s", "browser_max_mb", "browser_max_episodes"),
        )
    ),
)
SAFE_ACTOR_KEYS = tuple(
    f"actor.{name}" for name in ("timeout_s", "calls", "cap_usd", "requests_per_minute", "tokens_per_minute")
)


def fleet_config(sections: Mapping[str, Any], notes: Mapping[str, TaskNotes] | None = None) -> FleetConfig:
    """Reads `actor`, `browser`, `guard`, `prompt`, `limits`, `fleet`, `secrets` and, where they are,
    `mistakes`, `judge`, `search_urls` and `allow_js`.

    Args:
      sections: the config as plain dictionaries (`config.to_dict()`).
      notes: what a benchmark tells its judge, by task id.

    Raises:
      UserError: the actor or the judge cannot be what it is asked to be.
    """
    mistakes = MistakeConfig(**sections.get("mistakes", {}))
    actor = ActorConfig(**sections["actor"], mistakes=mistakes).resolve()
    fleet = sections["fleet"]
    worker = WorkerConfig(
        actor=actor,
        browser=BrowserConfig(**sections["browser"]),
        guard=GuardConfig(**sections["guard"]),
        wear=Wear(
            max_age_s=fleet["browser_max_age_s"],
            max_mb=fleet["browser_max_mb"],
            max_episodes=fleet["browser_max_episodes"],
        ),
        prompt=PromptConfig(**sections["prompt"]),
        limits=Limits(**sections["limits"]),
        crashes=fleet["crashes"],
        web=WebConfig(search_urls=sections.get("search_urls", {}), allow_js=sections.get("allow_js", False)),
        judge=judge_config(sections.get("judge", {"kind": "none"}), actor, notes or {}),
        secrets=tuple(sections["secrets"]),
    )
    return FleetConfig(
        workers=fleet["workers"],
        retries=fleet["retries"],
        worker=worker,
        sites=SiteLimits(**{field.name: fleet[field.name] for field in dataclasses.fields(SiteLimits)}),
        drain_seconds=fleet["drain_seconds"],
        engine=fleet["engine"],
        ray_address=fleet["ray_address"],
    )
