"""Makes a file of tasks from a file of queries: written by a model, checked against benchmarks, resumable."""

from __future__ import annotations

import datetime
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from collection.llm.model import Model
from collection.tasks.contamination import BenchmarkIndex, Overlap, find_overlap
from collection.tasks.files import ParsedLines
from collection.tasks.seeds import CATEGORIES, Query, WrittenTask, write_task
from rmsweb_jax.errors import UserError
from rmsweb_jax.progress import Progress
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.journal import Journal, read_journal
from rmsweb_jax.records.schema import Task

JOURNAL = "tasks.journal"
BEGUN = "begun.json"  # The date of a run without `today`.


def write_tasks(
    queries: Iterable[Query], model: Model, today: datetime.date, workdir: Path, workers: int
) -> dict[str, WrittenTask]:
    """Returns the result for each query, by its key; queries in the workdir's journal are not sent again.

    Args:
      today: date from which relative dates count.
      workers: concurrent calls; the model's limits hold for all of them together.

    Raises:
      UserError: the model cannot be reached, or the budget is spent; finished calls are in the journal.
    """
    written = _load(workdir / JOURNAL)
    different = {query.key: query for query in queries}
    left = [query for key, query in different.items() if key not in written]
    before = len(different) - len(left)
    progress = Progress(workdir, "make_tasks", total=len(different), done=before)
    with Journal(workdir / JOURNAL) as journal:
        for number, one in enumerate(_ask(left, model, today, workers), start=1):
            journal.append(one.model_dump_json().encode())
            written[one.key] = one
            progress.update(before + number)
    progress.close()
    return written


def _ask(queries: Sequence[Query], model: Model, today: datetime.date, workers: int) -> Iterator[WrittenTask]:
    """Yields answers as they arrive. After an error it still waits for running calls: they are paid for."""
    waiting = iter(queries)
    error: BaseException | None = None
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="tasks") as pool:
        running: set[Future[WrittenTask]] = {
            pool.submit(write_task, query, model, today) for query in itertools.islice(waiting, workers)
        }
        while running:
            try:
                done, running = wait(running, return_when=FIRST_COMPLETED)
            except KeyboardInterrupt as interrupt:
                # A second interrupt gives up the running calls.
                if error is not None:
                    raise
                error = interrupt
                continue
            for future in done:
                error = error or future.exception()
                if future.exception() is None:
                    yield future.result()
            if error is None:
                running |= {
                    pool.submit(write_task, query, model, today)
                    for query in itertools.islice(waiting, len(done))
                }
    if error is not None:
        raise error


def _load(path: Path) -> dict[str, WrittenTask]:
    try:
        lines = [WrittenTask.model_validate_json(line) for line in read_journal(path)]
    except ValidationError as error:
        raise UserError(f"{path}: written by another version; use another --workdir") from error
    return {one.key: one for one in lines}


def publish_tasks(
    queries: ParsedLines[Query], written: dict[str, WrittenTask], index: BenchmarkIndex | None, workdir: Path
) -> dict[str, Any]:
    """Writes `tasks.jsonl`, and `dropped.jsonl` with a reason for every query that made none.

    Args:
      index: questions that no task may repeat; None: not checked, which the report states.

    Returns:
      The report: counts, categories, and what was dropped by which test.

    Raises:
      UserError: no task is left.
    """
    tasks: dict[str, Task] = {}
    asked: dict[str, int] = {}
    drops: list[dict[str, Any]] = [
        {"line": one.number, "kind": "malformed_line", "reason": one.reason} for one in queries.bad
    ]
    overlaps: Counter[str] = Counter()
    for number, query in queries.good:
        kind, reason = _drop_reason(query, number, written[query.key], asked, tasks)
        if not kind and index is not None:
            task = written[query.key].task
            overlap = find_overlap(index, task) if task else None
            if overlap is not None:
                kind, reason = "contaminated", _describe(overlap)
                overlaps[f"{overlap.question.benchmark}: {overlap.test}"] += 1
        if kind:
            drops.append({"line": number, "kind": kind, "reason": reason, "query": query.query})
        elif (task := written[query.key].task) is not None:
            tasks[task.task_id] = task
    drops.sort(key=lambda drop: drop["line"])
    write_atomic(workdir / "dropped.jsonl", _json_lines(drops))
    if not tasks:
        raise UserError(f"no query made a task: {workdir / 'dropped.jsonl'} says why each did not")
    write_atomic(
        workdir / "tasks.jsonl", _json_lines(task.model_dump(mode="json") for task in tasks.values())
    )
    return {
        "lines": len(queries.good) + len(queries.bad),
        "malformed_lines": [one.number for one in queries.bad],
        "tasks": len(tasks),
        "sites": len({task.site for task in tasks.values()}),
        "categories": _distribution(tasks.values()),
        "dropped": dict(Counter(drop["kind"] for drop in drops).most_common()),
        "contamination_checked": index is not None,
        "contaminated_by": dict(overlaps.most_common()),
    }


def _drop_reason(
    query: Query, number: int, written: WrittenTask, asked: dict[str, int], tasks: dict[str, Task]
) -> tuple[str, str]:
    """Returns kind and reason if a query gives no new task; both empty if it does."""
    if (before := asked.setdefault(query.key, number)) != number:
        return "duplicate", f"the query of line {before}"
    if written.drop or written.task is None:
        return written.drop or "no_answer", written.reason
    if written.task.task_id in tasks:
        return "duplicate", f"the task {written.task.task_id} again"
    return "", ""


def _describe(overlap: Overlap) -> str:
    where = "same site" if overlap.same_site else "another site"
    return (
        f"{overlap.test} {overlap.value:.2f} (from {overlap.threshold:.2f}, {where}) with "
        f"{overlap.question.benchmark} {overlap.question.task_id}"
    )


def _distribution(tasks: Iterable[Task]) -> dict[str, dict[str, float]]:
    counts = Counter(task.category for task in tasks)
    return {
        name: {"tasks": counts[name], "share": round(counts[name] / counts.total(), 4)} for name in CATEGORIES
    }


def _json_lines(records: Iterable[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


def date_of_run(today: str, workdir: Path) -> datetime.date:
    """Returns the date of `config.today`, else of the day on which the run in this workdir began.

    Raises:
      UserError: `today` is no date, or the workdir's file is damaged.
    """
    path = workdir / BEGUN
    try:
        if today:
            return datetime.date.fromisoformat(today)
    except ValueError as error:
        raise UserError(f"config.today={today!r}: write it as YYYY-MM-DD") from error
    if not path.exists():
        write_atomic(path, json.dumps({"today": datetime.date.today().isoformat()}).encode())
    try:
        return datetime.date.fromisoformat(json.loads(path.read_bytes())["today"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: damaged; use another --workdir, or set config.today") from error
