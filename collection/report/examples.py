"""Selects the records that a page shows: screenshots, one trajectory step by step, one mined pair."""

from __future__ import annotations

import base64
import dataclasses
import io

from PIL import Image, ImageChops

from collection.report.sources import LABELS, RunFolder
from rmsweb_jax.actions import ReplyError, parse_reply
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import AuditPair, Step, Trajectory

_SHOTS = 6
_MAX_STEPS = 8


@dataclasses.dataclass(frozen=True)
class Shot:
    """First screenshot of a task; `image` is a data URL."""

    site: str
    objective: str
    image: str


@dataclasses.dataclass(frozen=True)
class ShownStep:
    """A step prepared for display: the agent's goal, memory and reply, and the results of its actions."""

    number: int
    image: str
    goal: str
    memory: str
    reply: str
    results: tuple[str, ...]
    page_text: str


@dataclasses.dataclass(frozen=True)
class ShownTrajectory:
    trajectory: Trajectory
    actor: str
    steps: tuple[ShownStep, ...]


@dataclasses.dataclass(frozen=True)
class ShownPair:
    """Two runs of a task at the step where they diverge."""

    audit: AuditPair
    objective: str
    success: ShownStep
    localization: ShownStep


def data_url(images: ImageStore, sha256: str | None) -> str:
    """Returns a stored PNG, trimmed, as a data URL; "" without an image."""
    if sha256 is None:
        return ""
    return f"data:image/png;base64,{base64.b64encode(trim(images.get(sha256))).decode()}"


def trim(png: bytes) -> bytes:
    """Crops the empty margin right of and below the page: small pages leave most of the viewport blank."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    corner = image.getpixel((image.width - 1, image.height - 1))
    box = ImageChops.difference(image, Image.new("RGB", image.size, corner)).getbbox()  # pyright: ignore
    if box is None:
        return png
    buffer = io.BytesIO()
    image.crop((0, 0, box[2], box[3])).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def screenshots(run: RunFolder) -> list[Shot]:
    """Returns first screenshots of up to six task types, from the first stage that has any."""
    for stage in ("collect", *(f"evaluate/{label}" for label in LABELS)):
        images, shots = run.images(stage), {}
        for trajectory in run.trajectories(stage):
            site = trajectory.task.site
            if site not in shots and trajectory.steps and trajectory.steps[0].observation.screenshot:
                image = data_url(images, trajectory.steps[0].observation.screenshot)
                shots[site] = Shot(site, trajectory.task.objective, image)
        if shots:
            # Spread over the alphabet, because pages with neighbouring names look alike.
            ordered = [shots[site] for site in sorted(shots)]
            count = min(_SHOTS, len(ordered))
            return [ordered[index * len(ordered) // count] for index in range(count)]
    return []


def shown_trajectory(run: RunFolder) -> ShownTrajectory | None:
    """Returns a solved run of the last trained policy: the longest one that fits the page."""
    sources = [(f"evaluate/{label}", LABELS[label]) for label in reversed(LABELS)]
    for stage, actor in [*sources, ("collect", "Teacher")]:
        solved = [one for one in run.trajectories(stage) if one.success and len(one.steps) <= _MAX_STEPS]
        if solved:
            # The id breaks ties, so that the page is the same every time.
            best = min(solved, key=lambda one: (-len(one.steps), one.trajectory_id))
            images = run.images(stage)
            return ShownTrajectory(best, actor, tuple(_shown(step, images) for step in best.steps))
    return None


def shown_pair(run: RunFolder) -> ShownPair | None:
    """Returns the kept pair with the highest score; pairs with a failed run go before detours."""
    kept = [
        audit
        for audit in run.audits()
        if audit.decision == "kept" and audit.success_screenshot and audit.localization_screenshot
    ]
    if not kept:
        return None
    audit = min(kept, key=lambda one: ("primary pair" not in one.notes, -one.scores["total"], one.task_id))
    objective, sides = "", {}
    for stage in ("collect", "collect_policy"):
        images = run.images(stage)
        for trajectory in run.trajectories(stage):
            for name, number in (
                (audit.success_id, audit.success_step),
                (audit.localization_id, audit.localization_step),
            ):
                if trajectory.trajectory_id == name:
                    objective = trajectory.task.objective
                    step = next(step for step in trajectory.steps if step.number == number)
                    sides[name] = _shown(step, images)
    if len(sides) < 2:
        return None
    return ShownPair(audit, objective, sides[audit.success_id], sides[audit.localization_id])


def _shown(step: Step, images: ImageStore) -> ShownStep:
    try:
        reply = parse_reply(step.response)
        goal, memory = reply.next_goal, reply.memory
    except ReplyError:
        goal = memory = ""
    return ShownStep(
        number=step.number,
        image=data_url(images, step.observation.screenshot),
        goal=goal,
        memory=memory,
        reply=step.response,
        results=tuple(result.text for result in step.results) or ((step.error,) if step.error else ()),
        page_text=step.observation.page_text,
    )
