"""Settings of `experiments.verify_mined`."""

from __future__ import annotations

import dataclasses

from collection.agent.loop import EpisodeLimits
from collection.agent.prompt import PromptConfig
from collection.browser.session import BrowserConfig
from collection.llm.config import ActorConfig
from collection.llm.scripted.mistakes import MistakeConfig
from rmsweb_jax.settings import internal, required, safe


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifySettings:
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
    trials: int = 1
    min_difference: float = 0.5
    further_steps: int = 10
    sample: float = 0.0
    workers: int = safe(2)
    mistakes: MistakeConfig = internal(MistakeConfig())
