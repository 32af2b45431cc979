"""Settings of the agent: its prompt, and the limits of an episode."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rmsweb_jax.settings import Settings, internal


class PromptConfig(Settings):
    """Prompt settings.

    Attributes:
      style: `full` for large models; `compact` for the demo's model, whose context is a few hundred tokens;
        `screenshot` for policies that see no page text and act on points (docs/train.md).
      screenshot: show the screenshot; False for a model that takes text alone. It is recorded all the same.
      date: the date that the agent is shown; empty means the day of the episode in `full` style and no
        date in `compact`.
      max_actions: number of actions that a reply may have.
    """

    style: Literal["full", "compact", "screenshot"] = "full"
    screenshot: bool = True
    date: str = internal("")
    max_actions: int = internal(10)


class EpisodeLimits(Settings):
    """Limits that end an episode.

    Attributes:
      max_steps: number of steps; in the last one only `done` is allowed.
      max_failures: number of failed steps in a row, after which one `done`-only step ends the episode.
      max_blocked: number of observations in a row with a captcha or a refusal.
      max_seconds: wall-clock time; no observation, query or action starts after it. The time in which the
        actor's model does not answer does not count.
    """

    max_steps: int = Field(default=100, ge=1)
    max_failures: int = internal(3, ge=1)
    max_blocked: int = internal(5, ge=1)
    max_seconds: float = Field(default=1800.0, gt=0)
