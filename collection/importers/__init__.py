"""Imports runs of other systems as trajectories; each trajectory lists the fields that its source lacks."""

from collection.importers.common import TaskInfo, load_tasks
from collection.importers.runs import FORMATS, ImportReport, import_runs

__all__ = ["FORMATS", "ImportReport", "TaskInfo", "import_runs", "load_tasks"]
