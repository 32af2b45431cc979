"""What a script can be given: the text of `--help`, and the page of all settings in the documentation.

A key's meaning is in the `Attributes:` section of its class, which tools and readers know; pydantic's
attribute docstrings would need the source of each class to be parsed whenever it is imported.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import textwrap
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rmsweb_jax.settings import PartName, Settings, allowed

TYPES = {bool: "True or False", int: "whole number", float: "number", str: "text"}
_WIDTH = 110


class Key(NamedTuple):
    """A key of a script's settings; `kind` is its type and range, in words."""

    name: str
    kind: str
    default: Any
    meaning: str
    is_safe: bool


def keys_of(
    settings: type[Settings], defaults: Mapping[str, Any], where: str = "", safe: bool = False
) -> Iterator[Key]:
    """Yields the keys, those of sections under their dotted names.

    Args:
      defaults: values of a variant, as of its `ConfigDict`.
    """
    known = meanings(settings)
    for name, field in settings.model_fields.items():
        if name not in defaults:  # Only code sets it.
            continue
        is_safe = safe or bool(field.json_schema_extra)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            yield from keys_of(field.annotation, defaults[name], f"{where}{name}.", is_safe)
        else:
            parts = [
                " | ".join((*one.known, "module:name")) for one in field.metadata if isinstance(one, PartName)
            ]
            kind = ", ".join(filter(None, (*(parts or [_kind(field.annotation)]), allowed(field))))
            yield Key(where + name, kind, defaults[name], known.get(name, ""), is_safe)


def meanings(settings: type[Settings]) -> dict[str, str]:
    """Reads the `Attributes:` sections of a class and of its bases."""
    found: dict[str, str] = {}
    for one in reversed(settings.__mro__):
        text = inspect.cleandoc(vars(one).get("__doc__") or "").partition("Attributes:\n")[2]
        for names, meaning in re.findall(r"^  (\w[\w, ]*): (.*(?:\n    .*)*)", text, re.MULTILINE):
            found |= dict.fromkeys(names.split(", "), " ".join(meaning.split()))
    return found


def help_text(about: str, flags: Mapping[str, str], variants: Mapping[str, str], keys: Iterable[Key]) -> str:
    """Writes the text of `--help`; `variants` and `flags` have a line each."""
    parts = [about.strip(), "", "Flags:"]
    parts += [_entry(name, text) for name, text in flags.items()]
    parts += ["", "Variants:", *(_entry(name, text) for name, text in variants.items())]
    parts += ["", "Settings, as --config.KEY=VALUE (* may change when a workdir is continued):"]
    parts += [
        f"  {key.name} = {_shown(key.default)}   ({key.kind}){' *' * key.is_safe}\n{_block(key.meaning, 6)}"
        for key in keys
    ]
    return "\n".join(parts)


def load_variants(file: str) -> dict[str, str]:
    """Returns the variants of a config file, each with its line; none of a file that names none."""
    spec = importlib.util.spec_from_file_location("config", Path(file))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: patches[0] for name, patches in getattr(module, "VARIANTS", {}).items()}


def _kind(type_: Any) -> str:
    if typing.get_origin(type_) is Literal:
        return " | ".join(map(str, typing.get_args(type_)))
    if typing.get_origin(type_) is tuple:
        return "several, as (a, b)"
    return TYPES.get(type_, "names with values, as {'a': 1}")


def _shown(value: Any) -> str:
    return repr(value)


def _entry(name: str, text: str) -> str:
    return f"  {name}\n{_block(text, 6)}" if len(name) > 24 else f"  {name:<24}  {_block(text, 28).strip()}"


def _block(text: str, indent: int) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent=" " * indent, subsequent_indent=" " * indent)
