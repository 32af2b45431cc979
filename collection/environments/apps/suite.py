"""All applications and their tasks, ready for a browser."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterable, Iterator

from collection.browser.guard.config import GuardConfig
from collection.environments.apps.application import Application
from collection.environments.apps.ihatemoney import IHateMoney, money_tasks
from collection.environments.apps.manual import PythonDocs, docs_tasks
from collection.environments.apps.shop import OscarShop, shop_tasks
from collection.environments.apps.tasks import AppTask
from collection.environments.apps.trac import Trac, trac_tasks
from collection.environments.apps.wiki import MediaWiki, wiki_tasks


class Suite:
    """The applications.

    Args:
      root: where they are unpacked.
    """

    def __init__(self, root: pathlib.Path) -> None:
        self.docs, self.shop, self.wiki = PythonDocs(root), OscarShop(root), MediaWiki(root)
        self.money, self.trac = IHateMoney(root), Trac(root)

    @property
    def applications(self) -> tuple[Application, ...]:
        return self.docs, self.shop, self.wiki, self.money, self.trac

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Serves all applications; they must be prepared."""
        with contextlib.ExitStack() as stack:
            for application in self.applications:
                stack.enter_context(application)
            yield

    def tasks(self, seeds: Iterable[int]) -> list[AppTask]:
        """Returns one task of each kind per seed."""
        return [
            task
            for seed in seeds
            for task in (
                *docs_tasks(self.docs, seed),
                *shop_tasks(self.shop, seed),
                *wiki_tasks(self.wiki, seed),
                *money_tasks(self.money, seed),
                *trac_tasks(self.trac, seed),
            )
        ]

    def guard(self) -> GuardConfig:
        """Returns a guard config that allows only the applications; `application.hosts` maps their names."""
        return GuardConfig(private=tuple(application.url for application in self.applications))
