"""Tasks in files: one JSON object a line, with the fields of `rmsweb_jax.records.schema.Task`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from collection.sites import site_of
from collection.tasks.lines import BadLine, Lines, read_lines
from collection.tasks.websites import start_address
from rmsweb_jax.records.schema import Task


def task_id(website: str, objective: str, constraints: tuple[str, ...]) -> str:
    """A name that equal tasks share, whoever made them."""
    text = json.dumps([website, objective, constraints], ensure_ascii=False)
    return f"web/{site_of(website)}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def read_tasks(path: Path) -> Lines[Task]:
    """Tasks in the file's order; bad lines and tasks that come again are told by number.

    A line needs `website` and `objective`; `task_id` is made up where it is missing, and `site` is the
    website's registrable domain.

    Raises:
      UserError: the file cannot be read, or has no good line.
    """
    lines = read_lines(path, _parse, "tasks (JSON objects with website and objective, one a line)")
    first: dict[str, int] = {}
    good, bad = [], list(lines.bad)
    for number, task in lines.good:
        if (before := first.setdefault(task.task_id, number)) == number:
            good.append((number, task))
        else:
            bad.append(BadLine(number, f"task_id {task.task_id} is that of line {before}"))
    return Lines(tuple(good), tuple(sorted(bad, key=lambda one: one.number)))


def _parse(line: str) -> Task:
    raw: Any = json.loads(line)
    if not isinstance(raw, dict):
        raise ValueError("not a JSON object")
    # The id first: without one, what is missing would be told of a field that nobody has to give.
    task = Task.model_validate({"task_id": "-", **raw})
    if not task.objective.strip() and task.environment == "web":
        raise ValueError("objective is empty")
    website = start_address(task.website)
    given = raw.get("task_id") or task_id(website, task.objective, task.constraints)
    return task.model_copy(
        update={"task_id": given, "website": website, "site": task.site or site_of(website)}
    )
