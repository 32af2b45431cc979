"""Importing a folder of foreign runs, as the tests of each format do."""

from pathlib import Path
from typing import Any

from collection.config import QualityConfig
from collection.corpus.filter import FilterCounts, make_samples, quality_filter
from collection.importers import FORMATS, ImportReport, TaskInfo, import_runs
from rmsweb_jax.actions import parse_reply
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory
from tests.importers.foreign_runs import history_item

# What no other system's files hold.
OURS_ALONE = ("incidents", "judge_text", "judge_usage", "judge_score", "judge_fingerprint", "retries")


def read(
    kind: str, folder: Path, tasks: dict[str, TaskInfo] | None, actor: str
) -> tuple[list[Trajectory], dict[str, Any], list[dict[str, Any]]]:
    """Trajectories, the report, and the line of each run; images go to `out` next to the folder."""
    lines = []
    report = ImportReport(lines.append)
    images = ImageStore(folder.parent / "out")
    found = list(import_runs(FORMATS[kind], folder, images, tasks or {}, actor, report))
    return found, report.to_json(), lines


def imported(kind: str, folder: Path, tasks: dict[str, TaskInfo] | None = None):
    """Trajectories and the report of a folder of results."""
    return read(kind, folder, tasks, "gpt")[:2]


def histories(folder: Path, tasks: dict[str, TaskInfo] | None = None):
    """Trajectories, the report and the lines of a folder of browser-use histories."""
    return read("browser_use", folder, tasks, "bu")


def samples(runs: list[Trajectory], folder: Path):
    """The samples that training would make of imported runs, and what was dropped on the way."""
    drops = []
    store = ImageStore(folder.parent / "out")
    counts = FilterCounts(drops.append)
    kept = quality_filter(runs, QualityConfig(), counts)
    return list(make_samples(kept, {}, [store], counts)), drops


def actions(step):
    return [action.to_json() for action in parse_reply(step.response).actions]


def items(**changes: Any) -> list[dict[str, Any]]:
    """The four steps of a browser-use history."""
    return [history_item(number, **changes) for number in (1, 2, 3, 4)]
