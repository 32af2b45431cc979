"""All applications, by name."""

from __future__ import annotations

import functools
import json
import os
import pkgutil
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import httpx

from collection.environments.apps.application import Application
from collection.environments.apps.files import files_of
from collection.environments.apps.sqlite import damage, is_database
from collection.environments.apps.tasks import AppTask, Ending, tasks_of, template_task
from collection.environments.apps.world import differences
from rmsweb_jax import own
from rmsweb_jax.errors import UserError

# Packages declare applications of their own as entry points of this group: a name and its class.
GROUP = "rmsweb_jax.applications"
_CLASSES = {
    "docs": "docs.site:Docs",
    "oscar": "oscar.site:OscarShop",
    "wiki": "wiki.site:MediaWiki",
    "ihatemoney": "ihatemoney.site:IHateMoney",
    "trac": "trac.site:Trac",
    "roundup": "roundup.site:Roundup",
    "machina": "machina.site:Machina",
    "helpdesk": "helpdesk.site:Helpdesk",
}
NAMES = tuple(_CLASSES)


def application_names() -> list[str]:
    """Returns the names of all applications, and of those of other packages."""
    return [*NAMES, *sorted(metadata.entry_points(group=GROUP).names - set(NAMES))]


def application_class(name: str, imports: bool = False) -> type[Application]:
    """Returns the class of an application: of this project, or an entry point.

    Args:
      imports: it may also be a class of the user's, `module:name`. Never for names of records and requests,
        which could then run any code of this machine.

    Raises:
      UserError: there is none of that name.
    """
    if name in _CLASSES:
        return pkgutil.resolve_name(f"collection.environments.apps.{_CLASSES[name]}")
    if imports and ":" in name:
        return own.find("applications", name)
    for found in metadata.entry_points(group=GROUP, name=name):
        return found.load()
    raise UserError(f"there is no application {name!r}: use {', '.join(application_names())}")


def level(name: str, template: str) -> str:
    """How long a template's tasks are: easy, medium or hard.

    Easy tasks take the hand-written policies at most 4 steps, medium ones 9. The steps are in `levels.json`;
    templates that are not there have no level.
    """
    steps, _ = _sizes().get(name, {}).get(template, (0, 0))
    return next(
        level for most, level in ((0, ""), (4, "easy"), (9, "medium"), (999, "hard")) if steps <= most
    )


@functools.cache
def _sizes() -> dict[str, dict[str, tuple[int, int]]]:
    """Steps, and pages seen, of each template's hand-written policy: the most of several seeds."""
    return json.loads(Path(__file__).with_name("levels.json").read_bytes())


def apps_folder(setting: str) -> Path:
    """The folder in which applications are installed; "" is one of the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(setting) if setting else cache / "rmsweb-jax/apps"


def make_application(name: str, root: Path) -> Application:
    """Makes an application that is installed below `root`, or will be.

    Raises:
      UserError: there is none of that name.
    """
    return application_class(name)(root)


def prepared(names: Iterable[str], folder: str) -> list[Application]:
    """Installs applications where they are not there yet; see `apps_folder`.

    Raises:
      UserError: there is none of a name, or it cannot be installed.
    """
    root = apps_folder(folder)
    applications = [application_class(name, imports=True)(root) for name in names]
    for application in applications:
        application.prepare()
    return applications


def check_application(application: Application, seed: int) -> None:
    """Checks that doing nothing is not paid, that a reset restores data that was damaged, and that `read`
    reads the world that was filled in.

    Args:
      application: running.

    Raises:
      UserError: a task pays who does nothing, or outside [0, 1]; or the reset does not restore.
    """
    application.reset(seed)
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
    application.reset(seed)
    if application.content() != before:
        raise UserError(
            f"{application.name}: after a visit and a reset it holds something else than before: name the "
            "tables that visits write in `by_views`, and keep all that visitors can change below `data`"
        )
    if problems := differences(application.world(seed), application.read()):
        raise UserError(f"{application.name}: read() differs from make_world(): {'; '.join(problems[:3])}")


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
    name, template, seed = (*task_id.split("/"), "", "")[:3]
    if name != application.name or template not in application.templates or not seed.isdigit():
        raise UserError(f"task {task_id!r} is not one of {application.name}: play the tasks of this version")
    return template_task(application, template, int(seed))
