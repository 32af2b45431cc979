"""Pages of episodes and mined pairs: lists, one episode, the attempts at a task, and runs side by side."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from collection.mining.taxonomy import TAXONOMY
from collection.viewer.index import COLUMNS, FILTERS, RANGES, Query
from collection.viewer.pages import MOST, Asked, NotFoundError, Page, Pages, names, whole
from collection.viewer.why import SOURCES
from rmsweb_jax.actions import ReplyError, recorded_reply, render_reply
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.schema import AuditPair, Step, Trajectory

PAGE_SIZE = 50
# The largest number of runs side by side.
_MOST_SIDES = 12
# Columns of a list, and those that it has unless others are asked for: as many as fit 1,280 pixels.
_SHOWN = (
    *("task_id", "objective", "actor", "attempt", "outcome", "result", "failure_mode", "bad_step", "steps"),
    *("tokens", "seconds"),
)
_COLUMNS = (*_SHOWN, *(name for name in COLUMNS if name not in (*_SHOWN, "trajectory_id", "model")))
_PAIR_CHOICES = ("decision", "category", "site")
# Lines of the next page that are shown at once.
_MOST_APPEARED = 3
_INDEX = re.compile(r"\s*\[(\d+)\]")


# --- An episode, prepared for reading ---


@dataclasses.dataclass(frozen=True)
class TextLine:
    """A line of the page text; `new` ones were not on the page before, `acted` ones name an acted element."""

    text: str
    new: bool
    acted: bool


@dataclasses.dataclass(frozen=True)
class StepPage:
    """A step as the page shows it.

    Attributes:
      thoughts: (field, text) of the reply, such as `next_goal`.
      actions: the actions as compact JSON.
      acted: words of the elements that were acted on.
      boxes: their places in the screenshot: left,top,right,bottom in pixels, one after the other.
      appeared: the first lines of the next page that are not on this one.
      changes: numbers of lines that appeared, and that went.
    """

    step: Step
    lines: tuple[TextLine, ...]
    thoughts: tuple[tuple[str, str], ...]
    actions: tuple[str, ...]
    acted: tuple[str, ...]
    boxes: str = ""
    appeared: tuple[str, ...] = ()
    changes: tuple[int, int] = (0, 0)


def step_pages(run: Trajectory) -> list[StepPage]:
    """The steps of an episode in order."""
    pages: list[StepPage] = []
    before: set[str] = set()
    for step in run.steps:
        thoughts, actions = _read_reply(step.response)
        indices = {number for action in actions for number in _indices(action)}
        texts = step.observation.page_text.splitlines()
        lines = tuple(
            TextLine(text, bool(pages) and _plain(text) not in before, _number(text) in indices)
            for text in texts
        )
        before = set(map(_plain, texts))
        elements = [one for one in step.observation.elements if one.index in indices]
        acted = tuple(dict.fromkeys(f"[{one.index}] <{one.tag}> {one.text}".strip() for one in elements))
        boxes = " ".join(",".join(map(str, one.box)) for one in elements if one.box)
        compact = tuple(json.dumps(action, ensure_ascii=False) for action in actions)
        pages.append(StepPage(step, lines, thoughts, compact, acted, boxes))
    for at, (one, following) in enumerate(itertools.pairwise(pages)):
        new = [line.text for line in following.lines if line.new]
        left = {_plain(line.text) for line in following.lines}
        gone = sum(_plain(line.text) not in left for line in one.lines)
        pages[at] = dataclasses.replace(one, appeared=tuple(new[:_MOST_APPEARED]), changes=(len(new), gone))
    return pages


def parting(first: Trajectory, second: Trajectory) -> int | None:
    """The first step (from 1) at which two runs act differently; None if one only goes on longer."""
    for number, (one, other) in enumerate(zip(first.steps, second.steps, strict=False), start=1):
        if _read_reply(one.response)[1] != _read_reply(other.response)[1]:
            return number
    return None


def changed(before: str, after: str) -> list[tuple[str, str]]:
    """(kind, words) of two texts, word by word: kind is "same", "gone" or "new"."""
    old, new = before.split(), after.split()
    parts = []
    for kind, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            parts.append(("same", " ".join(old[i:j])))
            continue
        parts += [(name, " ".join(words)) for name, words in (("gone", old[i:j]), ("new", new[k:m])) if words]
    return parts


def _read_reply(text: str) -> tuple[tuple[tuple[str, str], ...], tuple[dict[str, Any], ...]]:
    """Fields of thought, and actions, of a reply; nothing of one that cannot be read."""
    try:
        fields = json.loads(render_reply(recorded_reply(text)[0]))
    except (ReplyError, ValueError):
        return (), ()
    actions = tuple(action for action in fields.pop("action", ()) if isinstance(action, dict))
    return tuple((name, str(value)) for name, value in fields.items() if value), actions


def _plain(line: str) -> str:
    return _INDEX.sub("", line, count=1)


def _number(line: str) -> int | None:
    found = _INDEX.match(line)
    return int(found[1]) if found else None


def _indices(value: Any) -> Sequence[int]:
    """Every `index` in the parameters of an action."""
    if isinstance(value, dict):
        own = [one for name, one in value.items() if name == "index" and isinstance(one, int)]
        return own + [number for one in value.values() for number in _indices(one)]
    return []


# --- Pages of episodes ---


def listed(pages: Pages, asked: Asked) -> Page:
    """A list of episodes with filters, ranges, words, an order, and the columns that are asked for."""
    filters = {name: asked[name] for name in FILTERS if asked.get(name)}
    bounds = {column: (f"{column}_from", f"{column}_to") for column in RANGES}
    given = {name: asked[name] for ends in bounds.values() for name in ends if asked.get(name)}
    limits = {column: (given.get(least, ""), given.get(most, "")) for column, (least, most) in bounds.items()}
    query = Query(filters, limits, asked.get("q", ""), asked.get("sort", ""), whole(asked.get("page"), 0))
    columns = [name for name in _COLUMNS if name in (names(asked, "columns") or _SHOWN)]
    total = pages.index.count(query)
    values = {
        "rows": pages.index.rows(query, PAGE_SIZE),
        "query": query,
        "total": total,
        "pages": -(-total // PAGE_SIZE),
        "choices": {name: pages.index.values(name) for name in FILTERS},
        "ranges": {column: (*bounds[column], kind) for column, kind in RANGES.items()},
        "asked": {
            **filters,
            **given,
            "q": query.words,
            "sort": query.sort,
            "columns": asked.get("columns", ""),
        },
        "columns": columns,
        "hidden": [name for name in _COLUMNS if name not in columns],
    }
    return Page("episodes", "Episodes", values)


def one(pages: Pages, asked: Asked) -> Page:
    """An episode, step by step."""
    data, name = asked.get("data", ""), asked.get("id", "")
    run = pages.episode(data, name)
    row = pages.index.row(name, data)
    mode = row.get("failure_mode")
    values = {
        **_side(pages, run, data),
        "row": row,
        "mode": TAXONOMY[mode].title if mode in TAXONOMY else mode,
        "source": SOURCES.get(row.get("source", "")),
        "label": pages.labels.get("episodes", run.trajectory_id),
    }
    return Page("episode", run.trajectory_id, values)


def chain(pages: Pages, asked: Asked) -> Page:
    """The attempts at a task by one actor: attempt, reflection, retry."""
    data, task = asked.get("data", ""), asked.get("task", "")
    found = pages.folders.all().get(data)
    all_rows = pages.index.of_task(task)
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
        run = pages.episode(data, row["trajectory_id"])
        earlier = attempts[-1] if attempts and attempts[-1]["row"]["actor"] == row["actor"] else None
        guidance, note = notes.get(row["attempt"] - 1, "") if earlier else "", notes.get(row["attempt"], "")
        attempt = {"row": row, "run": run, "steps": step_pages(run), "note": note, "guidance": guidance}
        if earlier:
            attempt["parting"] = parting(earlier["run"], run)
            attempt["note_changes"] = changed(earlier["note"], note) if earlier["note"] and note else []
        # Words of the guidance, of five letters or more, that the replies of the next attempt use, too.
        replies = " ".join(step.response for step in run.steps).lower()
        long_words = dict.fromkeys(re.findall(r"[^\W\d_]{5,}", guidance.lower()))
        attempts.append(attempt | {"heeded": [word for word in long_words if word in replies]})
    others = [row for row in all_rows if row["dataset"] != data]
    objective = attempts[0]["run"].task.objective
    values = {"task": task, "data": data, "objective": objective, "attempts": attempts, "others": others}
    return Page("chain", f"Attempts at {task}", values)


def compare(pages: Pages, asked: Asked) -> Page:
    """Episodes of a task side by side: all, those of `data`, or the two that `first` and `second` name."""
    task, wanted = asked.get("task", ""), names(asked)
    two = {asked[name] for name in ("first", "second") if asked.get(name)}
    rows = [row for row in pages.index.of_task(task) if not wanted or row["dataset"] in wanted]
    rows = [row for row in rows if not two or row["trajectory_id"] in two]
    if not rows:
        raise NotFoundError(f"no episodes of {task!r}")
    sides = [
        {"row": row, **_side(pages, pages.episode(row["dataset"], row["trajectory_id"]), row["dataset"])}
        for row in rows[:_MOST_SIDES]
    ]
    values = {
        "task": task,
        "sides": sides,
        "left_out": len(rows) - len(sides),
        "objective": sides[0]["run"].task.objective,
        "parts": [parting(sides[0]["run"], side["run"]) for side in sides],
        "chosen": list(dict.fromkeys(row["dataset"] for row in rows)),
    }
    return Page("compare", f"Runs of {task}", values)


def _side(pages: Pages, run: Trajectory, data: str) -> dict[str, Any]:
    return {"run": run, "data": data, "steps": step_pages(run), "images": pages.images(data)}


# --- Mined pairs ---


def mined(pages: Pages, asked: Asked) -> Page:
    """The decisions of a mining run, by gate, category or site."""
    audits = _audits(pages, asked)
    wanted = {name: asked[name] for name in _PAIR_CHOICES if asked.get(name)}
    shown = [audit for audit in audits if all(getattr(audit, name) == wanted[name] for name in wanted)]
    values = {
        "data": asked["data"],
        "rows": [(audit, pages.labels.get("mined", audit.task_id)) for audit in shown[:MOST]],
        "total": len(shown),
        "asked": wanted,
        "choices": {
            name: Counter(getattr(audit, name) for audit in audits).most_common() for name in _PAIR_CHOICES
        },
    }
    return Page("mined", f"Mined pairs of {asked['data']}", values)


def pair(pages: Pages, asked: Asked) -> Page:
    """One decision: both runs at the mined step and around it, scores, gates, and what else was tried."""
    audits = _audits(pages, asked)
    at = next((place for place, audit in enumerate(audits) if audit.task_id == asked.get("task")), None)
    if at is None:
        raise NotFoundError(f"no mined pair of {asked.get('task')!r}")
    audit = audits[at]
    # A reader who labels goes from one pair of the same decision to the next.
    following = next((one.task_id for one in audits[at + 1 :] if one.decision == audit.decision), "")
    values = {
        "data": asked["data"],
        "audit": audit,
        "sides": [
            _pair_side(pages, audit.success_id, audit.success_step) | {"name": "succeeds"},
            _pair_side(pages, audit.localization_id, audit.localization_step) | {"name": "fails"},
        ],
        "label": pages.labels.get("mined", audit.task_id),
        "following": following,
    }
    return Page("pair", f"Mined pair of {audit.task_id}", values)


def _pair_side(pages: Pages, name: str, at: int | None) -> dict[str, Any]:
    """A run of a pair and its steps around the mined one, from a data set that has it."""
    data = pages.index.row(name).get("dataset", "")
    run = pages.index.read(data, name)
    if run is None:
        return {"run": None, "id": name, "at": at, "steps": []}
    side = _side(pages, run, data)
    near = [one for one in side["steps"] if at is None or abs(one.step.number - at) <= 1]
    return {**side, "id": name, "at": at, "steps": near}


def _audits(pages: Pages, asked: Asked) -> list[AuditPair]:
    folder = pages.folders.datasets("audit_pairs").get(asked.get("data", ""))
    if folder is None:
        raise NotFoundError(f"no mined pairs in {asked.get('data')!r}")
    return list(read_dataset(folder, AuditPair))
