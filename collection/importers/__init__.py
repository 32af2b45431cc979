"""Runs of other systems as trajectories, as far as their files go, with a note of what they lack."""

from collection.importers.common import TaskInfo, load_tasks
from collection.importers.runs import FORMATS, ImportReport, ImportSettings, import_runs

__all__ = ["FORMATS", "ImportReport", "ImportSettings", "TaskInfo", "import_runs", "load_tasks"]
