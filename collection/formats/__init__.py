"""Runs of other systems in, our episodes out: each format is a row of a table, `READERS` or `WRITERS`."""

from collection.formats.atif import atif_document
from collection.formats.common import TaskInfo, load_tasks
from collection.formats.exports import WRITERS, TraceCounts, write_traces
from collection.formats.hub import hub_session
from collection.formats.imports import READERS, ImportReport, import_runs

__all__ = [
    "READERS",
    "WRITERS",
    "ImportReport",
    "TaskInfo",
    "TraceCounts",
    "atif_document",
    "hub_session",
    "import_runs",
    "load_tasks",
    "write_traces",
]
