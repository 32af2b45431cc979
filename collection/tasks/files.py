"""Reads files with one record per line: bad lines are reported, the rest is used. Also reads task files.

A line of a task file is a JSON object with the fields of `rmsweb_jax.records.schema.Task`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from collection.tasks.websites import site_of, start_address
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Task

T = TypeVar("T")
_SHOWN = 5


def refuse(names: Iterable[str], what: str, remedy: str) -> None:
    """Raises UserError naming the first few of `names`, if there are any.

    Args:
      what: the mistake, and where it is.
    """
    names = list(names)
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise UserError(f"{what}: {', '.join(names[:_SHOWN])}{more}; {remedy}")


@dataclasses.dataclass(frozen=True)
class BadLine:
    """A line that is left out; `number` is 1-based."""

    number: int
    reason: str


@dataclasses.dataclass(frozen=True)
class ParsedLines(Generic[T]):
    """Content of a file: the good lines in order, each with its number, and the bad ones."""

    good: tuple[tuple[int, T], ...]
    bad: tuple[BadLine, ...]

    def warning(self, path: Path) -> str:
        """Returns a message that lists the bad lines; empty if there are none."""
        if not self.bad:
            return ""
        first = "; ".join(f"line {one.number}: {one.reason}" for one in self.bad[:_SHOWN])
        more = f"; and {len(self.bad) - _SHOWN} more" if len(self.bad) > _SHOWN else ""
        return f"{path}: {len(self.bad)} malformed lines are left out: {first}{more}"


def read_lines(path: Path, parse: Callable[[str], T], what: str) -> ParsedLines[T]:
    """Parses each line that is not blank; a UTF-8 byte order mark is ignored.

    Args:
      parse: raises ValueError (or pydantic's error) for a bad line.
      what: names the records in errors.

    Raises:
      UserError: the file cannot be read, or has no good line.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}: give a file of {what}") from error
    good, bad = [], []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            good.append((number, parse(line.decode().strip())))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            bad.append(BadLine(number, _short(f"{where}: {first['msg']}" if where else first["msg"])))
        except UnicodeDecodeError as error:
            bad.append(BadLine(number, f"not UTF-8 at byte {error.start + 1}"))
        except ValueError as error:
            bad.append(BadLine(number, _short(str(error))))
    lines = ParsedLines(tuple(good), tuple(bad))
    if not good:
        reason = lines.warning(path) or f"{path}: empty"
        raise UserError(f"{reason}; nothing is left: give a file of {what}")
    return lines


def _short(text: str) -> str:
    return " ".join(text.split())[:160]


def task_id(website: str, objective: str, constraints: tuple[str, ...]) -> str:
    """Returns an id that equal tasks share, independent of their source."""
    text = json.dumps([website, objective, constraints], ensure_ascii=False)
    return f"web/{site_of(website)}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def read_tasks(path: Path) -> ParsedLines[Task]:
    """Reads tasks in the file's order; bad lines and duplicates are reported by number.

    A line needs `website` and `objective`; a missing `task_id` is derived from the content, and
    `site` from the website.

    Raises:
      UserError: the file cannot be read, or has no good line.
    """
    lines = read_lines(path, _parse_task, "tasks (JSON objects with website and objective, one a line)")
    first: dict[str, int] = {}
    good, bad = [], list(lines.bad)
    for number, task in lines.good:
        if (before := first.setdefault(task.task_id, number)) == number:
            good.append((number, task))
        else:
            bad.append(BadLine(number, f"task_id {task.task_id} is that of line {before}"))
    return ParsedLines(tuple(good), tuple(sorted(bad, key=lambda one: one.number)))


def read_all_tasks(path: Path, setting: str) -> list[Task]:
    """Reads tasks as `read_tasks` does, where leaving some out would change what a result means.

    Args:
      setting: names the file in errors.

    Raises:
      UserError: the file cannot be read, or has a line that is not a task or repeats one.
    """
    lines = read_tasks(path)
    bad = (f"line {one.number} ({one.reason})" for one in lines.bad)
    refuse(bad, f"{setting}={path}: not tasks", "fix these lines")
    return [task for _, task in lines.good]


def _parse_task(line: str) -> Task:
    raw: Any = json.loads(line)
    if not isinstance(raw, dict):
        raise ValueError("not a JSON object")
    # The id is filled in first: otherwise the error would name a field that users need not give.
    task = Task.model_validate({"task_id": "-", **raw})
    if not task.objective.strip() and task.environment == "web":
        raise ValueError("objective is empty")
    website = start_address(task.website)
    given = raw.get("task_id") or task_id(website, task.objective, task.constraints)
    return task.model_copy(
        update={"task_id": given, "website": website, "site": task.site or site_of(website)}
    )
