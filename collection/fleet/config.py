"""Settings of a fleet: the episodes it plays, how many at once, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from collection.agent.config import EpisodeLimits, PromptConfig
from collection.browser.config import BrowserConfig
from collection.browser.guard.config import GuardConfig
from collection.judges.config import JudgeSettings
from collection.llm.config import ActorConfig
from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import PartName, Settings, internal, part_name, safe


class SiteLimits(Settings):
    """Rate limits of a site on the live web. A site is a registrable domain.

    Attributes:
      max_per_site: number of concurrent episodes.
      site_interval_s: minimum time between the starts of two episodes. With 0, which is for sites of one's
        own, there is no backoff either.
      backoff_s: pause after an episode that was blocked, met a captcha or could not reach the site; doubled
        for each further one in a row.
      backoff_max_s: the longest pause.
      max_refusals: number of such episodes in a row, of a site or of one of its tasks, after which what is
        left of it is set aside; 0 never does that.
    """

    max_per_site: int = 2
    site_interval_s: float = 5.0
    backoff_s: float = internal(60.0)
    backoff_max_s: float = internal(3600.0)
    max_refusals: int = 3


class RecyclePolicy(Settings):
    """Limits at which a browser is replaced between episodes: browsers grow, and some pages leave them slow.

    Attributes:
      browser_max_age_s: time since its start.
      browser_max_mb: memory of all its processes; 0 means no limit.
      browser_max_episodes: episodes played in it.
    """

    browser_max_age_s: float = internal(1800.0)
    browser_max_mb: float = internal(1500.0)
    browser_max_episodes: int = internal(200)


class FleetSettings(SiteLimits, RecyclePolicy):
    """The section `fleet`: number of workers, their limits, and where they run.

    Attributes:
      engine: `local`, processes on this machine; `ray`, actors on the cluster of the environment variable
        RAY_ADDRESS, without which Ray is started on this machine. Nodes need no common disk.
      ray_actor: options of each actor, as Ray takes them: `num_cpus` (1), `memory`, `resources`,
        `scheduling_strategy`, `runtime_env`. Keys and secrets do not belong there: they come from the
        environment of this process.
      workers: number of processes, each with a browser (RMSWeb: 16).
      judgements: number of episodes that are judged or reflected on at a time.
      retries: number of restarts of a round whose worker died.
      crashes: times an episode is started again after its browser or its guard was lost.
      drain_seconds: time that running episodes get after Ctrl-C, SIGTERM or SIGUSR1.
      retry_set_aside: play the tasks again that this run has set aside, also after it has finished.
    """

    engine: Literal["local", "ray"] = "local"
    ray_actor: Mapping[str, Any] = Field(default_factory=dict)
    workers: int = 16
    judgements: int = internal(16)
    retries: int = internal(2)
    crashes: int = Field(default=2, ge=0)
    drain_seconds: float = 30.0
    retry_set_aside: bool = False


# Applications of this project and of entry points, or `module:name`.
SiteNames = tuple[Annotated[str, PartName(str)], ...]
ExtraAction = Literal[
    "click_coordinates",
    "double_click_element",
    "drag_coordinates",
    "drag_element",
    "execute_js",
    "hover_coordinates",
    "hover_element",
    "scroll_coordinates",
]


class EpisodeSettings(Settings):
    """Settings of every episode; `CollectSettings` and `EvaluateSettings` add which episodes are played.

    Attributes:
      judge: decides whether an episode on live pages was a success.
      search_urls: on live pages, engine name -> URL with `{query}`; the guard must allow their hosts.
      extra_actions: on live pages, actions beyond the paper's that the agent may use.
      secrets: environment variables whose values the agent may type as <secret>NAME</secret> without seeing
        them: `NAME` at the task's own site, `NAME=HOST` at HOST (`*.HOST` is all below it).
      applications: names of applications (docs/apps.md), or sites of your own, `module:name` (docs/own.md);
        their tasks are made from seeds.
      apps_folder: where applications are installed, once; "" is the user's cache.
      fleet: where and how fast episodes run; it does not change their results.
    """

    actor: ActorConfig = ActorConfig()
    browser: BrowserConfig = BrowserConfig()
    guard: GuardConfig = GuardConfig()
    prompt: PromptConfig = PromptConfig()
    limits: EpisodeLimits = EpisodeLimits()
    judge: JudgeSettings = JudgeSettings()
    search_urls: Mapping[str, str] = Field(default_factory=dict)
    extra_actions: tuple[ExtraAction, ...] = ()
    secrets: tuple[str, ...] = ()
    applications: SiteNames = ()
    apps_folder: str = safe("")
    fleet: FleetSettings = safe(FleetSettings())
    mistakes: float = internal(0.0)


E = TypeVar("E", bound=EpisodeSettings)


class TeacherConfig(ActorConfig):
    """What acts at tasks that the policy has not solved: a model, or the scripted teacher of MiniWoB++."""

    kind: Annotated[str, part_name("none", "auto", "scripted", "gemini", "chat")] = "none"  # pyright: ignore


class CollectSettings(EpisodeSettings):
    """Settings of `experiments.collect`, with the paper's values (RMSWeb, section 3.1).

    Attributes:
      pages, first_seed, seeds: MiniWoB++ pages, and how many seeds of each from the first on.
      tasks_from: alternatively, an earlier data set whose tasks are played.
      tasks_file: alternatively, a JSONL file of tasks on live pages, with `website` and `objective`.
      rounds: maximum number of attempts at a task.
      stop_after: number of successes that end a task early; 0 means never.
      reflection: reflect on each attempt and give the next one guidance.
      mistakes: share of the episodes in which the scripted teacher makes a seeded mistake.
    """

    pages: tuple[str, ...] = ()
    first_seed: int = 0
    seeds: int = 100
    tasks_from: str = ""
    tasks_file: str = ""
    rounds: int = 5
    stop_after: int = 2
    reflection: bool = True
    mistakes: float = internal(0.45, ge=0, le=1)


def resolved(settings: E) -> E:
    """Returns the settings of a fleet with its actor resolved.

    Raises:
      UserError: settings contradict each other.
    """
    if settings.prompt.style == "screenshot" and not settings.prompt.screenshot:
        raise UserError("config.prompt.screenshot: the style `screenshot` shows nothing else; set it to True")
    actor = settings.actor.model_copy(update={"mistakes": settings.mistakes}).resolve()
    return settings.model_copy(update={"actor": actor})
