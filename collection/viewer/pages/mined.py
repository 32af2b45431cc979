"""Pages of mined pairs: the decisions of a mining run, and one of them with both runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collection.viewer.pages.base import MOST, NotFoundError, Page, Sources, counted
from collection.viewer.steps import step_pages
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.schema import AuditPair

_CHOICES = ("decision", "category", "site")


def listed(sources: Sources, asked: Mapping[str, str]) -> Page:
    """The decisions of a mining run, by gate, category or site."""
    audits = _audits(sources, asked)
    wanted = {name: asked[name] for name in _CHOICES if asked.get(name)}
    shown = [audit for audit in audits if all(getattr(audit, name) == wanted[name] for name in wanted)]
    values = {
        "data": asked["data"],
        "rows": [(audit, sources.labels.get("mined", audit.task_id)) for audit in shown[:MOST]],
        "total": len(shown),
        "asked": wanted,
        "choices": {name: counted(getattr(audit, name) for audit in audits) for name in _CHOICES},
    }
    return Page("mined", f"Mined pairs of {asked['data']}", values)


def pair(sources: Sources, asked: Mapping[str, str]) -> Page:
    """One decision: both runs at the mined step and around it, scores, gates, and what else was tried."""
    audits = _audits(sources, asked)
    at = next((place for place, audit in enumerate(audits) if audit.task_id == asked.get("task")), None)
    if at is None:
        raise NotFoundError(f"no mined pair of {asked.get('task')!r}")
    audit = audits[at]
    sides = [
        _side(sources, audit.success_id, audit.success_step, "succeeds"),
        _side(sources, audit.localization_id, audit.localization_step, "fails"),
    ]
    # A reader who labels goes from one pair of the same decision to the next.
    following = next((one.task_id for one in audits[at + 1 :] if one.decision == audit.decision), "")
    label = sources.labels.get("mined", audit.task_id)
    values = {"data": asked["data"], "audit": audit, "sides": sides, "label": label, "following": following}
    return Page("pair", f"Mined pair of {audit.task_id}", values)


def _side(sources: Sources, run_id: str, at: int | None, name: str) -> dict[str, Any]:
    """A run of a pair and its steps around the mined one, from the data set that has it."""
    for data in sources.folders.datasets("trajectories"):
        run = sources.index.read(data, run_id)
        if run is not None:
            steps = step_pages(run)
            near = [one for one in steps if at is None or abs(one.step.number - at) <= 1]
            side = {"run": run, "data": data, "images": sources.images(data), "steps": near}
            return {**side, "name": name, "id": run_id, "at": at}
    return {"run": None, "name": name, "id": run_id, "at": at, "steps": []}


def _audits(sources: Sources, asked: Mapping[str, str]) -> list[AuditPair]:
    folder = sources.folders.datasets("audit_pairs").get(asked.get("data", ""))
    if folder is None:
        raise NotFoundError(f"no mined pairs in {asked.get('data')!r}")
    return list(read_dataset(folder, AuditPair))
