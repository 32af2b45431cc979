"""What workers of a fleet get: its settings, and what is resolved of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from collection.fleet.config import EpisodeSettings
from collection.judges.build import JudgeConfig, judge_config
from collection.judges.notes import TaskNotes
from collection.llm.calls import CallsAddress
from collection.llm.config import ActorConfig


@dataclasses.dataclass(frozen=True)
class FleetConfig:
    """A fleet's settings, for its workers, too.

    Attributes:
      settings: with the actor resolved; a policy's `base_url` is set.
      judge: decides if an episode on live pages is a success; without a judge none is.
      calls: of models, in the process that has started the workers.
    """

    settings: EpisodeSettings
    judge: JudgeConfig | None = None
    calls: CallsAddress | None = None

    def with_actor(self, actor: ActorConfig) -> FleetConfig:
        """Returns the config with another actor, for example with a policy whose server has started."""
        return dataclasses.replace(self, settings=self.settings.model_copy(update={"actor": actor}))


def fleet_config(settings: EpisodeSettings, notes: Mapping[str, TaskNotes] | None = None) -> FleetConfig:
    """Resolves the settings of a fleet.

    Args:
      notes: a benchmark's notes for the judge, by task id.

    Raises:
      UserError: settings contradict each other.
    """
    actor = settings.actor.model_copy(update={"mistakes": settings.mistakes}).resolve()
    judge = judge_config(settings.judge, actor, notes or {})
    return FleetConfig(settings.model_copy(update={"actor": actor}), judge)
