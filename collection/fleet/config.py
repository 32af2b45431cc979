"""How a fleet is run."""

from __future__ import annotations

import dataclasses
from typing import Literal

from collection.fleet.scheduler import SiteLimits
from collection.llm.config import ActorConfig
from collection.worker import WorkerConfig


@dataclasses.dataclass(frozen=True)
class FleetConfig:
    """How many work at once, and where.

    Attributes:
      workers: processes, each with a browser.
      retries: how often a round is begun again after its worker died.
      worker: what each of them needs.
      sites: how kindly sites on the live web are treated.
      drain_seconds: how long running episodes may go on after SIGTERM.
      engine: `local`, a pool of processes here; `ray`, actors on a cluster whose machines share the workdir.
      ray_address: of the cluster; empty starts Ray here.
    """

    workers: int
    retries: int
    worker: WorkerConfig
    sites: SiteLimits
    drain_seconds: float
    engine: Literal["local", "ray"] = "local"
    ray_address: str = ""

    def with_actor(self, actor: ActorConfig) -> FleetConfig:
        """The same with another actor, for example one that has been started by now."""
        return dataclasses.replace(self, worker=dataclasses.replace(self.worker, actor=actor))
