"""What an application of one's own is made of, see docs/apps.md."""

from collection.environments.apps.answers import Answer
from collection.environments.apps.application import Application, digest
from collection.environments.apps.python_site import PythonSite
from collection.environments.apps.server import ServerCommand, ServerProcess
from collection.environments.apps.suite import make_application
from collection.environments.apps.tasks import AppEnvironment, tasks_of
from collection.environments.apps.templates import (
    Draw,
    Goal,
    ask,
    change,
    count,
    create,
    drawn,
    one_of,
    other,
    other_in,
    remove,
)
from collection.environments.apps.world import Either, New, World, drop, put

__all__ = [
    "Answer",
    "AppEnvironment",
    "Application",
    "Draw",
    "Either",
    "Goal",
    "New",
    "PythonSite",
    "ServerCommand",
    "ServerProcess",
    "World",
    "ask",
    "change",
    "count",
    "create",
    "digest",
    "drawn",
    "drop",
    "make_application",
    "one_of",
    "other",
    "other_in",
    "put",
    "remove",
    "tasks_of",
]
