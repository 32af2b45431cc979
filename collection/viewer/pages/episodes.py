"""Pages of episodes: lists, one episode, the attempts at a task, and runs side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collection.viewer.index import COLUMNS, FILTERS, RANGES, EpisodeIndex, Query
from collection.viewer.pages.base import NotFoundError, Page, Sources, whole
from collection.viewer.steps import changed, heeded, parting, step_pages
from rmsweb_jax.records.schema import Trajectory

PAGE_SIZE = 50
# The largest number of runs side by side.
_MOST_SIDES = 12
_SHOWN = tuple(name for name in COLUMNS if name not in ("trajectory_id", "model"))


def listed(sources: Sources, asked: Mapping[str, str]) -> Page:
    """A list of episodes with filters, ranges, words, an order, and the columns that are asked for."""
    filters = {name: asked[name] for name in FILTERS if asked.get(name)}
    ranges = {name: asked[name] for column in RANGES for name in _bounds(column) if asked.get(name)}
    limits = {
        column: (ranges.get(least, ""), ranges.get(most, ""))
        for column in RANGES
        for least, most in [_bounds(column)]
    }
    query = Query(
        filters,
        limits,
        asked.get("q", ""),
        asked.get("sort", ""),
        max(0, whole(asked.get("page"), 0)),
    )
    hidden = [name for name in asked.get("hide", "").split(",") if name in _SHOWN]
    total = sources.index.count(query)
    return Page(
        "episodes",
        "Episodes",
        {
            "rows": sources.index.rows(query, PAGE_SIZE),
            "query": query,
            "total": total,
            "pages": -(-total // PAGE_SIZE),
            "choices": {name: sources.index.values(name) for name in FILTERS},
            "ranges": {column: (*_bounds(column), kind) for column, kind in RANGES.items()},
            "asked": {**filters, **ranges, "q": query.words, "sort": query.sort, "hide": ",".join(hidden)},
            "columns": [name for name in _SHOWN if name not in hidden],
            "hidden": hidden,
        },
    )


def _bounds(column: str) -> tuple[str, str]:
    """The parameters of an address for the least and the most of a column."""
    return f"{column}_from", f"{column}_to"


def one(sources: Sources, asked: Mapping[str, str]) -> Page:
    """An episode, step by step."""
    run = sources.episode(asked)
    return Page(
        "episode",
        run.trajectory_id,
        {
            "run": run,
            "data": asked["data"],
            "steps": step_pages(run),
            "images": sources.images(asked["data"]),
            "label": sources.labels.get("episodes", run.trajectory_id),
        },
    )


def chain(sources: Sources, asked: Mapping[str, str]) -> Page:
    """The attempts at a task by one actor: attempt, reflection, retry."""
    data, task = asked.get("data", ""), asked.get("task", "")
    found = sources.folders.all().get(data)
    all_rows = sources.index.of_task(task)
    rows = [row for row in all_rows if row["dataset"] == data]
    if found is None or not rows:
        raise NotFoundError(f"no attempts at {task!r} in {data!r}")
    notes = {
        line.get("attempt"): str(line.get("guidance", ""))
        for line in found.lines("reflections.jsonl")
        if line.get("task_id") == task
    }
    attempts: list[dict[str, Any]] = []
    for row in rows:
        run = _read(sources.index, row)
        earlier = attempts[-1] if attempts and attempts[-1]["row"]["actor"] == row["actor"] else None
        guidance = notes.get(row["attempt"] - 1, "") if earlier else ""
        note = notes.get(row["attempt"], "")
        attempts.append(
            {
                "row": row,
                "run": run,
                "steps": step_pages(run),
                "note": note,
                "note_changes": changed(earlier["note"], note)
                if earlier and earlier["note"] and note
                else [],
                "guidance": guidance,
                "parting": parting(earlier["run"], run) if earlier else None,
                "heeded": heeded(guidance, run),
            }
        )
    objective = attempts[0]["run"].task.objective
    others = [row for row in all_rows if row["dataset"] != data]
    values = {"task": task, "data": data, "objective": objective, "attempts": attempts, "others": others}
    return Page("chain", f"Attempts at {task}", values)


def compare(sources: Sources, asked: Mapping[str, str]) -> Page:
    """All episodes of a task side by side, by policy; `data` (separated by commas) chooses data sets."""
    task = asked.get("task", "")
    wanted = [name for name in asked.get("data", "").split(",") if name]
    rows = [row for row in sources.index.of_task(task) if not wanted or row["dataset"] in wanted]
    if not rows:
        raise NotFoundError(f"no episodes of {task!r}")
    sides = []
    for row in rows[:_MOST_SIDES]:
        run = _read(sources.index, row)
        sides.append(
            {"row": row, "run": run, "steps": step_pages(run), "images": sources.images(row["dataset"])}
        )
    values = {
        "task": task,
        "sides": sides,
        "left_out": len(rows) - len(sides),
        "objective": sides[0]["run"].task.objective,
        "parts": [parting(sides[0]["run"], side["run"]) for side in sides],
        "chosen": _chosen(rows),
    }
    return Page("compare", f"Runs of {task}", values)


def _chosen(rows: list[dict[str, Any]]) -> list[str]:
    """The data sets of the episodes, each once."""
    return list(dict.fromkeys(row["dataset"] for row in rows))


def _read(index: EpisodeIndex, row: Mapping[str, Any]) -> Trajectory:
    run = index.read(row["dataset"], row["trajectory_id"])
    if run is None:  # Its data set was replaced meanwhile.
        raise NotFoundError(f"no episode {row['trajectory_id']!r} in {row['dataset']}")
    return run
