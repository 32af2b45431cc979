"""Importing a folder of foreign runs, as the tests of each format do."""

from pathlib import Path
from typing import Any

from collection.formats import READERS, ImportReport, TaskInfo, import_runs
from rmsweb_jax.actions import parse_reply
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory


def imported(
    kind: str, folder: Path, tasks: dict[str, TaskInfo] | None = None
) -> tuple[list[Trajectory], dict[str, Any]]:
    """Trajectories and the report of a folder; images go to `out` next to it."""
    report = ImportReport()
    images = ImageStore(folder.parent / "out")
    found = list(import_runs(READERS[kind], folder, images, tasks or {}, "gpt", report))
    return found, report.to_json()


def summary(run: Trajectory) -> dict[str, Any]:
    """What a run's own fields say, without those at their defaults."""
    shown = run.model_dump(exclude={"steps", "task", "missing"}, exclude_defaults=True)
    assert (shown.pop("actor"), shown.pop("model"), shown.pop("attempt")) == ("gpt", "unknown", 1)
    assert (
        shown.pop("trajectory_id")
        == f"{run.task.task_id}#gpt-1"
        == f"{run.source}/{run.task.task_id.partition('/')[2]}#gpt-1"
    )
    return shown


def actions(step):
    return [action.to_json() for action in parse_reply(step.response).actions]


def shots(run: Trajectory, folder: Path) -> list[bytes | None]:
    """The stored screenshots of a run that was imported from `folder`."""
    store = ImageStore(folder.parent / "out")
    names = [step.observation.screenshot for step in run.steps]
    return [store.get(name) if name else None for name in names]
