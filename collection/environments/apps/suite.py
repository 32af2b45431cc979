"""All applications and their tasks, by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from collection.environments.apps.application import Application, files_of
from collection.environments.apps.docs.site import PythonDocs
from collection.environments.apps.docs.tasks import docs_tasks
from collection.environments.apps.helpdesk.site import Helpdesk
from collection.environments.apps.helpdesk.tasks import helpdesk_tasks
from collection.environments.apps.ihatemoney.site import IHateMoney
from collection.environments.apps.ihatemoney.tasks import ihatemoney_tasks
from collection.environments.apps.machina.site import Machina
from collection.environments.apps.machina.tasks import machina_tasks
from collection.environments.apps.oscar.site import OscarShop
from collection.environments.apps.oscar.tasks import oscar_tasks
from collection.environments.apps.roundup.site import Roundup
from collection.environments.apps.roundup.tasks import roundup_tasks
from collection.environments.apps.sqlite import damage, is_database
from collection.environments.apps.tasks import AppTask, Ending
from collection.environments.apps.trac.site import Trac
from collection.environments.apps.trac.tasks import trac_tasks
from collection.environments.apps.wiki.site import MediaWiki
from collection.environments.apps.wiki.tasks import wiki_tasks
from rmsweb_jax.errors import UserError

# Packages declare applications of their own as entry points of this group.
GROUP = "rmsweb_jax.applications"


class ApplicationKind(NamedTuple):
    """An application and its tasks.

    Attributes:
      make: folder for all applications -> the application.
      tasks: the application, prepared, and a seed -> a task of each template.
    """

    make: Callable[[Path], Application]
    tasks: Callable[[Any, int], list[AppTask]]


_KINDS = {
    PythonDocs.name: ApplicationKind(PythonDocs, docs_tasks),
    OscarShop.name: ApplicationKind(OscarShop, oscar_tasks),
    MediaWiki.name: ApplicationKind(MediaWiki, wiki_tasks),
    IHateMoney.name: ApplicationKind(IHateMoney, ihatemoney_tasks),
    Trac.name: ApplicationKind(Trac, trac_tasks),
    Roundup.name: ApplicationKind(Roundup, roundup_tasks),
    Machina.name: ApplicationKind(Machina, machina_tasks),
    Helpdesk.name: ApplicationKind(Helpdesk, helpdesk_tasks),
}
NAMES = tuple(_KINDS)


def application_names() -> list[str]:
    """Returns the names of all applications, and of those of other packages."""
    return [*_KINDS, *sorted(metadata.entry_points(group=GROUP).names - _KINDS.keys())]


def _kind(name: str) -> ApplicationKind:
    if name in _KINDS:
        return _KINDS[name]
    for found in metadata.entry_points(group=GROUP, name=name):
        return found.load()
    raise UserError(f"there is no application {name!r}: use {', '.join(application_names())}")


def apps_folder(setting: str) -> Path:
    """The folder in which applications are installed; "" is one of the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(setting) if setting else cache / "rmsweb-jax/apps"


def make_application(name: str, root: Path) -> Application:
    """Makes an application that is installed below `root`, or will be.

    Raises:
      UserError: there is none of that name.
    """
    return _kind(name).make(root)


def prepared(names: Iterable[str], folder: str) -> list[Application]:
    """Installs applications where they are not there yet; see `apps_folder`.

    Raises:
      UserError: there is none of a name, or it cannot be installed.
    """
    applications = [make_application(name, apps_folder(folder)) for name in names]
    for application in applications:
        application.prepare()
    return applications


def tasks_of(application: Application, seed: int) -> list[AppTask]:
    """Returns a task of each template; the application must be prepared."""
    return _kind(application.name).tasks(application, seed)


def check_application(application: Application, seed: int) -> None:
    """Checks that doing nothing is not paid, and that a reset restores data that was damaged.

    Args:
      application: running.

    Raises:
      UserError: a task pays who does nothing, or outside [0, 1]; or the reset does not restore.
    """
    application.reset()
    before = application.content()
    for one in tasks_of(application, seed):
        if reward := one.reward(Ending(f"{application.url}/", "")):
            raise UserError(f"{one.task.task_id}: its check pays {reward:g} to who has done nothing")
    httpx.get(f"http://{application.address}/", headers={"host": application.host}, timeout=60.0)
    if _damage(application.data) and application.content() == before:
        raise UserError(
            f"{application.name}: its content() is the same although its data was damaged: compare all that "
            "tasks may change"
        )
    application.reset()
    if application.content() != before:
        raise UserError(
            f"{application.name}: after a visit and a reset it holds something else than before: its reset() "
            "must restore all that content() compares"
        )


def _damage(data: Path) -> bool:
    """Deletes rows of all databases in a folder, or changes its files if it has none.

    Returns:
      False if there was nothing to change.
    """
    files = [data / name for name in files_of(data)]
    if databases := [path for path in files if is_database(path)]:
        for path in databases:
            damage(path)
    else:
        for path in files:
            path.write_bytes(path.read_bytes() + b"\n")
    return bool(files)


def find_task(application: Application, task_id: str) -> AppTask:
    """Returns the task `{application}/{template}/{seed}`.

    Raises:
      UserError: it has no such template.
    """
    seed = task_id.rpartition("/")[2]
    found = {one.task.task_id: one for one in tasks_of(application, int(seed))} if seed.isdigit() else {}
    if task_id not in found:
        raise UserError(f"task {task_id!r} is not one of {application.name}: play the tasks of this version")
    return found[task_id]
