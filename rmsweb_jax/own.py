"""Parts of one's own: a class or a function that a setting names by its import path, `module:name`.

It takes the place of one of the project's. It is imported before a run does anything else, and the SHA-256 of
the file that defines it is kept with the settings in `config.json`: a run goes on only with the same file.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import os
import sys
from pathlib import Path
from typing import Any

from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import Settings, own_names


def find(key: str, name: str) -> Any:
    """Imports a class or a function, from the current folder, PYTHONPATH or a package.

    Args:
      key: that names it, without `config.`, for errors.

    Raises:
      UserError: it is not there, or its module cannot be imported; in one line.
    """
    module, _, attribute = name.partition(":")
    # A console script does not look there, unlike `python -m`.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    # Anything may go wrong in code of the user's.
    try:
        found = getattr(importlib.import_module(module), attribute)
        _file(name, found)
    except Exception as error:
        where = "; is its folder the current one, or in PYTHONPATH?"
        advice = where if isinstance(error, ModuleNotFoundError) and error.name == module else ""
        raise UserError(f"config.{key} is {name!r}: {one_line(error)}{advice}") from error
    return found


def takes(found: Any, parameter: str) -> bool:
    """Returns True if a class or a function has a parameter of this name."""
    return callable(found) and parameter in inspect.signature(found).parameters


def make(key: str, name: str, kind: type, passes: tuple[type[Exception], ...] = (), **offered: Any) -> Any:
    """Makes an object of a class of one's own.

    Args:
      kind: the interface that it must have.
      passes: errors that are no fault of the class.
      offered: arguments; it gets those that its `__init__` has parameters for.

    Raises:
      UserError: as `find`; or it cannot be made, or lacks a part of `kind`.
    """
    found = find(key, name)
    fault, made = "it is no class", None
    if inspect.isclass(found):
        try:
            made = found(**{one: value for one, value in offered.items() if takes(found, one)})
            lacking = [one for one in vars(kind) if one[0] != "_" and not hasattr(made, one)]
            fault = f"it has no {lacking[0]}" if lacking else ""
        except (UserError, *passes):
            raise
        except Exception as error:
            fault = one_line(error)
    if fault:
        raise UserError(f"config.{key} is {name!r}: {fault}; see {kind.__name__} in docs/own.md")
    return made


def own_files(settings: Settings) -> dict[str, Any]:
    """Imports what settings name, and returns it with the SHA-256 of the file of each, under the same keys.

    The whole file counts: constants and other functions of it. What it imports does not.

    Raises:
      UserError: as `find`.
    """
    tree: dict[str, Any] = {}
    for key, names in own_names(settings):
        *sections, last = key.split(".")
        place = tree
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = ", ".join(f"{name} {file_digest(key, name)}" for name in names)
    return tree


@functools.cache
def file_digest(key: str, name: str) -> str:
    """Returns the SHA-256 of the file that defines a part, as it was when it was first asked for.

    It may be edited while the process goes on with what it has imported. Raises as `find`.
    """
    return hashlib.sha256(_file(name, find(key, name)).read_bytes()).hexdigest()


def one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]


def _file(name: str, found: Any) -> Path:
    """Returns the file that defines it, or that of its module if it is no class and no plain function."""
    found = inspect.unwrap(found)
    plain = inspect.isfunction(found) or inspect.isclass(found)
    return Path(inspect.getfile(found if plain else importlib.import_module(name.partition(":")[0])))
