"""Templates of tasks: words, a selection of rows, and a question about them or a change of them."""

from __future__ import annotations

import dataclasses
import datetime
import random
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from collection.environments.apps.answers import Answer, other_values
from collection.environments.apps.world import New, Row, World, drop, put

if TYPE_CHECKING:
    from faker import Faker

T = TypeVar("T")
_LOCAL = threading.local()
Where = Callable[[Row], object]


class Draw(random.Random):
    """Random choices, the same for the same parts in every process: of a world, or of a task in it."""

    def __init__(self, *parts: object) -> None:
        super().__init__("/".join(map(str, parts)))

    @property
    def fake(self) -> Faker:
        """Made-up names of people, firms, streets and towns, drawn from these choices."""
        made = _faker()
        made.random = self  # pyright: ignore[reportAttributeAccessIssue]
        return made

    def other(self, values: Iterable[T], than: T) -> T:
        return self.choice([one for one in values if one != than])

    def some(self, values: Collection[T], low: int, high: int) -> list[T]:
        """A number of the values, in their order."""
        chosen = set(self.sample(range(len(values)), min(self.randint(low, high), len(values))))
        return [one for at, one in enumerate(values) if at in chosen]

    def distinct(self, make: Callable[[], T], count: int) -> list[T]:
        """So many different values of a function."""
        found: dict[T, None] = {}
        while len(found) < count:
            found[make()] = None
        return list(found)

    def day(self, first: str, last: str) -> str:
        begin, end = map(datetime.date.fromisoformat, (first, last))
        return str(begin + datetime.timedelta(days=self.randint(0, (end - begin).days)))

    def phrase(self, *parts: Sequence[str]) -> str:
        """One word of each list, with spaces between."""
        return " ".join(self.choice(words) for words in parts)

    def row(self, world: World, table: str, where: Where | None = None) -> tuple[Any, Row]:
        """A row of a table, with its key."""
        return self.choice([(key, row) for key, row in world[table].items() if where is None or where(row)])


def _faker() -> Faker:
    """This thread's own: it draws from what it was set to last."""
    from faker import Faker  # Half a second, which workers without applications need not wait.

    if not hasattr(_LOCAL, "faker"):
        _LOCAL.faker = Faker("en_US")
    return _LOCAL.faker


@dataclasses.dataclass(frozen=True)
class Goal:
    """What a task asks for.

    Attributes:
      words: of the task.
      after: what the application holds when it is done.
      answer: what the answer must give, if the task asks for one.
      start: path of the page on which it begins.
      page: what the last page's path must begin with.
    """

    words: str
    after: World
    answer: Answer | None = None
    start: str = "/"
    page: str = ""


# A world and the task's own choices in it -> what is asked for.
Template = Callable[[World, Draw], Goal]
# A new value of a column, from the row as it is: a constant, or a function of it.
NewValue = Any


def other(values: Iterable[Any]) -> Callable[[World, Draw, Row, str], Any]:
    """A new value: one of these, but not the one that is there."""
    return lambda world, draw, row, column: draw.other(values, row[column])


def one_of(values: Sequence[Any]) -> Callable[[World, Draw, Row, str], Any]:
    """A new value: one of these."""
    return lambda world, draw, row, column: draw.choice(values)


def other_in(table: str, column: str | None = None) -> Callable[[World, Draw, Row, str], Any]:
    """A new value: a key of a table, or a value of its column, but not the one that is there."""
    return lambda world, draw, row, name: draw.other(
        [key if column is None else one[column] for key, one in world[table].items()], row[name]
    )


def drawn(make: Callable[[Draw], Any]) -> Callable[[World, Draw, Row, str], Any]:
    """A new value: what a function draws."""
    return lambda world, draw, row, column: make(draw)


def ask(
    words: str,
    table: str,
    of: str | Callable[[World, Any, Row], Any],
    where: Where | None = None,
    form: Callable[[Any], Any] | None = None,
    among: str | Callable[[World], Iterable[Any]] = "",
    start: str = "/",
) -> Template:
    """A question about one row.

    Args:
      words: with the row's columns and its `key` in braces.
      of: the column that is asked for, or a function of world, key and row.
      form: makes the value of the answer from the column's: a number or a day from its text.
      among: what else would be a wrong answer, in addition to the column: a table's keys, or a function.
    """

    def template(world: World, draw: Draw) -> Goal:
        key, row = draw.row(world, table, where)
        value = row[of] if isinstance(of, str) else of(world, key, row)
        values = [one[of] for one in world[table].values()] if isinstance(of, str) else []
        values += among(world) if callable(among) else world[among] if among else ()
        value = form(value) if form else value
        others = other_values(values, value) if isinstance(value, str) else ()
        text = words.format(key=key, **row)
        return Goal(f"{text} Change nothing.", world, Answer(value, others), start.format(key=key, **row))

    return template


def count(
    words: str, table: str, by: Sequence[str], where: Where | None = None, start: str = "/"
) -> Template:
    """How many rows have the same values in some columns as one that is drawn; `words` has these columns."""

    def template(world: World, draw: Draw) -> Goal:
        _, row = draw.row(world, table)
        found = [
            one
            for one in world[table].values()
            if all(one[name] == row[name] for name in by) and (where is None or where(one))
        ]
        text = f"{words.format(**row)} Change nothing; answer with the number."
        return Goal(text, world, Answer(len(found)), start.format(**row))

    return template


def change(
    words: str,
    table: str,
    where: Where | None = None,
    effect: Callable[[World, Any, Row], World] | None = None,
    texts: Mapping[str, Callable[[Draw], Any]] | None = None,
    start: str = "/",
    **new: NewValue,
) -> Template:
    """New values in one row.

    Args:
      words: with the row's columns and `key` as they are, and the new values as `new_COLUMN`.
      effect: what the application changes by itself then: world, key and the row as it was -> world.
      texts: more values for the words, drawn first; functions of new values find them in the row.
      new: value by column, or a function of world, draw, row and column.
    """

    def template(world: World, draw: Draw) -> Goal:
        key, row = draw.row(world, table, where)
        row = {**row, **{name: make(draw) for name, make in (texts or {}).items()}}
        values = {name: one(world, draw, row, name) if callable(one) else one for name, one in new.items()}
        after = put(world, table, key, **values)
        after = effect(after, key, row) if effect else after
        text = words.format(key=key, **row, **{f"new_{name}": value for name, value in values.items()})
        return Goal(text, after, start=start.format(key=key, **row))

    return template


def create(
    words: str, table: str, key: Callable[[Row], Any] | None = None, start: str = "/", **columns: NewValue
) -> Template:
    """A new row; `words` has its columns.

    Args:
      key: makes its key from its columns; without it the application numbers its rows.
      columns: value by name, or a function of world, draw, the columns before it, and its name.
    """

    def template(world: World, draw: Draw) -> Goal:
        row: dict[str, Any] = {}
        for name, one in columns.items():
            row[name] = one(world, draw, row, name) if callable(one) else one
        return Goal(words.format(**row), put(world, table, key(row) if key else New(), **row), start=start)

    return template


def remove(words: str, table: str, where: Where | None = None, start: str = "/") -> Template:
    """One row fewer; `words` has its columns and its `key`."""

    def template(world: World, draw: Draw) -> Goal:
        key, row = draw.row(world, table, where)
        return Goal(words.format(key=key, **row), drop(world, table, key), start=start.format(key=key, **row))

    return template
