"""Small data sets for the tests of the record store."""

from __future__ import annotations

import hashlib
import io
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from array_record.python.array_record_module import ArrayRecordWriter
from PIL import Image

from rmsweb_jax.records.schema import (
    Element,
    ImagePart,
    Message,
    Observation,
    Record,
    SftSample,
    Step,
    Tab,
    Task,
    TextPart,
    Trajectory,
)


def png(number: int) -> bytes:
    """A small picture of noise."""
    data = random.Random(number).randbytes(16 * 10 * 3)
    file = io.BytesIO()
    Image.frombytes("RGB", (16, 10), data).save(file, "png")
    return file.getvalue()


def name(image: bytes) -> str:
    return hashlib.sha256(image).hexdigest()


def trajectory(number: int, image: bytes | None) -> Trajectory:
    """One step long; its screenshot is in the messages too."""
    url = f"http://miniwob.test/page-{number}.html"
    sha256 = name(image) if image else None
    observation = Observation(
        url=url,
        title="",
        tabs=(Tab(tab_id="0001", url=url, title="é"),),
        current_tab="0001",
        page_text=f"[1]<button>Go {number}</button>",
        elements=(Element(index=1, tag="button", text="Go", attributes={"id": f"b{number}"}),),
        fingerprint=hashlib.sha256(url.encode()).hexdigest(),
        screenshot=sha256,
    )
    shown = (ImagePart(sha256=sha256),) if sha256 else ()
    messages = (Message(role="user", content=(TextPart(text="state"), *shown)),)
    task = Task(task_id=f"miniwob/page/{number:03d}", website=url, objective="go", seed=number)
    return Trajectory(
        trajectory_id=f"{task.task_id}#teacher-1",
        task=task,
        actor="teacher",
        model="scripted",
        attempt=1,
        steps=(Step(number=1, observation=observation, messages=messages, response="r" * number),),
        outcome="done",
        success=number % 3 > 0,
        reward=None if number % 2 else 1.0,
    )


def trajectories(count: int) -> list[Trajectory]:
    """Every second one shows the picture of the one before."""
    return [trajectory(number, png(number // 2)) for number in range(count)]


def samples(runs: Sequence[Trajectory]) -> list[SftSample]:
    return [
        SftSample(
            sample_id=f"{run.trajectory_id}/1",
            task_id=run.task.task_id,
            site="page",
            kind="action",
            messages=run.steps[0].messages,
            response=run.steps[0].response,
        )
        for run in runs
    ]


# What each later version added to trajectories.
NEW_IN: dict[int, dict[str, Any]] = {
    2: {"source": True, "missing": True},
    3: {
        "steps": {"__all__": {"incidents", "discarded"}},
        **dict.fromkeys(("judge_text", "judge_usage", "incidents"), True),
    },
    4: {"judge_score": True, "retries": True},
}


def written_by(version: int, record: Record) -> bytes:
    """A record just as that schema version wrote it."""
    later = [fields for number, fields in NEW_IN.items() if number > version]
    return record.model_dump_json(
        exclude={name: kept for fields in later for name, kept in fields.items()}
    ).encode()


def version_1(record: Record) -> bytes:
    return written_by(1, record)


def write_version_1(folder: Path, records: Sequence[Trajectory], shard_size: int) -> None:
    """A data set just as schema version 1 wrote it."""
    folder.mkdir(exist_ok=True)
    shards = []
    for start in range(0, len(records), shard_size):
        chunk = records[start : start + shard_size]
        path = folder / f"trajectories-{len(shards):05d}.array_record"
        writer = ArrayRecordWriter(str(path), "group_size:1")
        for record in chunk:
            writer.write(version_1(record))
        writer.close()
        data = path.read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        shards.append({"file": path.name, "records": len(chunk), "bytes": len(data), "sha256": sha256})
    manifest = {
        "schema_version": 1,
        "kind": "trajectories",
        "records": len(records),
        "shards": shards,
        "provenance": {"actor": "teacher"},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))
