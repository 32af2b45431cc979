"""All applications and their tasks, ready for a browser."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterable, Iterator

from collection.browser.guard.config import GuardConfig
from collection.environments.apps.application import Application
from collection.environments.apps.docs_tasks import docs_tasks
from collection.environments.apps.mediawiki import MediaWiki
from collection.environments.apps.python_docs import PythonDocs
from collection.environments.apps.shop import OscarShop
from collection.environments.apps.shop_tasks import shop_tasks
from collection.environments.apps.tasks import AppTask
from collection.environments.apps.wiki_tasks import wiki_tasks


class Suite:
    """The three applications.

    Args:
      root: where they are unpacked.
    """

    def __init__(self, root: pathlib.Path) -> None:
        self.docs, self.shop, self.wiki = PythonDocs(root), OscarShop(root), MediaWiki(root)

    @property
    def applications(self) -> tuple[Application, ...]:
        return self.docs, self.shop, self.wiki

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Serves all of them; they have to be prepared."""
        with contextlib.ExitStack() as stack:
            for application in self.applications:
                stack.enter_context(application)
            yield

    def tasks(self, seeds: Iterable[int]) -> list[AppTask]:
        """One of each kind a seed."""
        return [
            task
            for seed in seeds
            for task in (
                *docs_tasks(self.docs, seed),
                *shop_tasks(self.shop, seed),
                *wiki_tasks(self.wiki, seed),
            )
        ]

    def guard(self) -> GuardConfig:
        """Lets a browser reach the applications and nothing else; `application.hosts` says where they are."""
        return GuardConfig(private=tuple(application.url for application in self.applications))
