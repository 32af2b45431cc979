"""What a worker plays with: pages of its own, a guard and a browser, replaced when lost or worn."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Sequence

from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.session import Browser, BrowserConfig
from collection.environments.miniwob import HOST, MiniWobServer
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Task


@dataclasses.dataclass(frozen=True)
class Wear:
    """When a browser is replaced, between episodes: they grow, and some pages leave them slow.

    Attributes:
      max_age_s: since it was started.
      max_mb: memory of all its processes; 0: not looked at, and of a browser on a grid nobody knows.
      max_episodes: played in it.
    """

    max_age_s: float
    max_mb: float
    max_episodes: int


class Station(contextlib.AbstractContextManager["Station"]):
    """Holds at most one browser, for one kind of environment and one user agent at a time.

    Args:
      secrets: environment variables whose values the agent may type without seeing them.

    Raises:
      UserError: from `browser`, when none starts, the guard's settings cannot be, or a secret is not set.
    """

    def __init__(self, browser: BrowserConfig, guard: GuardConfig, wear: Wear, secrets: Sequence[str] = ()):
        self._config, self._guard_config, self._wear = browser, guard, wear
        self._secrets = _read_secrets(secrets)
        self._kind = ("", "")  # Environment and user agent of the browser.
        self._server: MiniWobServer | None = None
        self._guard: Guard | None = None
        self._browser: Browser | None = None
        self._episodes = 0

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.discard()
        if self._server is not None:
            self._server.close()
            self._server = None

    def discard(self) -> None:
        """Ends browser and guard; the next episode gets new ones."""
        # Through the guard nothing gets out any more, so the browser ends first.
        browser, guard = self._browser, self._guard
        self._browser = self._guard = None
        try:
            if browser is not None:
                browser.close()
        finally:
            if guard is not None:
                guard.close()

    def browser(self, task: Task) -> Browser:
        """A browser for an episode of a task."""
        kind = (task.environment, self._config.user_agent_for(task.website))
        if self._browser is not None and (kind != self._kind or self._is_worn()):
            self.discard()
        if self._browser is None:
            self._start(*kind)
        assert self._browser is not None
        self._episodes += 1
        return self._browser

    def _start(self, environment: str, user_agent: str) -> None:
        config, rules = self._guard_config, ()
        hosts = config.host_addresses
        if environment == "miniwob":
            if self._server is None:
                self._server = MiniWobServer()
            hosts[HOST] = f"127.0.0.1:{self._server.port}"
            config = dataclasses.replace(config, private=(*config.private, f"http://{HOST}"))
            rules = () if config.proxy else self._server.host_rules
        try:
            self._guard = Guard(config, hosts, self._secrets)
            self._guard.start()
            browser = dataclasses.replace(self._config, host_rules=rules, user_agent=user_agent)
            self._browser = Browser(browser, self._guard)
        except BaseException:
            self.discard()
            raise
        self._kind, self._episodes = (environment, user_agent), 0

    def _is_worn(self) -> bool:
        """Whether the browser has done its time, or its guard is gone."""
        assert self._browser is not None and self._guard is not None
        if not self._guard.alive or self._episodes >= self._wear.max_episodes:
            return True
        if self._browser.age_s >= self._wear.max_age_s:
            return True
        return 0 < self._wear.max_mb < self._browser.memory_mb()


def _read_secrets(names: Sequence[str]) -> dict[str, str]:
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise UserError(f"config.secrets: the environment variable {missing[0]} is not set; export it first")
    return {name: os.environ[name] for name in names}
