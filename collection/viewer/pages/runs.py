"""Pages of runs: all of them, and what one does now."""

from __future__ import annotations

import datetime
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from collection.fleet.status import LIVE
from collection.llm.calls import CALLS, read_by_model
from collection.viewer.folders import Found
from collection.viewer.pages.base import Page, Sources
from rmsweb_jax.workdir import CONFIG

# A run whose progress was not written for so many seconds has stopped.
_STOPPED_S = 60.0


def all_runs(sources: Sources, asked: Mapping[str, str]) -> Page:
    """Every run and data set below the folders: state, progress, size, cost, and what it was made from."""
    rows = []
    counts = dict(sources.index.values("dataset"))
    folders = sources.folders.all()
    for name, found in folders.items():
        report, progress, models = found.json("report.json"), found.json("progress.json"), _models(found)
        state = state_of(found)
        rows.append(
            {
                "name": name,
                "stage": report.get("stage") or progress.get("stage") or found.kind,
                "state": state,
                "progress": progress,
                "seconds": report.get("seconds"),
                "records": counts.get(name),
                "kind": found.kind,
                "problem": found.problem,
                "made_from": _made_from(found, folders),
                "cost": sum(row["cost_usd"] for row in models),
                "training": "metrics.jsonl" in found.files,
                "results": "results.jsonl" in found.files,
                "judgements": "judgements.jsonl" in found.files,
                "dates": "date_refresh.jsonl" in found.files,
                "live": found.kind == "trajectories" or bool(models) or state == "going on",
                "changed": _changed(found),
            }
        )
    going = any(row["state"] == "going on" for row in rows)
    return Page("runs", "Runs", {"rows": rows, "live": going})


def live(sources: Sources, asked: Mapping[str, str]) -> Page:
    """A run that goes on: what each worker does, sites by outcome, and what models cost."""
    found = sources.folder(asked)
    progress, now = found.json("progress.json"), time.time()
    workers = [found.json(f"{LIVE}/{path.name}") for path in sorted(found.path.glob(f"{LIVE}/*.json"))]
    workers = [
        {**worker, "seconds": max(0, round(now - worker["since"]))}
        for worker in workers
        if isinstance(worker.get("since"), int | float)
    ]
    metrics = found.lines("metrics.jsonl")
    state = state_of(found)
    values = {
        "data": found.name,
        "state": state,
        "progress": progress,
        "workers": workers,
        "sites": sources.index.sites(found.name),
        "images": sources.images(found.name),
        "training": sorted(metrics[-1].items()) if metrics else [],
        "models": _models(found),
        "live": state == "going on",
    }
    return Page("live", f"{progress.get('stage', 'run')} in {found.name}", values)


def state_of(found: Found) -> str:
    """What a run does: finished, going on or stopped; "data set" without a run."""
    if "report.json" in found.files and found.json("report.json"):
        return "finished"
    if not found.json("progress.json"):
        return "data set" if found.kind else "unknown"
    return "going on" if time.time() - _mtime(found.path / "progress.json") < _STOPPED_S else "stopped"


def _models(found: Found) -> list[dict[str, Any]]:
    """What the models of a run took so far."""
    return read_by_model(found.path / CALLS)


def _made_from(found: Found, names: Collection[str]) -> list[str]:
    """Names of the runs whose folders are in the settings of a run."""
    known = {tuple(name.split("/")): name for name in names}
    made_from: dict[str, None] = {}
    for text in _texts(found.json(CONFIG)):
        for part in text.split(","):
            if (name := _run_at(part.strip(), known)) and name != found.name:
                made_from[name] = None
    return list(made_from)


def _run_at(text: str, known: Mapping[tuple[str, ...], str]) -> str | None:
    """The run in a folder or above it, such as that of a policy in `export`.

    It may have been written on another machine, so that a path only has to end with the name of the run.
    """
    for place in (Path(text), *Path(text).parents):
        for start in range(len(place.parts)):
            if name := known.get(place.parts[start:]):
                return name
    return None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, str) and "/" in value:
        yield value


def _changed(found: Found) -> str:
    newest = max((_mtime(found.path / name) for name in found.files), default=0.0)
    return datetime.datetime.fromtimestamp(newest).strftime("%Y-%m-%d %H:%M")


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
