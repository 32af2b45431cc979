"""Tasks that a run does not play to the end, because their site refuses it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import Record

SET_ASIDE = "set_aside.jsonl"


class SetAside(Record):
    """A line of `SET_ASIDE`.

    Attributes:
      rounds: episodes of the task that are on disk.
      reason: one line.
    """

    task_id: str
    site: str
    rounds: int
    reason: str


def read_set_aside(workdir: Path) -> dict[str, SetAside]:
    """Reads the tasks that are set aside, by id; none if the run has no such file.

    Raises:
      UserError: the file is damaged.
    """
    path = workdir / SET_ASIDE
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return {}
    try:
        tasks = [SetAside.model_validate_json(line) for line in lines]
    except ValidationError as error:
        raise UserError(f"{path}: damaged; delete it, and these tasks are played again") from error
    return {task.task_id: task for task in tasks}


def write_set_aside(workdir: Path, tasks: Iterable[SetAside]) -> None:
    write_atomic(workdir / SET_ASIDE, "".join(f"{task.model_dump_json()}\n" for task in tasks).encode())
