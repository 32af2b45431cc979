"""A worker's browser with its guard and local pages; replaced when it is lost, old or large."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from collection.browser.config import BrowserConfig, BrowserLostError, PageError
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.session import Browser
from collection.environments.apps.application import Application
from collection.environments.apps.suite import application_class, apps_folder, find_task
from collection.environments.apps.tasks import AppEnvironment
from collection.environments.base import Environment
from collection.environments.miniwob import HOST, MiniWobEnvironment, MiniWobServer
from collection.environments.sites import check_places, place_of, site_class
from collection.environments.web import WebConfig, WebEnvironment
from collection.fleet.config import RecyclePolicy
from rmsweb_jax import own
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Task

# A server of pages that is busy for longer takes no connection.
_CONNECT_S = 10.0


class BrowserPool(contextlib.AbstractContextManager["BrowserPool"]):
    """A pool of at most one browser, which serves one environment and one user agent at a time.

    Applications are started with the first task at them, and run until the pool is closed.

    Args:
      sites: the user's own, `module:name`, at which tasks may be.
      apps: folder in which applications are installed.
      secrets: environment variables whose values the agent may type without seeing them; see
        `EpisodeSettings`.

    Raises:
      UserError: a secret is not set; from `browser`: none starts, or the guard's settings are wrong.
    """

    def __init__(
        self,
        browser: BrowserConfig,
        guard: GuardConfig,
        recycle: RecyclePolicy,
        secrets: Sequence[str] = (),
        apps: str = "",
        sites: Sequence[str] = (),
    ):
        self._config, self._guard_config, self._recycle = browser, guard, recycle
        self._secrets, self._secret_hosts = read_secrets(secrets)
        self._kind = ("", "")  # Environment and user agent of the browser.
        self._server: MiniWobServer | None = None
        self._apps, self._applications = apps_folder(apps), dict[str, Application]()
        self._sites = frozenset(sites)
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
        while self._applications:
            self._applications.popitem()[1].close()

    def discard(self) -> None:
        """Ends browser and guard; the next episode gets new ones."""
        # The browser first: it must never run without the guard that filters its traffic.
        browser, guard = self._browser, self._guard
        self._browser = self._guard = None
        try:
            if browser is not None:
                browser.close()
        finally:
            if guard is not None:
                guard.close()

    def needs_browser(self, task: Task) -> bool:
        """Returns False if a task is at an environment of the user's own that takes no browser."""
        site = self._own_environment(task)
        return site is None or own.takes(site, "browser")

    def browser(self, task: Task) -> Browser:
        """Returns a browser for an episode of a task; starts one if needed."""
        check_places([task], self._sites)
        kind = (place_of(task), self._config.user_agent_for(task.website))
        # The user agent is a command-line flag, and hosts are the guard's from its start on.
        if self._browser is not None and (kind != self._kind or self._is_due()):
            self.discard()
        if self._browser is None:
            self._start(*kind)
        assert self._browser is not None
        self._episodes += 1
        return self._browser

    def check(self) -> None:
        """Raises a BrowserLostError if what stands between the browser and its pages is gone."""
        if self._guard is None or not self._guard.alive:
            raise BrowserLostError("the browser's network is gone")
        place = self._kind[0]
        address = ""
        if place == "miniwob" and self._server is not None:
            address = f"127.0.0.1:{self._server.port}"
        elif place in self._applications:
            address = self._applications[place].address
        if not address:
            return
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
        except OSError as error:
            raise BrowserLostError(f"{place} does not answer: {error}") from error

    def application(self, name: str) -> Application:
        """Returns an application, which runs from now on.

        Raises:
          UserError: there is none of that name, it is not installed, or does not start.
        """
        if name not in self._applications:
            application = application_class(name, imports=name in self._sites)(self._apps)
            application.start()
            self._applications[name] = application
        return self._applications[name]

    @contextlib.contextmanager
    def environment(
        self, task: Task, browser: Browser | None, images: ImageStore, folder: Path, web: WebConfig
    ) -> Iterator[Environment]:
        """Opens a task's environment in its browser, if it needs one.

        Args:
          folder: for files of the episode; removed afterwards.

        Raises:
          UserError: the settings do not name it, or it cannot be made.
        """
        place = place_of(task)
        if self._own_environment(task) is not None:
            offered = {"browser": browser, "images": images, "folder": folder, "config": web}
            made = own.make("applications", place, Environment, (BrowserLostError, PageError), **offered)
            with contextlib.closing(made) if hasattr(made, "close") else contextlib.nullcontext():
                yield made
            return
        assert browser is not None
        if task.environment == "miniwob":
            yield MiniWobEnvironment(browser, images)
            return
        with contextlib.closing(WebEnvironment(browser, images, folder, web)) as environment:
            if place != "web":
                application = self.application(place)
                yield AppEnvironment(environment, [find_task(application, task.task_id)])
            else:
                yield environment

    def _own_environment(self, task: Task) -> type | None:
        """Returns the class of the user's that a task names, if it is no application."""
        check_places([task], self._sites)  # First: what a record names is not imported.
        if ":" not in task.environment:
            return None
        site = site_class(task.environment)
        return None if issubclass(site, Application) else site

    def _start(self, environment: str, user_agent: str) -> None:
        config, secrets = self._guard_config, self._secrets
        hosts = config.host_addresses
        if environment == "miniwob":
            if self._server is None:
                self._server = MiniWobServer()
            # Through the guard, only this browser reaches the local pages, and only by their own name.
            hosts[HOST] = f"127.0.0.1:{self._server.port}"
            # The page server is on loopback, which the guard forbids by default.
            config = config.model_copy(update={"private": (*config.private, f"http://{HOST}")})
        elif environment != "web" and issubclass(site_class(environment), Application):
            application = self.application(environment)
            hosts[application.host] = application.address
            config = config.model_copy(update={"private": (*config.private, application.url)})
            secrets = {**secrets, **application.secrets}
        try:
            # The guard makes the empty pages in which a state's localStorage is set.
            watch = bool(self._config.storage_state)
            self._guard = Guard(config, hosts, secrets, self._secret_hosts, watch)
            self._guard.start()
            browser = self._config.model_copy(update={"user_agent": user_agent})
            self._browser = Browser(browser, self._guard)
        except BaseException:
            self.discard()
            raise
        self._kind, self._episodes = (environment, user_agent), 0

    def _is_due(self) -> bool:
        """True if the browser must be replaced: it is over a limit, or its guard is gone."""
        assert self._browser is not None and self._guard is not None
        if not self._guard.alive or self._episodes >= self._recycle.browser_max_episodes:
            return True
        if self._browser.age_s >= self._recycle.browser_max_age_s:
            return True
        return 0 < self._recycle.browser_max_mb < self._browser.memory_mb()


def read_secrets(entries: Sequence[str]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Values and hosts of secrets, by name; each entry is `NAME`, or `NAME=HOST` for each host.

    Raises:
      UserError: a variable is not set.
    """
    hosts: dict[str, list[str]] = {}
    for name, _, host in (entry.partition("=") for entry in entries):
        hosts.setdefault(name, []).append(host)
    missing = [name for name in hosts if name not in os.environ]
    if missing:
        raise UserError(f"config.secrets: the environment variable {missing[0]} is not set; export it first")
    return {name: os.environ[name] for name in hosts}, hosts
