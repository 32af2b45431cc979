"""Tasks on live pages, checked before a browser starts."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.storage_state import check_state
from collection.environments.web import website_url
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Task


def check_live(tasks: Sequence[Task], config: GuardConfig, storage_state: str) -> None:
    """Checks that tasks on live pages can be played; warns about those that cannot.

    Raises:
      UserError: the guard refuses the websites of all tasks, or the storage state is for other sites.
    """
    check_state(storage_state, [website_url(task) for task in tasks])
    guard = Guard(config)
    refused = []
    for task in tasks:
        guard.admit(website=website_url(task))
        if not guard.check(website_url(task)).allowed:
            refused.append(task)
    advice = (
        "set config.guard.task_site=True, or list their hosts in config.guard.allowed, those of your own "
        "network in config.guard.private"
    )
    if refused and len(refused) == len(tasks):
        raise UserError(
            f"no task can be played: the guard refuses {refused[0].website} and all others; {advice}"
        )
    if refused:
        some = f"{len(refused)} of {len(tasks)} tasks cannot be played"
        print(f"{some}: the guard refuses {refused[0].website}; {advice}", file=sys.stderr)
