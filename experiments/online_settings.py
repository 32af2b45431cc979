"""Settings of online RL: those of the training, and how episodes are played."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from collection.fleet.config import EpisodeSettings, FleetSettings, SiteNames, TeacherConfig
from collection.llm.config import ActorConfig
from rmsweb_jax.errors import UserError
from rmsweb_jax.rl.config import OnlineConfig
from rmsweb_jax.settings import Settings, internal, safe


class TrainedActor(Settings):
    """The policy as actor: what the settings of RL do not say.

    Attributes:
      timeout_s: longest silence of the server in one attempt.
      calls: maximum number of attempts at one call.
      requests_per_minute, tokens_per_minute, cap_usd, outage_hours: limits on all models of a batch of
        episodes, as in `experiments.collect`.
      server_settings: settings of the policy's server that differ from the defaults of
        `rmsweb_jax.serve.config.ServeSettings`.
    """

    timeout_s: float = safe(120.0)
    calls: int = safe(5)
    requests_per_minute: float = safe(0.0, ge=0)
    tokens_per_minute: float = safe(0.0, ge=0)
    cap_usd: float = safe(0.0, ge=0)
    outage_hours: float = safe(0.0, ge=0)
    server_settings: Mapping[str, Any] = Field(default_factory=dict)


class PlayFleet(FleetSettings):
    """The browsers of an online run, which are on its own machine."""

    engine: Literal["local"] = internal("local")  # pyright: ignore
    ray_actor: Mapping[str, Any] = internal({})
    retry_set_aside: bool = internal(False)


class PlaySettings(EpisodeSettings):
    """How episodes are played that are trained on.

    Attributes:
      teacher: plays each task once that no episode of its group has solved. The replies of a success are
        targets of the group's anchor.
    """

    # The endpoint and the sampling of the policy are RL's.
    actor: TrainedActor = TrainedActor()  # pyright: ignore
    fleet: PlayFleet = safe(PlayFleet())
    applications: SiteNames = internal(())
    teacher: TeacherConfig = TeacherConfig()

    def episodes(self, actor: ActorConfig, applications: SiteNames) -> EpisodeSettings:
        """Returns the settings with the policy as it is served, and where it plays."""
        own = {name: value for name, value in dict(self).items() if name != "teacher"}
        return EpisodeSettings(**{**own, "actor": actor, "applications": applications})

    def resolved_teacher(self, scripted: bool) -> TeacherConfig:
        """Returns the teacher, resolved.

        Args:
          scripted: whether the scripted teacher knows all tasks.

        Raises:
          UserError: see `ActorConfig.resolve`, or the scripted one does not know them.
        """
        found = self.teacher.resolve("config.play.teacher")
        if found.kind == "scripted" and not scripted:
            raise UserError(
                "config.play.teacher.kind is 'scripted', also where 'auto' finds no key: it knows MiniWoB++ "
                "alone; name a model"
            )
        return found


class OnlineSettings(OnlineConfig):
    """Settings of `experiments.train_rl` for online runs.

    Attributes:
      pages, applications: what tasks are played at: MiniWoB++ pages, and names of applications (docs/apps.md)
        or sites of your own (docs/own.md).
      tasks_file: JSONL file of tasks on live pages, with `website` and `objective`; each seed plays all of
        them, and `play.judge` judges.
      first_seed: tasks have this seed, then the next one, and so on; held-out tasks are not played.
      tasks_by: "seed" plays all pages and templates of a seed, then those of the next one; "learnability"
        plays those more often that are solved about half of the time.
      replays: number of times that an episode is played again that was lost.
      play: how episodes are played.
    """

    pages: tuple[str, ...] = ()
    applications: SiteNames = ()
    tasks_file: str = ""
    first_seed: int = 0
    tasks_by: Literal["seed", "learnability"] = "seed"
    replays: int = safe(2, ge=0)
    play: PlaySettings = PlaySettings()

    @model_validator(mode="after")
    def _check_play(self) -> Self:
        if not self.pages and not self.applications and not self.tasks_file:
            raise UserError(
                "config.pages, config.applications and config.tasks_file are empty: name what is to be played"
            )
        if self.tasks_file and self.tasks_by == "learnability":
            raise UserError(
                "config.tasks_by=learnability: tasks of config.tasks_file have no seeds; make it seed"
            )
        needs = {
            "objective.salvage_weight": (self.objective.salvage_weight, 0),
            "max_salvage_groups": (self.max_salvage_groups, self.mini_batch_groups - 1),
        }
        for name, (value, below) in needs.items() if self.play.teacher.kind != "none" else ():
            if value <= below:
                raise UserError(
                    f"config.play.teacher.kind is {self.play.teacher.kind!r} and config.{name} {value:g}: no "
                    f"reply of it would be trained on; make it more than {below}"
                )
        judge = self.play.judge
        if self.tasks_file and judge.kind in ("none", "actor") and not judge.is_own:
            raise UserError(
                f"config.play.judge.kind is {judge.kind!r}: live pages pay nothing themselves; "
                "name a judge, other than the policy itself"
            )
        return self
