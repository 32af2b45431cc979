"""Settings: pydantic models define them, a `ConfigDict` carries them from the command line.

Name, type, default, range and meaning of a key stand in the model only. A field that is a model is a section.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import pydantic
from ml_collections import ConfigDict
from pydantic import AfterValidator, Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from rmsweb_jax.errors import UserError

# Changes to the defaults, with a mapping for each section.
Patch = Mapping[str, Any]
# What to do about an error of pydantic, by its type.
_ADVICE = {
    "bool_type": "give True or False",
    "int_type": "give a whole number",
    "float_type": "give a number",
    "string_type": "give a text",
    "tuple_type": "give it in brackets, with commas: ('a', 'b')",
    "missing": "give a value for each place",
    "dict_type": "it is a section; give NAME",
    "finite_number": "give a finite number",
}


class Settings(pydantic.BaseModel):
    """A section. Types are strict, but 1 is a float as well: the command line reads `--config.lr=1` as it."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


S = TypeVar("S", bound=Settings)


def required(what: str) -> Any:
    """Declares a text without a default; the error of an empty one says to give `what`."""
    return Field("", min_length=1, validate_default=True, description=what)


def safe(default: Any, **limits: Any) -> Any:
    """Declares a key, or a whole section, that may change between the runs of one workdir."""
    return Field(default, json_schema_extra={"safe": True}, **limits)


def internal(default: Any, **limits: Any) -> Any:
    """Declares a field that only code sets, which is not a key of the settings."""
    return Field(default, exclude=True, **limits)


@dataclasses.dataclass(frozen=True)
class PartName(AfterValidator):
    """Marks a text that names a part of the project, one of `known`, or of one's own, see `part_name`."""

    known: tuple[str, ...] = ()


def part_name(*known: str) -> PartName:
    """Makes the validator of a key that names a part: one of `known`, or one's own by `module:name`."""

    def check(name: str) -> str:
        if name not in known and not re.fullmatch(r"[\w.]+:\w+", name):
            names = f"one of {', '.join(known)}, or " if known else ""
            raise PydanticCustomError("part_name", "use {names}module:name", {"names": names})
        return name

    return PartName(check, known)


