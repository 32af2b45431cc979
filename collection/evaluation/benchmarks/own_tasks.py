"""A user's own tasks, for example on applications on this machine (`config.guard.hosts`, `.private`)."""

from __future__ import annotations

from collection.evaluation.benchmarks.base import Benchmark
from collection.evaluation.config import OwnTasksSettings
from collection.tasks.benchmarks import BenchmarkFile, refuse
from collection.tasks.contamination import BenchmarkQuestion
from collection.tasks.files import read_tasks
from rmsweb_jax.storage import local_path

NAME = "own_tasks"


def load(settings: OwnTasksSettings) -> Benchmark:
    """Reads `tasks_file`, JSON lines with `website` and `objective`; a bad line is an error here.

    Raises:
      UserError: it cannot be read, or has a line that is not a task or repeats one.
    """
    path = local_path(settings.tasks_file, "config.tasks_file")
    file = BenchmarkFile(path, "config.tasks_file", NAME)
    data = file.read()
    lines = read_tasks(path)
    # The mean over the remaining tasks would look like the mean over all of them.
    bad = (f"line {one.number} ({one.reason})" for one in lines.bad)
    refuse(bad, f"{file.setting}={path}: not tasks", "fix these lines")
    tasks = tuple(task for _, task in lines.good)
    return Benchmark(
        name=NAME,
        tasks=tasks,
        files=(file.source(data, len(tasks)),),
        questions=tuple(
            BenchmarkQuestion(NAME, task.task_id, " ".join((task.objective, *task.constraints)), task.website)
            for task in tasks
        ),
    )
