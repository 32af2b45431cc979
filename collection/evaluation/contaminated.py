"""Checks if a policy was trained on evaluation tasks; part of every evaluation's report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from collection.evaluation.benchmarks import Benchmark
from collection.tasks.contamination import BenchmarkIndex, find_overlap
from collection.tasks.files import read_all_tasks
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.schema import Task, Trajectory
from rmsweb_jax.storage import AnyPath, StorePath


def contamination_report(benchmark: Benchmark, training: Sequence[AnyPath]) -> dict[str, Any]:
    """Compares the training tasks with all questions of the benchmark, and with its task ids.

    Ids matter for MiniWoB++, whose pages ask the same question with every seed.

    Args:
      training: data sets of trajectories, or JSONL files of tasks; if empty, nothing is checked, and the
        report says so.

    Returns:
      `checked`; if it is True, also the counts by test and every overlap.

    Raises:
      UserError: an entry of `training` cannot be read; skipping it would leave its tasks unchecked.
    """
    if not training:
        return {"checked": False, "reason": "config.training is empty: the training tasks are unknown"}
    index = BenchmarkIndex(benchmark.questions)
    ids = {task.task_id for task in benchmark.tasks} | set(benchmark.excluded)
    overlaps: list[dict[str, Any]] = []
    number = 0
    for task in _different(training):
        number += 1
        overlap = find_overlap(index, task)
        if task.task_id in ids:
            overlaps.append({"task_id": task.task_id, "test": "same_id", "question": task.task_id})
        elif overlap is not None:
            overlaps.append(
                {
                    "task_id": task.task_id,
                    "test": overlap.test,
                    "question": f"{overlap.question.benchmark}/{overlap.question.task_id}",
                    "value": round(overlap.value, 4),
                    "threshold": round(overlap.threshold, 4),
                    "same_site": overlap.same_site,
                }
            )
    return {
        "checked": True,
        "training": [str(path) for path in training],
        "training_tasks": number,
        "questions": len(benchmark.questions),
        "benchmark_tasks": len(ids),
        "overlapping": len(overlaps),
        "by_test": dict(Counter(overlap["test"] for overlap in overlaps).most_common()),
        "overlaps": overlaps,
    }


def _different(training: Sequence[AnyPath]) -> Iterator[Task]:
    """Yields the distinct training tasks; tasks with one id and different texts are distinct."""
    seen: set[tuple[str, str]] = set()
    for path in training:
        for task in _tasks(path):
            if (key := (task.task_id, task.objective)) not in seen:
                seen.add(key)
                yield task


def _tasks(path: AnyPath) -> Iterator[Task]:
    if not path.exists():
        raise UserError(f"config.training={path}: not there; give data set folders or files of tasks")
    if isinstance(path, StorePath) or path.is_dir():
        yield from (trajectory.task for trajectory in read_dataset(path, Trajectory))
        return
    yield from read_all_tasks(path, "config.training")
