"""From trajectories to supervised samples: the quality filter and the flattening (RMSWeb, section 3.2).

Each step is a generator that passes on what it keeps and hands the rest to the `Tally`, with a reason.
One trajectory is in memory at a time; only digests and names of kept ones stay, to find duplicates.

    successful -> complete -> unstalled -> of_length -> unique      trajectories  (`quality_filter`)
    flatten -> unguided -> scorable -> illustrated                  samples       (`make_samples`)
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence

from PIL import Image

from collection.steps import StepView, guided, view
from collection.tally import Tally
from rmsweb_jax.actions import ReplyError, score_response
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore, image_names
from rmsweb_jax.records.schema import SftSample, Step, Trajectory

PAPER_MIN_EFFECTIVE_STEPS = 3


@dataclasses.dataclass(frozen=True)
class QualityConfig:
    """What a trajectory must be to be learned from.

    Attributes:
      min_effective_steps, max_effective_steps: bounds, inclusive, on the steps that changed something
        or produced output.
      stall_repeats: the same actions on the same page this many times in a row are a stalled loop.
    """

    min_effective_steps: int = PAPER_MIN_EFFECTIVE_STEPS
    max_effective_steps: int = 30
    stall_repeats: int = 3


@dataclasses.dataclass(frozen=True)
class Run:
    """A trajectory on its way through the filter, its steps parsed."""

    trajectory: Trajectory
    steps: tuple[StepView[Step], ...]

    @property
    def effective(self) -> int:
        """Number of steps that changed something or produced output."""
        return sum(step.effective for step in self.steps)


def quality_filter(trajectories: Iterable[Trajectory], config: QualityConfig, tally: Tally) -> Iterator[Run]:
    """Keeps complete, unstalled successes of the right length, each only once."""
    runs = successful(_parsed(trajectories, tally), tally)
    runs = complete(runs, tally)
    runs = unstalled(runs, config, tally)
    runs = of_length(runs, config, tally)
    for run in unique(runs, tally):
        tally.stayed(run.trajectory)
        yield run


def successful(runs: Iterable[Run], tally: Tally) -> Iterator[Run]:
    """Drops (`not_successful`) what no judge or reward passed."""
    for run in runs:
        if run.trajectory.success:
            yield run
        else:
            tally.drop(run.trajectory, "not_successful", run.trajectory.outcome)


def complete(runs: Iterable[Run], tally: Tally) -> Iterator[Run]:
    """Drops (`invalid_step`) a trajectory with a step that lacks state, reply or results, or is guided."""
    for run in runs:
        faults = list(_faults(run))
        if faults:
            tally.faults.update({fault for _, fault in faults})
            where, fault = faults[0]
            tally.drop(run.trajectory, "invalid_step", f"{where}: {fault}" if where else fault)
        else:
            yield run


def unstalled(runs: Iterable[Run], config: QualityConfig, tally: Tally) -> Iterator[Run]:
    """Drops (`stalled`) a trajectory that went round in a loop."""
    for run in runs:
        at = stalled(run.steps, config.stall_repeats)
        if at is None:
            yield run
        else:
            tally.drop(run.trajectory, "stalled", f"step {at}")


def of_length(runs: Iterable[Run], config: QualityConfig, tally: Tally) -> Iterator[Run]:
    """Drops (`too_short`, `too_long`) by the number of effective steps, and counts their distribution."""
    for run in runs:
        effective = run.effective
        tally.effective_steps[effective] += 1
        if effective < config.min_effective_steps:
            tally.drop(run.trajectory, "too_short", f"{effective} effective steps")
        elif effective > config.max_effective_steps:
            tally.drop(run.trajectory, "too_long", f"{effective} effective steps")
        else:
            yield run


def unique(runs: Iterable[Run], tally: Tally) -> Iterator[Run]:
    """Drops (`duplicate`) the same actions on the same pages for the same task."""
    seen: dict[bytes, str] = {}
    for run in runs:
        key, name = _fingerprint(run), run.trajectory.trajectory_id
        if key in seen:
            tally.drop(run.trajectory, "duplicate", f"of {seen[key]}")
        else:
            seen[key] = name
            yield run


def stalled(steps: Sequence[StepView[Step]], repeats: int) -> int | None:
    """The step at which the same actions were tried on the same page `repeats` times in a row."""
    run, previous = 0, None
    for step in steps:
        now = (step.step.observation.fingerprint, step.composition)
        run = run + 1 if now == previous else 1
        if run >= repeats:
            return step.step.number
        previous = now
    return None


def make_samples(
    runs: Iterable[Run], sources: Sequence[ImageStore], target: ImageStore, tally: Tally
) -> Iterator[SftSample]:
    """The samples of kept runs, their screenshots taken over from `sources` into `target`."""
    samples = unguided(flatten(runs, tally), tally)
    samples = scorable(samples, tally)
    for sample in illustrated(samples, sources, target, tally):
        tally.written(sample)
        yield sample


def flatten(runs: Iterable[Run], tally: Tally) -> Iterator[SftSample]:
    """One `action` sample a step, and one `extraction` sample for each page-reading call.

    Drops a call that sent nothing (`no_messages`) or brought nothing (`empty_reply`).
    """
    for run in runs:
        task = run.trajectory.task
        common = {"task_id": task.task_id, "site": task.site}
        for step in run.steps:
            name = f"{run.trajectory.trajectory_id}/{step.step.number}"
            yield SftSample(
                sample_id=name, kind="action", messages=step.step.messages, response=step.target, **common
            )
            for number, call in enumerate(step.step.extractions):
                sample = SftSample(
                    sample_id=f"{name}/extraction-{number}",
                    kind="extraction",
                    messages=call.messages,
                    response=call.response,
                    **common,
                )
                if not call.messages:
                    tally.drop_sample(sample, "no_messages")
                elif not call.response.strip():
                    tally.drop_sample(sample, "empty_reply")
                else:
                    yield sample


def unguided(samples: Iterable[SftSample], tally: Tally) -> Iterator[SftSample]:
    """Drops (`guidance`) a sample whose prompt holds reflection guidance, which training must never see."""
    for sample in samples:
        if guided(sample.messages):
            tally.drop_sample(sample, "guidance")
        else:
            yield sample


def scorable(samples: Iterable[SftSample], tally: Tally) -> Iterator[SftSample]:
    """Drops (`unscorable_reply`) an action target that would not earn full reward for itself."""
    for sample in samples:
        try:
            exact = sample.kind != "action" or score_response(sample.response, sample.response) == 1.0
            detail = ""
        except ReplyError as error:
            exact, detail = False, str(error)
        if exact:
            yield sample
        else:
            tally.drop_sample(sample, "unscorable_reply", detail)


def illustrated(
    samples: Iterable[SftSample], sources: Sequence[ImageStore], target: ImageStore, tally: Tally
) -> Iterator[SftSample]:
    """Drops (`no_screenshot`, `unreadable_image`) a sample whose images cannot be shown; links the rest.

    Args:
      sources: where the images are looked for, in this order.
    """
    for sample in samples:
        found = {name: _holder(sources, name) for name in image_names(sample.messages)}
        faults = [(fault, name) for name, store in found.items() if (fault := image_fault(store, name))]
        if faults:
            tally.drop_sample(sample, *faults[0])
            continue
        for name, store in found.items():
            if store is not None:
                target.link_from(store, name)
        yield sample


def image_fault(images: ImageStore | None, sha256: str) -> str:
    """Why an image cannot be shown: `no_screenshot`, `unreadable_image`, or nothing."""
    if images is None:
        return "no_screenshot"
    try:
        with Image.open(io.BytesIO(images.get(sha256))) as image:
            image.verify()
    except (UserError, OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return "unreadable_image"
    return ""


def _holder(stores: Sequence[ImageStore], sha256: str) -> ImageStore | None:
    try:
        return next((store for store in stores if sha256 in store), None)
    except ValueError:  # Not the name of an image at all.
        return None


def _parsed(trajectories: Iterable[Trajectory], tally: Tally) -> Iterator[Run]:
    for trajectory in trajectories:
        tally.came(trajectory)
        yield Run(trajectory, tuple(view(step) for step in trajectory.steps))


def _faults(run: Run) -> Iterator[tuple[str, str]]:
    """Where a run is not complete and valid, and why."""
    if not run.steps:
        yield "", "no_steps"
    for step in run.steps:
        if fault := step.fault or ("guidance" if step.guided else ""):
            yield f"step {step.step.number}", fault
    # What another system did not record of its replies stands empty in ours: nothing to learn to write.
    for name in run.trajectory.missing:
        if name.startswith("steps.response."):
            yield name, "incomplete_reply"


def _fingerprint(run: Run) -> bytes:
    digest = hashlib.sha256(run.trajectory.task.task_id.encode())
    for step in run.steps:
        digest.update(repr((step.step.observation.fingerprint, step.composition)).encode())
    return digest.digest()
