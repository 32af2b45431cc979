"""Where tasks are made from seeds: applications, and environments of the user's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from collection.environments.apps.application import Application
from collection.environments.apps.suite import application_class, prepared
from collection.environments.apps.tasks import tasks_of
from rmsweb_jax import own
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Task


class Sites:
    """Applications, installed, and environments.

    Args:
      names: of applications; or `module:name` of a class, an `Application` or an `Environment` with `tasks`.
      folder: as for `prepared`.

    Attributes:
      applications: those among them.

    Raises:
      UserError: there is none of a name, or it cannot be installed.
    """

    def __init__(self, names: Iterable[str], folder: str):
        classes = {name: site_class(name) for name in names}
        apps = [name for name, one in classes.items() if issubclass(one, Application)]
        self.applications = prepared(apps, folder)
        self._applications = dict(zip(apps, self.applications, strict=True))
        self._classes = classes

    def tasks(self, seed: int) -> list[Task]:
        """Makes the tasks of a seed; those of the user's own sites name their class.

        Raises:
          UserError: an environment of the user's own gives something else.
        """
        found: list[Task] = []
        for name, one in self._classes.items():
            if application := self._applications.get(name):
                made = [task.task for task in tasks_of(application, seed)]
            else:
                made = _tasks(name, one, seed)
            if ":" in name:
                made = [_at(name, one, task, seed) for task in made]
            found += made
        return found


def site_class(name: str) -> type:
    """Returns the class of a site.

    Raises:
      UserError: there is none of that name, or it is none of a site.
    """
    if ":" not in name:
        return application_class(name)
    found = own.find("applications", name)
    fault = ""
    if not isinstance(found, type) or not (issubclass(found, Application) or hasattr(found, "tasks")):
        fault = "make it an Application, or an Environment with tasks(seed)"
    elif lacking := sorted(getattr(found, "__abstractmethods__", ())):
        fault = f"it lacks {', '.join(lacking)}"
    if fault:
        raise UserError(f"config.applications has {name!r}: {fault} (docs/own.md)")
    return found


def place_of(task: Task) -> str:
    """Returns what plays a task: `web`, `miniwob`, an application, or `module:name` of the user's own."""
    return task.task_id.partition("/")[0] if task.environment == "app" else task.environment


def check_places(tasks: Iterable[Task], names: Iterable[str]) -> None:
    """Raises `UserError` for a task at a class that the settings do not name: records may be of others."""
    named = frozenset(names)
    for task in tasks:
        place = place_of(task)
        if ":" in place and place not in named:
            raise UserError(
                f"{task.task_id} is played at {place}, which this run does not name: add it to "
                "config.applications"
            )


def _tasks(name: str, site: Any, seed: int) -> list[Task]:
    made, fault = list[Task](), ""
    try:
        made = list(site.tasks(seed))
    except Exception as error:  # Anything may go wrong in code of the user's.
        fault = own.one_line(error)
    if fault or not made or not all(isinstance(task, Task) for task in made):
        fault = fault or f"it gives {made}, make that a list of Task"
        raise UserError(f"config.applications has {name!r}: tasks({seed}): {fault} (docs/own.md)")
    return made


def _at(name: str, site: type, task: Task, seed: int) -> Task:
    place = {"environment": name, "site": task.site or site.__name__}
    return task.model_copy(update={**place, "seed": seed if task.seed is None else task.seed})
