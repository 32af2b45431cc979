"""Endings that a check must refuse: each lacks something that its goal asks for."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from collection.environments.apps.answers import Answer
from collection.environments.apps.tasks import Ending
from collection.environments.apps.templates import Goal
from collection.environments.apps.world import Accepts, Anything, New, World, drop, put

# Name of the mutant, what the application holds, and the ending.
Mutant = tuple[str, World, Ending]


def right(goal: Goal) -> tuple[World, Ending]:
    """An ending that does what the goal asks for."""
    return concrete(goal.after), Ending(
        f"http://app.test{goal.page}", goal.answer.text if goal.answer else ""
    )


def mutants(goal: Goal, before: World) -> Iterator[Mutant]:
    """Yields endings with a wrong value, something more, half of it, or a right value in a wrong place."""
    after, end = right(goal)
    before = concrete(before)
    yield from (("wrong answer", after, Ending(end.url, text)) for text in _wrong_answers(goal, before))
    if goal.page:
        yield "wrong page", after, Ending("http://app.test/elsewhere", end.answer)
    left_open = set(_left_open(goal.after, after))
    cells = [cell for cell in _changed(before, after) if cell not in left_open]
    if cells:
        yield "nothing", before, end
    for table, key, column in cells:
        if column is None:
            yield f"half done: {table} {key}", _undone(before, after, table, key), end
        else:
            value = after[table][key][column]
            yield (
                f"wrong value: {table} {key} {column}",
                put(after, table, key, **{column: _other(value)}),
                end,
            )
            if len(cells) > 1:
                yield f"half done: {table} {key} {column}", _undone(before, after, table, key, column), end
            if place := next((one for one in before[table] if one != key and one in after[table]), None):
                left = _undone(before, after, table, key, column)
                if left[table][place].get(column) != value:
                    moved = put(left, table, place, **{column: value})
                    yield f"wrong place: {table} {key} {column}", moved, end
    for table, rows in after.items():
        for key, row in list(rows.items())[-1:]:
            yield f"extra row gone: {table} {key}", drop(after, table, key), end
            yield f"extra row: {table}", put(after, table, _number(rows), **row), end
            for column, value in row.items():
                if (table, key, column) in left_open:
                    continue
                yield (
                    f"extra change: {table} {key} {column}",
                    put(after, table, key, **{column: _other(value)}),
                    end,
                )


def concrete(world: World) -> World:
    """A world that an application could hold: numbers for new rows, one value where several are right."""
    numbers = {
        key: _number(rows, at)
        for rows in world.values()
        for at, key in enumerate(k for k in rows if isinstance(k, New))
    }

    def value(one: Any) -> Any:
        if isinstance(one, New):
            return numbers[one]
        if isinstance(one, Accepts):
            return value(one.example)
        if isinstance(one, Mapping):
            return {value(key): value(part) for key, part in one.items()}
        return type(one)(map(value, one)) if isinstance(one, list | tuple) else one

    return value(world)


def _number(rows: Mapping[Any, Any], more: int = 0) -> Any:
    numbers = [key for key in rows if isinstance(key, int)]
    if numbers:
        return max(numbers) + 1 + more
    return next(name for at in itertools.count(more) if (name := f"another-{at}") not in rows)


def _changed(before: World, after: World) -> Iterator[tuple[str, Any, str | None]]:
    """The cells that differ; no column where a row is new or gone."""
    for table in after:
        for key in {**before[table], **after[table]}:
            if key not in before[table] or key not in after[table]:
                yield table, key, None
            else:
                for column, value in after[table][key].items():
                    if before[table][key].get(column) != value:
                        yield table, key, column


def _left_open(expected: World, after: World) -> Iterator[tuple[str, Any, str]]:
    """The cells that may have any value."""
    for table, rows in expected.items():
        for key, row in zip(after[table], rows.values(), strict=True):
            yield from ((table, key, name) for name, value in row.items() if isinstance(value, Anything))


def _undone(before: World, after: World, table: str, key: Any, column: str | None = None) -> World:
    if column is not None:
        return put(after, table, key, **{column: before[table][key].get(column)})
    if key in before[table]:
        return put(after, table, key, **before[table][key])
    return drop(after, table, key)


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, list | tuple):
        return type(value)([*value, "another"]) if not value else value[:-1]
    return f"{value} other" if value else "other"


def _wrong_answers(goal: Goal, world: World) -> Iterator[str]:
    if goal.answer is None:
        return
    value = goal.answer.value
    yield ""
    yield "I do not know."
    if isinstance(value, tuple | frozenset):
        yield from _wrong_lists(goal.answer)
    elif isinstance(value, str):
        yield f"not {value}"
        yield f"{value} or another"
        for alike in _alike(world, value):
            yield ", ".join([*alike, value])
            yield ". ".join([value, *alike])
        for other in goal.answer.others:
            yield other
            yield f"{value}, {other}"
    elif isinstance(value, datetime.date):
        yield str(value + datetime.timedelta(days=1))
        yield f"{value} or {value + datetime.timedelta(days=1)}"
    else:
        yield str(value + 1)
        yield f"{value} or {value + 1}"
        yield str(-value) if value else "7"
        for other in goal.answer.others:
            yield f"{value}, {other}"
            yield f"{other}. {value}"


def _alike(world: World, value: str) -> Iterator[list[str]]:
    """Three other texts of each column, or keys of each table, that has a value."""
    for rows in world.values():
        columns = {name for row in rows.values() for name in row}
        found = [list(rows), *([row.get(name) for row in rows.values()] for name in columns)]
        for values in found:
            others = {one: None for one in values if one and isinstance(one, str) and one != value}
            if value in values and others:
                yield list(others)[:3]


def _wrong_lists(answer: Answer) -> Iterator[str]:
    texts = [str(one) for one in answer.values]
    for at, value in enumerate(answer.values):
        yield ", ".join(texts[:at] + texts[at + 1 :])
        new = [str(_next(value))] if not isinstance(value, str) else list(answer.others)
        for one in new:
            yield ", ".join([*texts[:at], one, *texts[at + 1 :]])
            yield ", ".join([*texts, one])
    kinds = {type(one) for one in answer.values}
    if isinstance(answer.value, tuple) and len(kinds) < len(texts) and texts != texts[::-1]:
        yield ", ".join(reversed(texts))


def _next(value: Any) -> Any:
    return value + (datetime.timedelta(days=1) if isinstance(value, datetime.date) else 1)
