"""Prompts that a user wrote for some tasks of a benchmark; they win over all rules of the date refresh."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from datetime import date
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from collection.evaluation.benchmarks.base import Benchmark, check_known
from collection.evaluation.dates.moving import Change, Refreshed
from collection.evaluation.dates.writing import find_mentions, resolve
from collection.tasks.benchmarks import refuse
from collection.tasks.files import read_lines
from rmsweb_jax.errors import UserError
from rmsweb_jax.storage import local_path

_SETTING = "config.refresh.overrides"


class _Override(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    task_id: str
    prompt: str = Field(min_length=1)


def read_overrides(path: str, benchmark: Benchmark) -> dict[str, str]:
    """Returns prompts by task id from a user's file.

    Args:
      path: `.jsonl` with a `task_id` and a `prompt` in each line, or `.json` with an object of prompts by id.
        Ids are as in results (`webvoyager/Booking--10`).

    Raises:
      UserError: the file cannot be read or has another form, or an id is unknown or comes twice.
    """
    file = local_path(path, _SETTING)
    if file.suffix not in (".json", ".jsonl"):
        raise UserError(f"{_SETTING}={path}: name it .jsonl (a task_id and a prompt in each line) or .json")
    if file.suffix == ".json":
        try:
            pairs: Any = json.loads(file.read_bytes(), object_pairs_hook=list)
            found = [_Override(task_id=name, prompt=prompt) for name, prompt in pairs]
        except OSError as error:
            raise UserError(f"{_SETTING}={path}: {error.strerror or error}") from error
        except (ValueError, TypeError) as error:
            raise UserError(
                f'{_SETTING}={path}: not an object of prompts, such as {{"webvoyager/Booking--10": "..."}}'
            ) from error
    else:
        lines = read_lines(file, _Override.model_validate_json, "task_id and prompt in each line")
        if lines.bad:
            raise UserError(f"{_SETTING}={path}, line {lines.bad[0].number}: {lines.bad[0].reason}")
        found = [one for _, one in lines.good]
    twice = [name for name, count in Counter(one.task_id for one in found).items() if count > 1]
    refuse(twice, f"{_SETTING}={path}: tasks that come twice", "keep one prompt for each")
    # Of the whole file, so that a subset can be evaluated with the same overrides.
    known = {f"{one.benchmark}/{one.task_id}" for one in benchmark.questions}
    check_known([one.task_id for one in found], known, f"{_SETTING}={path}: no tasks of {benchmark.name}")
    return {one.task_id: one.prompt for one in found}


def override(old: str, new: str, today: date, written: date) -> Refreshed:
    """Returns a prompt of a user as a refreshed one.

    Its task's rubric can follow only if all dates of the prompt moved by the same number of days.
    """
    mentions = find_mentions(old), find_mentions(new)
    before, after = resolve(mentions[0], written), resolve(mentions[1], today)
    if [len(days) for days in before] != [len(days) for days in after]:
        return Refreshed(new, "override")
    pairs = zip(itertools.chain(*before), itertools.chain(*after), strict=True)
    shifts = {(moved - day).days for day, moved in pairs}
    if len(shifts) != 1:
        return Refreshed(new, "override")
    changes = (
        Change(old[was.start : was.end], new[now.start : now.end], *days)
        for was, now, *days in zip(*mentions, before, after, strict=True)
    )
    return Refreshed(new, "override", shifts.pop(), tuple(changes))
