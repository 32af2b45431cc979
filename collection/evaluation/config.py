"""Settings of `experiments.evaluate`: one dataclass per benchmark, with the paper's values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from ml_collections import ConfigDict
from pydantic import Field

from collection.fleet.config import EpisodeSettings, FleetSettings, SiteNames
from collection.judges.config import JudgeSettings
from collection.llm.config import ACTOR_KIND, ActorConfig
from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import Settings, from_config, internal, part_name, required, safe

FIRST_EVALUATED_SEED = 1_000_000


class EvaluatedActor(ActorConfig):
    """The actor that is evaluated; `EvaluateSettings` names it."""

    kind: Annotated[str, ACTOR_KIND] = "policy"
    label: str = internal("")
    model: str = internal("")
    temperature: float = Field(default=0.6, ge=0)
    timeout_s: float = safe(600.0, gt=0)


class RefreshSettings(Settings):
    """Settings of the date refresh (`collection.evaluation.dates`).

    Attributes:
      today: YYYY-MM-DD; empty means the day on which the run starts.
      overrides: file of prompts that you write yourself, a JSON line with `task_id` and `prompt` for each, or
        `date_refresh.jsonl` of another evaluation, which then has the same prompts. Empty for none.
      ask: ask the judge's model for later days, once for each prompt that names a date and has no override.
    """

    today: str = ""
    overrides: str = ""
    ask: bool = False


class EvaluateSettings(EpisodeSettings):
    """Settings that all benchmarks share.

    Attributes:
      benchmark: its name; determines the other settings.
      label: name of the policy in records and tables.
      model: model folder or "tiny_base"; for an actor behind an API, the endpoint's name of the model.
      task_ids: subset of the benchmark's tasks; empty means all.
      training: data sets and files of the tasks that the policy was trained on, separated by commas: the
        report lists those that repeat the benchmark. Empty skips the check.
      runs: number of runs per task (RMSWeb, section 4: exactly three).
      replays: number of times that a run is played again that the site, the network or the machine ended; it
        is played when the same command is run again without `report.json`.
      refresh: None if prompts are used unchanged.
      applications: where the tasks may be played, in addition to live pages.
    """

    benchmark: str
    label: str = "base"
    model: str = "tiny_base"
    task_ids: tuple[str, ...] = ()
    # Affects only the contamination section of the report, so it may change on resumption.
    training: str = safe("")
    runs: int = Field(default=3, ge=1)
    replays: int = safe(3, ge=0)
    actor: EvaluatedActor = EvaluatedActor()
    # All runs of all tasks are played, also on a site that refuses them.
    fleet: FleetSettings = safe(FleetSettings(max_refusals=0))
    refresh: RefreshSettings | None = internal(None)
    applications: SiteNames = internal(())


class SeededSettings(EvaluateSettings):
    """Settings for tasks that are made from seeds and compute their own reward.

    Attributes:
      first_seed, seeds: number of seeds of each page or template, starting at `first_seed`. Seeds from one
        million up are not trained on.
    """

    first_seed: int = FIRST_EVALUATED_SEED
    seeds: int = 20
    judge: JudgeSettings = internal(JudgeSettings())
    search_urls: Mapping[str, str] = internal({})
    extra_actions: tuple[str, ...] = internal(())


class MiniwobSettings(SeededSettings):
    """Settings for MiniWoB++.

    Attributes:
      pages: names of pages.
    """

    benchmark: str = "miniwob"
    pages: tuple[str, ...] = ()


class AppsSettings(SeededSettings):
    """Settings for applications on this machine (docs/apps.md) and for sites of one's own (docs/own.md).

    Attributes:
      applications: their names, or `module:name`.
    """

    benchmark: str = "apps"
    applications: SiteNames = ()
    seeds: int = 5


class OwnTasksSettings(EvaluateSettings):
    """Settings for a user's own tasks, on live pages or on servers of the user's (`config.guard.private`).

    Attributes:
      tasks_file: JSONL file with `website` and `objective`.
    """

    benchmark: str = "own_tasks"
    tasks_file: str = required("the file of the tasks, a JSON line with website and objective for each")


class OwnBenchmarkSettings(EvaluateSettings):
    """Settings for a benchmark of the user's own.

    Attributes:
      benchmark: `module:name` of a function that returns its tasks (docs/own.md).
      applications: sites of the user's own, `module:name`, at which they are.
    """

    benchmark: Annotated[str, part_name()] = required("your function that returns tasks, module:name")
    applications: SiteNames = ()


class WebVoyagerSettings(EvaluateSettings):
    """Settings for WebVoyager.

    Attributes:
      tasks_file: the benchmark's own file.
      excluded_file: a JSON list of ids to leave out, or "".
      own_rows: accept a file whose rows are not the published ones; the report says so.
      references_file: reference answers for a judge with `judge.reference`, or "".
    """

    benchmark: str = "webvoyager"
    tasks_file: str = required("the file of the benchmark's tasks")
    own_rows: bool = False
    excluded_file: str = ""
    references_file: str = ""
    refresh: RefreshSettings = RefreshSettings()


class OnlineMind2WebSettings(EvaluateSettings):
    """Settings for Online-Mind2Web.

    Attributes:
      tasks_file: the benchmark's own file.
      own_rows: as for WebVoyager.
      start_page: start page of tasks without a website.
    """

    benchmark: str = "online_mind2web"
    tasks_file: str = required("the file of the benchmark's tasks")
    own_rows: bool = False
    start_page: str = "https://duckduckgo.com/"


class WebTailBenchSettings(OnlineMind2WebSettings):
    """Settings for WebTailBench, whose tasks name no website.

    Attributes:
      split: the edition, as on the hub: `test` (November 2025) or `test_v2` (May 2026).
    """

    benchmark: str = "webtailbench"
    split: Literal["test", "test_v2"] = "test"
    refresh: RefreshSettings = RefreshSettings()


BENCHMARKS: dict[str, type[EvaluateSettings]] = {
    "webvoyager": WebVoyagerSettings,
    "online_mind2web": OnlineMind2WebSettings,
    "webtailbench": WebTailBenchSettings,
    "miniwob": MiniwobSettings,
    "apps": AppsSettings,
    "own_tasks": OwnTasksSettings,
    "own": OwnBenchmarkSettings,
}


def benchmark_settings(config: Mapping[str, Any] | ConfigDict) -> type[EvaluateSettings]:
    """Returns the class of settings of the benchmark that a config names.

    Raises:
      UserError: it is unknown.
    """
    name = str(config["benchmark"])
    known = BENCHMARKS.get("own" if ":" in name or not name else name)
    if known is None:
        raise UserError(f"config.benchmark is {name!r}: use one of {', '.join(BENCHMARKS)}, or module:name")
    return known


def evaluate_settings(config: EvaluateSettings | ConfigDict | Mapping[str, Any]) -> EvaluateSettings:
    """Builds the settings of the benchmark that the config names, with the policy as actor.

    Raises:
      UserError: as `benchmark_settings` and `from_config`.
    """
    known = type(config) if isinstance(config, EvaluateSettings) else benchmark_settings(config)
    settings = from_config(known, config)
    actor = settings.actor.model_copy(update={"label": settings.label, "model": settings.model})
    return settings.model_copy(update={"actor": actor})
