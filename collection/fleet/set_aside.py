"""Tasks that a run does not play to the end, because their site refuses it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from collection.fleet.scheduler import REFUSED
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import Outcome, Record

SET_ASIDE = "set_aside.jsonl"
# All sites may be unreachable for this long before they count as refusing.
_NETWORK_S = 3600.0


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


class Refusals:
    """Counts the refused episodes in a row of each site and task.

    Args:
      now: a monotonic clock's time, in seconds.
    """

    def __init__(self, now: float):
        self._sites: Counter[str] = Counter()
        self._tasks: Counter[str] = Counter()
        self._answered = now  # The last time that any site answered.
        self._silent: set[str] = set()  # Sites that were unreachable since.

    def of_site(self, site: str) -> int:
        return self._sites[site]

    def of_task(self, task_id: str) -> int:
        return self._tasks[task_id]

    def count(self, task_id: str, site: str, outcome: Outcome, now: float) -> None:
        """Counts an episode on a live site. A lost browser says nothing about the site."""
        if outcome == "crashed":
            return
        if outcome == "unreachable":
            self._silent.add(site)
            # Several sites at once, and none answers: that may be this machine's network.
            if len(self._silent) > 1 and now - self._answered < _NETWORK_S:
                return
        else:
            self._answered = now
            self._silent.clear()
        if outcome in REFUSED:
            self._sites[site] += 1
            self._tasks[task_id] += 1
        else:
            self._sites[site] = self._tasks[task_id] = 0
