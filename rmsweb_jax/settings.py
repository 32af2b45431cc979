"""Settings of the experiments: dataclasses define them, a `ConfigDict` carries them from the command line.

Name, type, default and meaning of a key are defined in the dataclass only. `variant_config` makes the
`ConfigDict` of a config file from it, `from_config` converts that back to the dataclass and refuses unknown
keys. A field that is a dataclass is a section.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import difflib
import functools
import math
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

from ml_collections import ConfigDict

from rmsweb_jax.errors import UserError

T = TypeVar("T")
# Keys that differ from the defaults, with a mapping for each section.
Patch = Mapping[str, Any]
_TYPE_NAMES = {bool: "True or False", int: "a whole number", float: "a number", str: "a text"}


def required(what: str) -> Any:
    """Declares a text field without a default: "" in the `ConfigDict`, which `from_config` refuses.

    Args:
      what: description of the missing value, for the error message.
    """
    return dataclasses.field(metadata={"required": what})


def safe(default: Any) -> Any:
    """Declares a field, or a whole section, that may change between the runs of one workdir."""
    return dataclasses.field(default=default, metadata={"safe": True})


def internal(default: Any) -> Any:
    """Declares a field that only code sets, which is not a key of the settings."""
    return dataclasses.field(default_factory=lambda: default, metadata={"internal": True})


class Range(NamedTuple):
    """The numbers that a setting may be, in the words of pydantic's `Field`; NaN is in no range."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def __contains__(self, value: object) -> bool:
        assert isinstance(value, (int, float))
        return (
            not math.isnan(value)
            and (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )

    def __str__(self) -> str:
        if self == Range(ge=self.ge):
            return f"{self.ge:g} or more"
        words = ("at least", "more than", "at most", "less than")
        return " and ".join(
            f"{word} {bound:g}" for word, bound in zip(words, self, strict=True) if bound is not None
        )


def check_ranges(settings: Any, ranges: Mapping[str, Range]) -> None:
    """Refuses numbers out of range.

    Args:
      ranges: by dotted names of settings.

    Raises:
      UserError: naming the first one.
    """
    for name, allowed in ranges.items():
        value = functools.reduce(getattr, name.split("."), settings)
        if value not in allowed:
            raise UserError(f"config.{name} is {value}: make it {allowed}")


def to_config_dict(settings: Any) -> ConfigDict:
    """Converts a dataclass with its defaults, or an instance with its values, to a `ConfigDict`."""
    return ConfigDict(_to_dict(settings))


def variant_config(
    settings: type, variants: Mapping[str, Patch | tuple[Patch, ...]], variant: str
) -> ConfigDict:
    """Makes a variant of a config file: the defaults of `settings`, changed by patches in order.

    Raises:
      UserError: there is no such variant.
    """
    if variant not in variants:
        raise UserError(f"unknown variant {variant!r}: {_suggestion(variant, variants)}")
    config = to_config_dict(settings)
    patches = variants[variant]
    for patch in patches if isinstance(patches, tuple) else (patches,):
        _apply(config, settings, patch, "config")
    return config


def from_config(settings: type[T], config: T | ConfigDict | Mapping[str, Any], complete: bool = True) -> T:
    """Converts a `ConfigDict`, or its `to_dict()`, to `settings`; missing keys keep their defaults.

    An instance of `settings` is returned unchanged.

    Args:
      complete: False allows empty required fields.

    Raises:
      UserError: a key is unknown, a value has another type or is not among the choices, or a required field
        is empty.
    """
    if isinstance(config, settings):
        return config
    values = config.to_dict() if isinstance(config, ConfigDict) else config
    return _read_section(settings, values, None, "config", complete)


def key_names(settings: type, prefix: str = "") -> Iterator[str]:
    """Yields the dotted names of all keys."""
    hints = typing.get_type_hints(settings)
    for field in _fields(settings):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from key_names(hints[field.name], f"{prefix}{field.name}.")
        else:
            yield prefix + field.name


def safe_keys(settings: type, prefix: str = "") -> Iterator[str]:
    """Yields the dotted names of keys and sections that may change between the runs of one workdir."""
    hints = typing.get_type_hints(settings)
    for field in _fields(settings):
        if field.metadata.get("safe"):
            yield prefix + field.name
        elif dataclasses.is_dataclass(hints[field.name]):
            yield from safe_keys(hints[field.name], f"{prefix}{field.name}.")


def unknown_key(name: str, known: Iterable[str]) -> str:
    """Writes the message for an unknown key.

    Args:
      name: dotted name, below `config`.
      known: dotted names of all keys.
    """
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
    return f"use one of {', '.join(prefix + one for one in siblings.values() or names)}"


def _fields(settings: type) -> list[dataclasses.Field]:
    return [field for field in dataclasses.fields(settings) if not field.metadata.get("internal")]


def _default(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    if field.default is dataclasses.MISSING and "required" in field.metadata:
        return ""
    return field.default


def _to_dict(settings: Any) -> dict[str, Any]:
    values = {}
    for field in _fields(settings):
        value = _default(field) if isinstance(settings, type) else getattr(settings, field.name)
        assert value is not dataclasses.MISSING, f"{settings}: {field.name} has no default"
        values[field.name] = _plain(value)
    return values


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return _to_dict(value)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def _apply(config: ConfigDict, settings: type, patch: Patch, where: str) -> None:
    # Resolved types: annotations are strings here (`from __future__ import annotations`).
    hints = typing.get_type_hints(settings)
    for name, value in patch.items():
        if name not in config:
            section = f"{where}.".partition(".")[2]
            raise UserError(unknown_key(f"{section}{name}", key_names(settings, section)))
        if dataclasses.is_dataclass(hints[name]):
            _apply(typing.cast(ConfigDict, config[name]), hints[name], value, f"{where}.{name}")
        else:
            value = _plain(value)
            config[name] = ConfigDict(value) if isinstance(value, dict) else value


def _read_section(type_: type[T], values: Any, base: T | None, where: str, complete: bool) -> T:
    if not isinstance(values, Mapping):
        raise UserError(f"{where} is {values!r}: it is a section; give {where}.NAME")
    fields, hints = {field.name: field for field in _fields(type_)}, typing.get_type_hints(type_)
    section = f"{where}.".partition(".")[2]
    for name in values:
        if name not in fields:
            raise UserError(unknown_key(f"{section}{name}", key_names(type_, section)))
    read = {}
    for name, field in fields.items():
        default = _default(field) if base is None else getattr(base, name)
        key = f"{where}.{name}"
        read[name] = _read(hints[name], values.get(name, default), default, key, complete)
        if complete and not read[name] and "required" in field.metadata:
            raise UserError(f"{key} is empty: give {field.metadata['required']}")
    return type_(**read) if base is None else dataclasses.replace(base, **read)  # type: ignore[type-var]


def _read(type_: Any, value: Any, default: Any, where: str, complete: bool) -> Any:
    if dataclasses.is_dataclass(type_):
        if dataclasses.is_dataclass(value):
            value = _to_dict(value)
        base = default if dataclasses.is_dataclass(default) else None
        return _read_section(typing.cast(type, type_), value, base, where, complete)
    origin, args = typing.get_origin(type_), typing.get_args(type_)
    if origin is Literal:
        if value not in args:
            raise UserError(f"{where} is {value!r}: use one of {', '.join(map(str, args))}")
    elif origin in (typing.Union, types.UnionType):
        if value is not None:
            return _read(next(arg for arg in args if arg is not types.NoneType), value, None, where, complete)
    elif origin is tuple:
        if not isinstance(value, (tuple, list)):
            raise UserError(f"{where} is {value!r}: give it in brackets, with commas: ('a', 'b')")
        items = args[:1] * len(value) if args[-1] is Ellipsis else args
        if len(items) != len(value):
            raise UserError(f"{where} is {value!r}: give {len(items)} values")
        return tuple(_read(item, one, None, where, complete) for item, one in zip(items, value, strict=True))
    elif origin in (dict, collections.abc.Mapping):
        if not isinstance(value, Mapping):
            raise UserError(f"{where} is {value!r}: it is a section; give {where}.NAME")
        return {
            _read(args[0], key, None, where, complete): _read(args[1], one, None, f"{where}.{key}", complete)
            for key, one in value.items()
        }
    # `--config.lr=1` is an integer for the command line; True is an int for Python, but not a number here.
    elif type_ is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    elif type_ in _TYPE_NAMES and type(value) is not type_:
        raise UserError(f"{where} is {value!r}: give {_TYPE_NAMES[type_]}")
    elif type_ is float and not math.isfinite(value):
        raise UserError(f"{where} is {value}: give a finite number")
    return value
