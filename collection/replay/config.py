"""Settings of `experiments.verify_mined`."""

from __future__ import annotations

from pydantic import Field

from collection.agent.config import EpisodeLimits, PromptConfig
from collection.browser.config import BrowserConfig
from collection.llm.config import ActorConfig
from rmsweb_jax.settings import Settings, required, safe


class VerifySettings(Settings):
    """Verification of mined decisions by replay. Not in RMSWeb.

    Attributes:
      mined: workdir of `experiments.mine`.
      actor: goes on from the decision: the scripted teacher (without mistakes), a model, or a policy that
        `experiments.serve` serves at `base_url`.
      browser, prompt, limits: as the runs were collected, so that their pages come again.
      trials: how often each decision is tried; more than once for an actor with a temperature.
      min_difference: by how much the rate of success must be higher with the success's action.
      further_steps: maximum number of the actor's steps.
      sample: share of the decisions for which every step of the failed run is tried, to find its last
        critical one.
      workers: number of processes, each with a browser.
    """

    mined: str = required("--config.mined=DIR (made by experiments.mine)")
    actor: ActorConfig = ActorConfig(kind="scripted")
    browser: BrowserConfig = BrowserConfig()
    prompt: PromptConfig = PromptConfig()
    limits: EpisodeLimits = EpisodeLimits()
    trials: int = Field(default=1, ge=1)
    min_difference: float = Field(default=0.5, ge=0, le=1)
    further_steps: int = Field(default=10, ge=0)
    sample: float = Field(default=0.0, ge=0, le=1)
    workers: int = safe(2, ge=1)
