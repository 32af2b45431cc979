"""Settings of online RL: those of the training, and how episodes are played."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from collection.fleet.config import EpisodeSettings
from rmsweb_jax.errors import UserError
from rmsweb_jax.rl.config import OnlineConfig
from rmsweb_jax.settings import safe


class OnlineSettings(OnlineConfig):
    """Settings of `experiments.train_rl` for online runs.

    Attributes:
      pages, applications: what tasks are played at: MiniWoB++ pages, and names of applications.
      tasks_file: JSONL file of tasks on live pages, with `website` and `objective`; each seed plays all of
        them, and `play.judge` judges.
      first_seed: tasks have this seed, then the next one, and so on; held-out tasks are not played.
      replays: number of times that an episode is played again that was lost.
      play: how episodes are played; `play.actor.server_settings` are those of the policy's server.
    """

    pages: tuple[str, ...] = ()
    applications: tuple[str, ...] = ()
    tasks_file: str = ""
    first_seed: int = 0
    replays: int = safe(2, ge=0)
    play: EpisodeSettings = EpisodeSettings()

    @model_validator(mode="after")
    def _check_play(self) -> Self:
        if not self.pages and not self.applications and not self.tasks_file:
            raise UserError(
                "config.pages, config.applications and config.tasks_file are empty: name what is to be played"
            )
        if self.tasks_file and self.play.judge.kind in ("none", "actor"):
            raise UserError(
                f"config.play.judge.kind is {self.play.judge.kind!r}: live pages pay nothing themselves; "
                "name a judge, other than the policy itself"
            )
        if self.play.fleet.engine != "local":
            raise UserError(f"config.play.fleet.engine is {self.play.fleet.engine!r}: make it 'local'")
        return self
