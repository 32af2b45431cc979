"""Imports a folder of foreign runs one by one; broken runs are skipped and reported with a reason."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import collection.importers.browser_use as browser_use
import collection.importers.fara as fara
import collection.importers.molmoweb as molmoweb
import collection.importers.online_mind2web as online_mind2web
import collection.importers.openwebrl as openwebrl
import collection.importers.webgym as webgym
import collection.importers.webvoyager as webvoyager
from collection.importers.common import BrokenRunError, Notes, RunContext, TaskInfo
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory


class _Find(Protocol):
    def __call__(self, folder: Path) -> Iterator[tuple[str, Path]]: ...


class _Read(Protocol):
    def __call__(self, name: str, path: Path, attempt: int, context: RunContext) -> Trajectory: ...


@dataclasses.dataclass(frozen=True)
class Format:
    """A kind of result folder: functions that find and read its runs, and its name in records."""

    source: str
    find_runs: _Find
    read_run: _Read


FORMATS = {
    "browser_use": Format(browser_use.SOURCE, browser_use.find_runs, browser_use.read_run),
    "webvoyager": Format(webvoyager.SOURCE, webvoyager.find_runs, webvoyager.read_run),
    "online_mind2web": Format(online_mind2web.SOURCE, online_mind2web.find_runs, online_mind2web.read_run),
    "fara": Format(fara.SOURCE, fara.find_runs, fara.read_run),
    "molmoweb": Format(molmoweb.SOURCE, molmoweb.find_runs, molmoweb.read_run),
    "openwebrl": Format(openwebrl.SOURCE, openwebrl.find_runs, openwebrl.read_run),
    "webgym": Format(webgym.SOURCE, webgym.find_runs, webgym.read_run),
}


class ImportReport:
    """Counts of runs found, imported and skipped, of missing fields and of unmapped actions.

    Args:
      on_run: called with one line per run: its name, its result and its missing fields.
    """

    def __init__(self, on_run: Callable[[dict[str, Any]], None] = lambda line: None):
        self._on_run = on_run
        self.skipped: list[dict[str, str]] = []
        self._counts: Counter[str] = Counter()
        self._missing_runs: Counter[str] = Counter()
        self._sites: Counter[str] = Counter()
        self._total = Notes()

    def imported(self, name: str, trajectory: Trajectory, notes: Notes) -> None:
        mapped = sum(not step.error for step in trajectory.steps)
        self._counts.update(
            imported=1,
            steps=len(trajectory.steps),
            steps_mapped=mapped,
            messages_rebuilt=sum(bool(step.messages) for step in trajectory.steps),
            screenshots=sum(step.observation.screenshot is not None for step in trajectory.steps),
            successes=int(trajectory.success),
        )
        self._sites[trajectory.task.site] += 1
        self._missing_runs.update(notes.missing.keys())
        self._total.missing += notes.missing
        self._total.actions += notes.actions
        self._total.not_mapped += notes.not_mapped
        self._total.left_out += notes.left_out
        self._on_run(
            {
                "run": name,
                "trajectory_id": trajectory.trajectory_id,
                "steps": len(trajectory.steps),
                "steps_mapped": mapped,
                "missing": dict(sorted(notes.missing.items())),
                "not_mapped": dict(sorted(notes.not_mapped.items())),
            }
        )

    def skip(self, name: str, reason: str) -> None:
        self.skipped.append({"run": name, "reason": reason})
        self._on_run({"run": name, "skipped": reason})

    def to_json(self) -> dict[str, Any]:
        """Counts for `report.json`; `missing` counts runs, and steps (1 for a field of the whole run)."""
        keys = ("imported", "steps", "steps_mapped", "messages_rebuilt", "screenshots", "successes")
        return {
            "runs": self._counts["imported"] + len(self.skipped),
            **{key: self._counts[key] for key in keys},
            "skipped": self.skipped,
            "missing": {
                field: {"runs": self._missing_runs[field], "steps": steps}
                for field, steps in sorted(self._total.missing.items())
            },
            "actions": dict(sorted(self._total.actions.items())),
            "actions_not_mapped": dict(sorted(self._total.not_mapped.items())),
            "left_out": dict(sorted(self._total.left_out.items())),
            "sites": dict(sorted(self._sites.items())),
        }


def import_runs(
    kind: Format,
    folder: Path,
    images: ImageStore,
    tasks: dict[str, TaskInfo],
    actor: str,
    report: ImportReport,
) -> Iterator[Trajectory]:
    """Yields all runs of a folder, in the order of their paths, with one in memory at a time.

    Args:
      images: store for the screenshots.
      tasks: content of the tasks file, by task id.
      actor: value of `Trajectory.actor`.

    Raises:
      UserError: the folder does not exist.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder: give --config.source=DIR with the runs to import")
    attempts: Counter[str] = Counter()
    for name, path in kind.find_runs(folder):
        notes = Notes()
        label = path.relative_to(folder).as_posix()
        try:
            trajectory = kind.read_run(
                name, path, attempts[name] + 1, RunContext(folder, images, tasks, actor, notes)
            )
        except BrokenRunError as error:
            report.skip(label, str(error))
            continue
        attempts[name] += 1
        report.imported(label, trajectory, notes)
        yield trajectory
