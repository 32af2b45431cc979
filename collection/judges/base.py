"""What a judge is asked and what it says."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from collection.llm.model import ImageSource
from rmsweb_jax.records.schema import CallUsage, Trajectory


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a judge made of an episode.

    Attributes:
      success: None when it could not tell, or did not say it in the form asked for.
      text: its own words, or why nobody was asked.
    """

    success: bool | None
    text: str
    usage: CallUsage = dataclasses.field(default_factory=CallUsage)


class Judge(Protocol):
    """Judges finished episodes. Raises `UserError` when its model cannot answer."""

    @property
    def name(self) -> str:
        """As written to `Trajectory.judge`."""
        ...

    def judge(self, trajectory: Trajectory, images: ImageSource) -> Verdict: ...
