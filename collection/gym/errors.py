"""The error of an episode that is lost. Imports nothing, for harnesses in environments of their own."""

from __future__ import annotations

LOST = "episode_lost"


class EpisodeLostError(Exception):
    """The browser, its network or the application is gone, or this program failed: no reward.

    The session raises it until `reset`, which begins another episode in a new browser. The message begins
    with `LOST`, by which other programs know it.

    Attributes:
      reason: what was lost.
    """

    def __init__(self, reason: str):
        super().__init__(f"{LOST}: {reason}")
        self.reason = reason
