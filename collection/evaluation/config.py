"""Settings of `experiments.evaluate`: one dataclass for each benchmark, with the paper's values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from ml_collections import ConfigDict

from collection.fleet.config import EpisodeSettings
from collection.judges.config import JudgeSettings
from collection.llm.config import ActorConfig, ModelConfig
from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import from_config, internal, required, safe

FIRST_HELD_OUT_SEED = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluatedActor(ActorConfig):
    """The actor that is evaluated; `EvaluateSettings` names it."""

    kind: Literal["auto", "scripted", "gemini", "chat", "policy"] = "policy"
    label: str = internal("")
    model: str = internal("")
    temperature: float = 0.6
    timeout_s: float = safe(600.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RefreshSettings:
    """How days that have passed are moved (`collection.evaluation.dates.moving`).

    Attributes:
      today: YYYY-MM-DD; empty: the day on which the run is begun.
      lead_days: from then to the earliest day of a prompt, at least.
      ask: the model that is asked about prompts with days that no rule takes for bound to them.
    """

    today: str = ""
    lead_days: int = 14
    ask: ModelConfig = ModelConfig(kind="none", temperature=0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateSettings(EpisodeSettings):
    """What the evaluations on all benchmarks share.

    Attributes:
      benchmark: its name; it decides which other settings there are.
      label: what the policy is called in records and tables.
      model: its folder, or "tiny_base"; of an actor behind an API what the endpoint calls it.
      task_ids: some of the benchmark's tasks; none: all.
      training: data sets and files of the tasks that the policy was trained on, separated by commas: the
        report says which of them repeat the benchmark. Empty: not checked.
      runs: how often each task is played (RMSWeb, section 4: exactly three times).
      seed: of the bootstrap.
      refresh: None where prompts are used as they are.
    """

    benchmark: str
    label: str = "base"
    model: str = "tiny_base"
    task_ids: tuple[str, ...] = ()
    # What was trained on changes what the report says, not what is played.
    training: str = safe("")
    runs: int = 3
    seed: int = 0
    actor: ActorConfig = EvaluatedActor()
    refresh: RefreshSettings | None = internal(None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MiniwobSettings(EvaluateSettings):
    """MiniWoB++ pages, which pay their own reward.

    Attributes:
      pages, first_seed, seeds: pages, and how many seeds of each from the first on. Nothing is trained on
        seeds from a million on.
    """

    benchmark: str = "miniwob"
    pages: tuple[str, ...] = ()
    first_seed: int = FIRST_HELD_OUT_SEED
    seeds: int = 20
    judge: JudgeSettings = internal(JudgeSettings())
    search_urls: Mapping[str, str] = internal({})
    allow_js: bool = internal(False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AppsSettings(EvaluateSettings):
    """Tasks of your own, for example at applications on this machine.

    Attributes:
      tasks_file: JSON lines with `website` and `objective`.
    """

    benchmark: str = "apps"
    tasks_file: str = required("the file of the tasks, a JSON line with website and objective for each")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WebVoyagerSettings(EvaluateSettings):
    """WebVoyager.

    Attributes:
      tasks_file: the benchmark's own file.
      excluded_file: a JSON list of the ids that are left out, or "".
      references_file: the answers that the judge is shown, or "".
    """

    benchmark: str = "webvoyager"
    tasks_file: str = required("the file of the benchmark's tasks")
    excluded_file: str = ""
    references_file: str = ""
    refresh: RefreshSettings = RefreshSettings()


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnlineMind2WebSettings(EvaluateSettings):
    """Online-Mind2Web.

    Attributes:
      tasks_file: the benchmark's own file.
      start_page: of a task that names no website.
    """

    benchmark: str = "online_mind2web"
    tasks_file: str = required("the file of the benchmark's tasks")
    start_page: str = "https://duckduckgo.com/"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WebTailBenchSettings(OnlineMind2WebSettings):
    """WebTailBench, whose tasks name no website."""

    benchmark: str = "webtailbench"
    refresh: RefreshSettings = RefreshSettings()


BENCHMARKS: dict[str, type[EvaluateSettings]] = {
    "webvoyager": WebVoyagerSettings,
    "online_mind2web": OnlineMind2WebSettings,
    "webtailbench": WebTailBenchSettings,
    "miniwob": MiniwobSettings,
    "apps": AppsSettings,
}


def evaluate_settings(
    config: EvaluateSettings | ConfigDict | Mapping[str, Any], complete: bool = True
) -> EvaluateSettings:
    """The settings of the benchmark that the config names, with the policy as their actor.

    Args:
      complete: as for `from_config`.

    Raises:
      UserError: there is no such benchmark; or as `from_config`.
    """
    name = config.benchmark if isinstance(config, EvaluateSettings) else config["benchmark"]
    if name not in BENCHMARKS:
        raise UserError(f"config.benchmark is {name!r}: use one of {', '.join(BENCHMARKS)}")
    settings = from_config(BENCHMARKS[name], config, complete)
    actor = dataclasses.replace(settings.actor, label=settings.label, model=settings.model)
    return dataclasses.replace(settings, actor=actor)
