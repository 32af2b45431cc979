"""Settings of `experiments.mine`, `experiments.verify_mined` and `experiments.failure_prior`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from collection.agent.config import EpisodeLimits, PromptConfig
from collection.browser.config import BrowserConfig
from collection.config import BenchmarkFiles
from collection.llm.config import WRITER, ActorConfig, ModelConfig
from rmsweb_jax.settings import Settings, internal, required, safe


class MineSettings(Settings):
    """Failure-mode mining (RMSWeb, section 3.3).

    Attributes:
      pools: data set folders of trajectories, separated by commas.
      replay: workdir of `experiments.verify_mined`; decisions that it found not to be critical are dropped.
      workers: number of processes; 0 for one on each core. Where a model labels failures they only read the
        index.
      threads: number of tasks whose failures a model labels at the same time.
      actor: the model that labels failures; with kind none they are labelled by cues.
      terms: terms of the scores: the `paper` has no other ones, `proven` adds those that held against replays
        (docs/results/mining.md).
      max_prompts: size of the corpus; each category gives one prompt a round, so rare ones stay whole.
        0 keeps all.
    """

    pools: str = required("--config.pools=DIR1,DIR2 (made by experiments.collect)")
    replay: str = ""
    workers: int = safe(0, ge=0)
    threads: int = safe(8, ge=1)
    actor: ModelConfig = WRITER
    terms: Literal["paper", "proven"] = "proven"
    max_prompts: int = Field(default=0, ge=0)


class FailurePriorSettings(Settings):
    """The failure modes of a development split (RMSWeb, "Validation-derived failure prior").

    Attributes:
      pools: data set folders of trajectories, separated by commas: the split's runs.
      workers: number of pairs labelled at the same time.
      actor: the model that labels failures; with kind none they are labelled by cues.
    """

    pools: str = required("--config.pools=DIR1,DIR2 (made by experiments.collect)")
    workers: int = safe(16, ge=1)
    benchmarks: BenchmarkFiles = BenchmarkFiles()
    actor: ModelConfig = WRITER


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
