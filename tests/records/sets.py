"""Small data sets for the tests of the record store."""

from __future__ import annotations

import hashlib
import io
import random
import re
from collections.abc import Iterator, Sequence

from PIL import Image

from rmsweb_jax.records.schema import (
    Element,
    ImagePart,
    Message,
    Observation,
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


def flipped(data: bytes, seed: int, places: int = 3) -> Iterator[bytes]:
    """The data with one byte changed: the first, the last, and some that are drawn, by a drawn mask."""
    draw = random.Random(seed)
    for place in (0, len(data) - 1, *(draw.randrange(len(data)) for _ in range(places))):
        yield data[:place] + bytes([data[place] ^ draw.randrange(1, 256)]) + data[place + 1 :]


def stable(text: str) -> str:
    """A text without what is random in the names of shards."""
    return re.sub(r"-[0-9a-f]{8}(?=\.array_record)", "", text)


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
