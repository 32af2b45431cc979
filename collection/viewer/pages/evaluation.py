"""Pages of evaluations: policies against tasks with rates and intervals, judges against each other, dates."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collection.evaluation.dates import RECORD
from collection.evaluation.results import RESULTS, compare, load_results, score
from collection.judges.base import WITHOUT_RESULT
from collection.viewer.pages.base import MOST, Page, Sources
from rmsweb_jax.errors import UserError

_VERDICTS = {True: "solved", False: "failed", None: "no verdict"}


def evaluation(sources: Sources, asked: Mapping[str, str]) -> Page:
    """Policies against tasks, over all evaluations below the folders or those of `data`."""
    wanted = [name for name in asked.get("data", "").split(",") if name]
    evaluations, problems = {}, {}
    folders = sources.folders.all()
    for name, found in folders.items():
        if RESULTS not in found.files or (wanted and name not in wanted):
            continue
        try:
            evaluations[name] = load_results(found.path)
        except UserError as error:
            problems[name] = str(error)
    tasks: dict[str, dict[str, Sequence[bool | None]]] = defaultdict(dict)
    for name, results in evaluations.items():
        for task, fates in results.by_task("fate").items():
            tasks[task][name] = [None if fate in WITHOUT_RESULT else fate == "solved" for fate in fates]
    differ = asked.get("differ") == "1"
    rows = [
        (task, [found.get(name) for name in evaluations])
        for task, found in sorted(tasks.items())
        if not differ or len({_rate(found.get(name)) for name in evaluations}) > 1
    ]
    values = {
        "heads": [
            (name, results.label, _score(_version(folders[name].path)), [one for one, _ in results.judges])
            for name, results in evaluations.items()
        ],
        "rows": rows[:MOST],
        "total": len(rows),
        "differ": differ,
        "differences": _differences({name: folders[name].path for name in evaluations}),
        "problems": problems,
        "data": asked.get("data", ""),
    }
    return Page("evaluation", "Evaluation", values)


def _differences(folders: Mapping[str, Path]) -> list[dict[str, Any]]:
    """Every pair of evaluations on their common tasks; why, if they cannot be compared."""
    return [
        {"first": first, "second": second, **_difference(*map(_version, (folders[first], folders[second])))}
        for second, first in itertools.combinations(folders, 2)
    ]


def _version(folder: Path) -> tuple[Path, int]:
    return folder, (folder / RESULTS).stat().st_mtime_ns


@functools.lru_cache(maxsize=200)
def _score(folder: tuple[Path, int]) -> dict[str, Any]:
    """`score` of the results in a folder; as `_difference`."""
    return score(load_results(folder[0]))


@functools.lru_cache(maxsize=200)
def _difference(first: tuple[Path, int], second: tuple[Path, int]) -> dict[str, Any]:
    """`compare` of the results in two folders, which takes a moment; times of change are part of the key."""
    try:
        return compare(load_results(first[0]), load_results(second[0]))
    except UserError as error:
        return {"problem": str(error)}


def judges(sources: Sources, asked: Mapping[str, str]) -> Page:
    """The verdicts of `experiments.judge`, an episode a row, a judge a column; at first where they differ."""
    found = sources.folder(asked, "judgements.jsonl")
    verdicts: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for line in found.lines("judgements.jsonl"):
        verdicts[str(line.get("trajectory_id", ""))][str(line.get("judge", ""))] = line
    names = sorted({judge for row in verdicts.values() for judge in row})
    chosen = [name for name in asked.get("judges", "").split(",") if name in names]
    everything = asked.get("all") == "1"
    rows = []
    for run, row in sorted(verdicts.items()):
        said = {name: _VERDICTS.get(row[name].get("success"), "no verdict") for name in names if name in row}
        label = sources.labels.get("episodes", run)
        differ = len({*said.values(), *([label] if label else [])}) > 1
        if everything or differ:
            place = sources.index.dataset_of(run)
            rows.append({"run": run, "data": place, "said": said, "lines": row, "label": label})
    report = found.json("report.json")
    values = {
        "data": found.name,
        "names": chosen or names,
        "rows": rows[:MOST],
        "total": len(rows),
        "runs": len(verdicts),
        "all": everything,
        "pairs": report.get("pairs", []),
    }
    return Page("judges", f"Judges of {found.name}", values)


def dates(sources: Sources, asked: Mapping[str, str]) -> Page:
    """What the date refresh of a benchmark changed: each prompt before and after."""
    found = sources.folder(asked, RECORD)
    changed = [line for line in found.lines(RECORD) if line.get("prompt") != line.get("old")]
    values = {"changed": changed[:MOST], "total": len(changed)}
    return Page("dates", f"Dates of {found.name}", values)


def _rate(successes: Sequence[bool | None] | None) -> float | None:
    known = [one for one in successes or () if one is not None]
    return sum(known) / len(known) if known else None
