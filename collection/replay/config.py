"""Settings of `experiments.verify_mined`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from collection.agent.config import EpisodeLimits, PromptConfig
from collection.browser.config import BrowserConfig
from collection.llm.config import ActorConfig
from rmsweb_jax.settings import Settings, internal, required, safe


class ReplayActor(ActorConfig):
    """The actor that goes on from a decision; a policy's server runs before."""

    kind: Literal["auto", "scripted", "gemini", "chat", "policy"] = "scripted"
    label: str = internal("teacher")
    server: Literal["own", "vllm", "sglang"] = internal("own")
    server_python: str = internal("")
    server_flags: Mapping[str, Any] = internal({})
    server_settings: Mapping[str, Any] = internal({})


class VerifySettings(Settings):
    """Verification of mined decisions by replay. Not in RMSWeb.

    Attributes:
      mined: workdir of `experiments.mine`.
      actor: goes on from the decision: the scripted teacher (without mistakes), a model, or a policy that
        `experiments.serve` serves at `base_url`.
      browser, prompt, limits: as the runs were collected, so that their pages come again.
      trials: how often each decision is tried; more than once for an actor with a temperature.
      sample: share of the decisions for which every step of the failed run is tried, to find its last
        critical one.
      workers: number of processes, each with a browser.
    """

    mined: str = required("--config.mined=DIR (made by experiments.mine)")
    actor: ReplayActor = ReplayActor()
    browser: BrowserConfig = BrowserConfig()
    prompt: PromptConfig = PromptConfig()
    limits: EpisodeLimits = EpisodeLimits()
    trials: int = Field(default=1, ge=1)
    sample: float = Field(default=0.0, ge=0, le=1)
    workers: int = safe(2, ge=1)
