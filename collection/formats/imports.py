"""Imports a folder of foreign runs one by one; broken runs are skipped and reported with a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import collection.formats.atif as atif
import collection.formats.browser_use as browser_use
import collection.formats.fara as fara
import collection.formats.pointing as pointing
import collection.formats.webvoyager as webvoyager
from collection.formats.common import BrokenRunError, Run, TaskInfo
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory


class Reader(NamedTuple):
    """A kind of result folder: its name in records, and functions that find its runs and read one.

    `find` yields the name of a run's task and its file or folder; `read` raises BrokenRunError.
    """

    source: str
    find: Callable[[Path], Iterator[tuple[str, Path]]]
    read: Callable[[Run], Trajectory]


READERS = {
    "browser_use": Reader("browser-use", browser_use.find_browser_use, browser_use.read_browser_use),
    "webvoyager": Reader("webvoyager", webvoyager.find_webvoyager, webvoyager.read_webvoyager),
    "online_mind2web": Reader(
        "online-mind2web", webvoyager.find_online_mind2web, webvoyager.read_online_mind2web
    ),
    "fara": Reader("fara", fara.find_fara, fara.read_fara),
    "molmoweb": Reader("molmoweb", pointing.find_molmoweb, pointing.read_molmoweb),
    "openwebrl": Reader("openwebrl", pointing.find_openwebrl, pointing.read_openwebrl),
    "webgym": Reader("webgym", pointing.find_webgym, pointing.read_webgym),
    "atif": Reader("atif", atif.find_atif, atif.read_atif),
}


class ImportReport:
    """Counts of an import.

    Args:
      on_run: called with one line per run: its name, and its steps and missing fields or why it was skipped.
    """

    def __init__(self, on_run: Callable[[dict[str, Any]], None] = lambda line: None):
        self._on_run = on_run
        self.skipped: list[dict[str, str]] = []
        self._counts: Counter[str] = Counter()
        self._missing: Counter[str] = Counter()
        self._unusable: Counter[str] = Counter()
        self._sites: Counter[str] = Counter()

    def imported(self, name: str, run: Trajectory) -> None:
        self._counts.update(
            imported=1,
            steps=len(run.steps),
            steps_mapped=sum(not step.error for step in run.steps),
            steps_with_messages=sum(bool(step.messages) for step in run.steps),
            screenshots=sum(step.observation.screenshot is not None for step in run.steps),
            successes=int(run.success),
        )
        self._sites[run.task.site] += 1
        self._missing.update(run.missing)
        self._unusable.update(step.error.partition(":")[0] for step in run.steps if step.error)
        line = {"run": name, "trajectory_id": run.trajectory_id, "steps": len(run.steps)}
        self._on_run(line | {"missing": list(run.missing)})

    def skip(self, name: str, reason: str) -> None:
        self.skipped.append({"run": name, "reason": reason})
        self._on_run({"run": name, "skipped": reason})

    def to_json(self) -> dict[str, Any]:
        """Counts for `report.json`; `missing` counts runs, `unusable` the steps without an action of ours."""
        keys = ("imported", "steps", "steps_mapped", "steps_with_messages", "screenshots", "successes")
        return {
            "runs": self._counts["imported"] + len(self.skipped),
            **{key: self._counts[key] for key in keys},
            "skipped": self.skipped,
            "missing": dict(sorted(self._missing.items())),
            "unusable": dict(sorted(self._unusable.items())),
            "sites": dict(sorted(self._sites.items())),
        }


def import_runs(
    kind: Reader,
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
    for name, path in kind.find(folder):
        label = path.relative_to(folder).as_posix()
        run = Run(kind.source, name, path, folder, images, tasks, actor, attempts[name] + 1)
        try:
            trajectory = kind.read(run)
        except BrokenRunError as error:
            report.skip(label, str(error))
            continue
        attempts[name] += 1
        report.imported(label, trajectory)
        yield trajectory
