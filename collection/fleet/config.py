"""Settings of a fleet: the episodes it plays, how many at once, and where."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from collection.agent.loop import EpisodeLimits
from collection.agent.prompt import PromptConfig
from collection.browser.guard.config import GuardConfig
from collection.browser.session import BrowserConfig
from collection.environments.web import WebConfig
from collection.fleet.browser_pool import RecyclePolicy
from collection.fleet.scheduler import SiteLimits
from collection.fleet.worker import WorkerConfig
from collection.judges.config import JudgeSettings, judge_config
from collection.judges.notes import TaskNotes
from collection.llm.config import ActorConfig
from collection.llm.ledger_server import LedgerAddress
from collection.llm.scripted.mistakes import MistakeConfig
from rmsweb_jax.settings import internal, safe


@dataclasses.dataclass(frozen=True, kw_only=True)
class FleetSettings(SiteLimits, RecyclePolicy):
    """The section `fleet`: number of workers, their limits, and where they run.

    Attributes:
      engine: `local`, processes on this machine; `ray`, actors on a cluster, which need no common disk.
      ray_address: address of the cluster; empty starts Ray on this machine.
      ray_actor: options of each actor, as Ray takes them: `num_cpus` (1), `memory`, `resources`,
        `scheduling_strategy`, `runtime_env`. Keys and secrets do not belong there: they come from the
        environment of this process.
      workers: number of processes, each with a browser (RMSWeb: 16).
      judgements: number of episodes that are judged at a time, in a process apart from the browsers.
      retries: number of restarts of a round whose worker died.
      crashes: times an episode is started again after its browser or its guard was lost.
      drain_seconds: time that running episodes get after Ctrl-C, SIGTERM or SIGUSR1.
      publish_s: while the run goes on, new episodes are added to its data set each time this many seconds are
        over; 0 publishes when it ends or is stopped.
      retry_set_aside: play the tasks again that this run has set aside, also after it has finished.
    """

    engine: Literal["local", "ray"] = "local"
    ray_address: str = ""
    ray_actor: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    workers: int = 16
    judgements: int = 16
    retries: int = 2
    crashes: int = 2
    drain_seconds: float = 30.0
    publish_s: float = 60.0
    retry_set_aside: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeSettings:
    """Settings of every episode; `CollectSettings` and `EvaluateSettings` add which episodes are played.

    Attributes:
      judge: decides whether an episode on live pages was a success.
      search_urls: on live pages, engine name -> URL with `{query}`; the guard must allow their hosts.
      extra_actions: on live pages, actions beyond the paper's that the agent may use: click_coordinates,
        double_click_element, drag_element, execute_js, hover_element.
      secrets: environment variables whose values the agent may type as <secret>NAME</secret> without seeing
        them: `NAME` at the task's own site, `NAME=HOST` at HOST (`*.HOST` is all below it).
      apps_folder: where applications are installed, once; "" is the user's cache.
      fleet: where and how fast episodes run; it does not change their results.
    """

    actor: ActorConfig = ActorConfig()
    browser: BrowserConfig = BrowserConfig()
    guard: GuardConfig = GuardConfig()
    prompt: PromptConfig = PromptConfig()
    limits: EpisodeLimits = EpisodeLimits()
    judge: JudgeSettings = JudgeSettings()
    search_urls: Mapping[str, str] = dataclasses.field(default_factory=dict)
    extra_actions: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    apps_folder: str = safe("")
    fleet: FleetSettings = safe(FleetSettings())
    mistakes: MistakeConfig = internal(MistakeConfig())


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectSettings(EpisodeSettings):
    """Settings of `experiments.collect`, with the paper's values (RMSWeb, section 3.1).

    Attributes:
      pages, first_seed, seeds: MiniWoB++ pages, and how many seeds of each from the first on.
      applications: names of applications (docs/apps.md); a task of each template for each seed.
      tasks_from: alternatively, an earlier data set whose tasks are played.
      tasks_file: alternatively, a JSONL file of tasks on live pages, with `website` and `objective`.
      rounds: maximum number of attempts at a task.
      stop_after: number of successes that end a task early; 0 means never.
      reflection: reflect on each attempt and give the next one guidance.
      mistakes: seeded mistakes of the scripted teacher.
    """

    pages: tuple[str, ...] = ()
    first_seed: int = 0
    seeds: int = 100
    applications: tuple[str, ...] = ()
    tasks_from: str = ""
    tasks_file: str = ""
    rounds: int = 5
    stop_after: int = 2
    reflection: bool = True
    mistakes: MistakeConfig = MistakeConfig(
        rate=0.45,
        weights={
            "wrong_index": 0.35,
            "premature_done": 0.25,
            "needless_scroll": 0.15,
            "skipped_field": 0.25,
        },
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FleetConfig(FleetSettings):
    """Settings of a fleet, resolved.

    Attributes:
      worker: settings of each worker.
    """

    worker: WorkerConfig

    def with_actor(self, actor: ActorConfig) -> FleetConfig:
        """Returns the config with another actor, for example with a policy whose server has started."""
        return dataclasses.replace(self, worker=dataclasses.replace(self.worker, actor=actor))

    def with_ledger(self, ledger: LedgerAddress) -> FleetConfig:
        """Returns the config for workers whose ledger is in another process."""
        return dataclasses.replace(self, worker=dataclasses.replace(self.worker, ledger=ledger))


def fleet_config(settings: EpisodeSettings, notes: Mapping[str, TaskNotes] | None = None) -> FleetConfig:
    """Resolves the settings of a fleet.

    Args:
      notes: a benchmark's notes for the judge, by task id.

    Raises:
      UserError: settings contradict each other.
    """
    actor = dataclasses.replace(settings.actor, mistakes=settings.mistakes).resolve()
    worker = WorkerConfig(
        actor=actor,
        browser=settings.browser,
        guard=settings.guard,
        recycle=settings.fleet,
        prompt=settings.prompt,
        limits=settings.limits,
        crashes=settings.fleet.crashes,
        web=WebConfig(search_urls=settings.search_urls, extra_actions=settings.extra_actions),
        judge=judge_config(settings.judge, actor, notes or {}),
        secrets=settings.secrets,
        apps=settings.apps_folder,
    )
    return FleetConfig(**vars(settings.fleet), worker=worker)
