"""A user's own tasks, on live pages or on servers of the user's (`config.guard.hosts`, `.private`)."""

from __future__ import annotations

from collection.evaluation.benchmarks.base import Benchmark
from collection.evaluation.config import OwnTasksSettings
from collection.tasks.benchmarks import BenchmarkFile
from collection.tasks.contamination import BenchmarkQuestion
from collection.tasks.files import read_all_tasks
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
    # The mean over some of the tasks would look like the mean over all of them.
    tasks = tuple(read_all_tasks(path, file.setting))
    return Benchmark(
        name=NAME,
        tasks=tasks,
        files=(file.source(data, len(tasks)),),
        questions=tuple(
            BenchmarkQuestion(NAME, task.task_id, " ".join((task.objective, *task.constraints)), task.website)
            for task in tasks
        ),
    )
