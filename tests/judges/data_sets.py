"""A small data set of runs, the endpoint that judges them, and what is right for each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from collection.judges.config import JudgeDataSettings
from configs.judge import get_config
from experiments.judge import main
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.settings import from_config
from tests.judges.runs import RUBRIC, run
from tests.judges.server import kind_of
from tests.judges.verdicts import outcome, rubric_answer
from tests.llm.answers import completion
from tests.llm.server import Answer
from tests.trajectories import CLICK, DONE, PNG, step

# Of runs 0, 1, ...: what the outcome judge says, and what a person does.
OUTCOME = ("success", "success", "failure", "failure", "unknown", "unsuccessful")
PEOPLE = (True, False, False, True, True, False)
FINDING = {2: "confirmed_failure", 3: "dom_only_evidence"}


def runs() -> list[Trajectory]:
    """Two a task: six that say they are done, and one that gave up."""
    return [_run(number) for number in range(len(OUTCOME))] + [_run(len(OUTCOME), declared_success=False)]


def _run(number: int, **changes: Any) -> Trajectory:
    steps = (step(1, CLICK, page=f"page of lamp {number}"), step(2, DONE, page="the last page"))
    task = {"task_id": f"web/shop.test/{number // 2}", "attempt": number, "objective": f"Find lamp {number}."}
    return run(**task, **changes).model_copy(update={"steps": steps})


def put_data(folder: Path) -> Path:
    """Writes the data set and a file with labels of its first six runs."""
    ImageStore(folder).put(PNG)
    write_dataset(folder, runs(), "trajectories")
    labels = [
        {"trajectory_id": one.trajectory_id, "success": right}
        for one, right in zip(runs()[:6], PEOPLE, strict=True)
    ]
    (folder / "labels.jsonl").write_text("".join(f"{json.dumps(label)}\n" for label in labels))
    notes = [{"task_id": "web/shop.test/0", "rubric": [line.model_dump() for line in RUBRIC]}]
    (folder / "notes.jsonl").write_text("".join(f"{json.dumps(note)}\n" for note in notes))
    return folder


def settings(folder: Path, url: str, **changes: Any) -> dict[str, Any]:
    """Settings of a run with all judges, by dotted keys."""
    return {
        "data": str(folder),
        "labels": str(folder / "labels.jsonl"),
        "notes": str(folder / "notes.jsonl"),
        "workers": 2,
        "actor.base_url": f"{url}/v1",
        "actor.model": "judge-1",
        "actor.calls": 1,
        "actor.max_tokens": 100,
        "judges": ("reward", "recorded", "own_outcome", "own_rubric"),
    } | changes


def judge(workdir: Path, changes: dict[str, Any]) -> dict[str, Any]:
    """Runs the experiment here; returns its report."""
    config = get_config("own")
    config.update_from_flattened_dict(changes)
    workdir.mkdir(exist_ok=True)
    main(from_config(JudgeDataSettings, config), workdir)
    return json.loads((workdir / "report.json").read_text())


def reply_to(prompt: str) -> Answer:
    found = re.search(r"Find lamp (\d+)", prompt)
    assert found is not None
    number = int(found[1])
    texts = {
        "outcome": lambda: outcome(OUTCOME[number]),
        "cross_check": lambda: json.dumps({"reason": "It is so.", "finding": FINDING[number]}),
        "rubric": lambda: json.dumps(rubric_answer(3, 1, outcome="success" if number == 0 else "failure")),
    }
    return completion(texts[kind_of(prompt)]())
