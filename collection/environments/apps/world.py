"""What an application holds, as rows of tables, and how two such worlds differ."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

# Values are texts, numbers, and lists of them; lists whose order means nothing are sorted.
Row = Mapping[str, Any]
World = Mapping[str, Mapping[Any, Row]]


@dataclasses.dataclass(frozen=True)
class New:
    """Key of a new row, whose number the application chooses; other rows may have it as a value."""

    name: str = "new"


@runtime_checkable
class Accepts(Protocol):
    """An expected value that more than one value fulfils."""

    @property
    def example(self) -> Any:
        """One of them."""
        ...

    def accepts(self, value: Any) -> bool: ...


@dataclasses.dataclass(frozen=True)
class Either:
    """One of several values."""

    values: tuple[Any, ...]

    @property
    def example(self) -> Any:
        return self.values[0]

    def accepts(self, value: Any) -> bool:
        return any(same(one, value) for one in self.values)


@dataclasses.dataclass(frozen=True)
class Anything:
    """A value that a task leaves open."""

    example: Any = ""

    def accepts(self, value: Any) -> bool:
        return True


def put(world: World, table: str, key: Any, **values: Any) -> World:
    """Returns the world with other values in a row, or with a new row."""
    rows = world[table]
    return {**world, table: {**rows, key: {**rows.get(key, {}), **values}}}


def drop(world: World, table: str, *keys: Any) -> World:
    """Returns the world without some rows."""
    return {**world, table: {key: row for key, row in world[table].items() if key not in keys}}


def tidy(text: str) -> str:
    """A text as it was meant: forms send other ends of lines, and people leave more of them."""
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def same(expected: Any, value: Any) -> bool:
    """Whether a value is what was expected."""
    if expected == value:
        return True
    if isinstance(expected, Accepts):
        return expected.accepts(value)
    if isinstance(expected, str) and isinstance(value, str):
        return tidy(expected) == tidy(value)
    if isinstance(expected, float) and isinstance(value, int | float):
        return math.isclose(expected, value, abs_tol=1e-6)
    if isinstance(expected, list | tuple) and isinstance(value, list | tuple):
        return len(expected) == len(value) and all(map(same, expected, value))
    return False


def differences(expected: World, actual: World) -> list[str]:
    """Returns how a world differs from the expected one, a line each; empty if it does not.

    Rows under `New` keys may have any number that the expected world does not have.
    """
    best: list[str] | None = None
    for numbers in _numberings(expected, actual):
        found = list(_compare(_numbered(expected, numbers) if numbers else expected, actual))
        if best is None or len(found) < len(best):
            best = found
        if not best:
            break
    return best or []


def _numberings(expected: World, actual: World) -> Iterator[dict[New, Any]]:
    """Yields each way to give `New` keys the keys that only the actual world has."""
    pairs = []
    for table, rows in expected.items():
        new = [key for key in rows if isinstance(key, New)]
        pairs.append((new, [key for key in actual.get(table, {}) if key not in rows]))
    if any(len(new) != len(free) for new, free in pairs):  # They differ anyway.
        yield {key: number for new, free in pairs for key, number in zip(new, free, strict=False)}
        return
    for way in itertools.product(*(itertools.permutations(free) for _, free in pairs)):
        yield {
            key: one
            for (new, _), free in zip(pairs, way, strict=True)
            for key, one in zip(new, free, strict=True)
        }


def _numbered(value: Any, numbers: Mapping[New, Any]) -> Any:
    if isinstance(value, New):
        return numbers.get(value, value)
    if isinstance(value, Mapping):
        return {_numbered(key, numbers): _numbered(one, numbers) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_numbered(one, numbers) for one in value)
    return value


def _compare(expected: World, actual: World) -> Iterator[str]:
    for table in expected.keys() | actual.keys():
        rows, others = expected.get(table, {}), actual.get(table, {})
        if rows == others:  # Most tables are: looking at each value would take longer.
            continue
        for key in others.keys() - rows.keys():
            yield f"{table} {key}: there, but should not be"
        for key, row in rows.items():
            if key not in others:
                yield f"{table} {key}: missing"
                continue
            if row == others[key]:  # Most are, and each value takes time.
                continue
            for column in row.keys() | others[key].keys():
                value = others[key].get(column)
                if not same(row.get(column), value):
                    yield f"{table} {key}: {column} is {value!r}, not {row.get(column)!r}"