def own_names(settings: Settings, prefix: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yields the dotted keys that name parts of one's own, with the names."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, Settings):
            yield from own_names(value, f"{prefix}{name}.")
            continue
        # Of a text, or of the texts in a tuple.
        of_items = (getattr(one, "__metadata__", ()) for one in typing.get_args(field.annotation))
        marks = (*field.metadata, *itertools.chain.from_iterable(of_items))
        names = (value,) if isinstance(value, str) else value
        if any(isinstance(mark, PartName) for mark in marks) and any(":" in one for one in names):
            yield prefix + name, [one for one in names if ":" in one]


def to_config_dict(settings: Settings | type[Settings]) -> ConfigDict:
    """Converts a model with its defaults, or an instance with its values, to a `ConfigDict`."""
    return ConfigDict(_tree(settings))


def variant_config(
    settings: type[Settings], variants: Mapping[str, tuple[Any, ...]], name: str
) -> ConfigDict:
    """Makes a variant of a config file: the defaults of `settings`, changed by patches in order.

    Args:
      variants: by name: a line about it, and its patches.

    Raises:
      UserError: there is no such variant.
    """
    if name not in variants:
        raise UserError(f"unknown variant {name!r}: {_suggestion(name, variants)}")
    tree = _tree(settings)
    for patch in variants[name][1:]:
        _change(tree, settings, patch)
    return ConfigDict(tree)


def from_config(settings: type[S], config: S | ConfigDict | Mapping[str, Any]) -> S:
    """Converts a `ConfigDict`, or its `to_dict()`, to `settings`; missing keys keep their defaults.

    An instance of `settings` is returned unchanged.

    Raises:
      UserError: in one line, for an unknown key, or a value of another type or out of range.
    """
    if isinstance(config, settings):
        return config
    assert not isinstance(config, Settings), f"{config!r} is no {settings}"
    tree = _tree(settings)
    _change(tree, settings, config.to_dict() if isinstance(config, ConfigDict) else config)
    try:
        return settings.model_validate(tree)
    except pydantic.ValidationError as error:
        raise UserError(_reason(settings, error.errors()[0])) from None


def key_names(settings: type[Settings], prefix: str = "") -> Iterator[str]:
    """Yields the dotted names of all keys."""
    for name in _tree(settings):
        section = _section(settings, name)
        yield from key_names(section, f"{prefix}{name}.") if section else (prefix + name,)


def safe_keys(settings: type[Settings], prefix: str = "") -> Iterator[str]:
    """Yields the dotted names of keys and sections that may change between the runs of one workdir."""
    for name, field in settings.model_fields.items():
        if field.json_schema_extra:
            yield prefix + name
        elif section := _section(settings, name):
            yield from safe_keys(section, f"{prefix}{name}.")


def allowed(field: FieldInfo) -> str:
    """Writes the range of a number, such as "0 or more"; "" if it has none."""
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    bounds = {sign: getattr(one, sign) for one in field.metadata for sign in words if hasattr(one, sign)}
    if set(bounds) == {"ge"}:
        return f"{bounds['ge']:g} or more"
    return " and ".join(f"{words[sign]} {bound:g}" for sign, bound in bounds.items())


def unknown_key(name: str, known: Iterable[str]) -> str:
    """Writes the message for an unknown key, by its dotted name below `config` and those of all keys."""
    return f"unknown setting config.{name}: {_suggestion(name, known, 'config.')}"


def _suggestion(name: str, known: Iterable[str], prefix: str = "") -> str:
    names = list(known)
    section, _, last = name.rpartition(".")
    siblings = {one.rpartition(".")[2]: one for one in names if one.rpartition(".")[0] == section}
    # The same name in another section, else a similar name in this section, else a similar name in any.
    close = [one for one in names if one.rpartition(".")[2] == last]
    if len(close) != 1:
        alike = difflib.get_close_matches(last, siblings, 1)
        close = [siblings[alike[0]]] if alike else difflib.get_close_matches(name, names, 1, cutoff=0.8)
    if close:
        return f"did you mean {prefix}{close[0]}?"
    some = [prefix + one for one in siblings.values() or names]
    return f"use one of {', '.join(some[:24])}{', ...' * (len(some) > 24)}"


def _tree(settings: Settings | type[Settings]) -> dict[str, Any]:
    return (settings.model_construct() if isinstance(settings, type) else settings).model_dump()


def _section(settings: type[Settings], name: str) -> type[Settings] | None:
    type_ = settings.model_fields[name].annotation
    return type_ if isinstance(type_, type) and issubclass(type_, Settings) else None


def _plain(value: Any) -> Any:
    if isinstance(value, Settings):  # With what only code sets.
        return {name: _plain(one) for name, one in value}
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value


def _change(tree: dict[str, Any], settings: type[Settings], patch: Patch, where: str = "") -> None:
    for name, value in patch.items():
        if name not in tree:
            raise UserError(unknown_key(where + name, key_names(settings, where)))
        section = _section(settings, name)
        if section is None or isinstance(value, section):
            tree[name] = _plain(value)
        elif isinstance(value, Mapping):
            _change(tree[name], section, value, f"{where}{name}.")
        else:
            key = f"config.{where}{name}"
            raise UserError(f"{key} is {value!r}: it is a section; give {key}.NAME")


def _reason(settings: type[Settings], error: Any) -> str:
    path = [part for part in error["loc"] if isinstance(part, str)]
    name, type_ = ".".join(path), error["type"]
    if type_ == "extra_forbidden":
        return unknown_key(name, key_names(settings))
    for part in path[:-1]:
        settings = _section(settings, part) or settings
    field = settings.model_fields.get(path[-1])
    if type_ == "string_too_short" and field:
        return f"config.{name} is empty: give {field.description}"
    if type_ == "literal_error":
        advice = f"use one of {error['ctx']['expected']}".replace("'", "").replace(" or ", ", ")
    elif type_.startswith(("greater_than", "less_than")) and field:
        advice = f"make it {allowed(field)}"
    else:
        advice = str(_ADVICE.get(type_, error["msg"])).replace("NAME", f"config.{name}.NAME")
    return f"config.{name} is {error['input']!r}: {advice}"
