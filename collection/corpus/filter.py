"""Turns trajectories into supervised samples: quality filter and flattening (RMSWeb, section 3.2).

Each step is a generator that passes on what it keeps and reports the rest to `FilterCounts`, with a reason.
One trajectory is in memory at a time; only digests and names of kept ones stay, to find duplicates.

    successful -> complete -> unstalled -> of_length -> unique      trajectories  (`quality_filter`)
    flatten, unquoted -> unguided -> scorable -> with_images        samples       (`make_samples`)
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from PIL import Image

from collection.config import QualityConfig
from collection.corpus.guidance import Guidance, QuoteFinder, guidance_for
from collection.corpus.steps import StepView, full_success, guided, view
from rmsweb_jax.actions import ReplyError, score_response
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore, image_names
from rmsweb_jax.records.schema import SftSample, Step, Trajectory

DROP_REASONS = ("not_successful", "invalid_step", "stalled", "too_short", "too_long", "duplicate")
SAMPLE_DROP_REASONS = (
    "no_messages",
    "empty_reply",
    "guidance",
    "quoted_guidance",
    "unscorable_reply",
    "no_screenshot",
    "unreadable_image",
)
KINDS = ("action", "extraction")
OWN = "own"


@dataclasses.dataclass(frozen=True)
class Drop:
    """A trajectory or sample that is left out: its id as in the records, the reason, and the place in it."""

    level: Literal["trajectory", "sample"]
    id: str
    task_id: str
    site: str
    reason: str
    detail: str = ""


class FilterCounts:
    """Counts trajectories and samples that came in, were kept and were dropped, by reason, site and source.

    Args:
      on_drop: called for each one that is dropped, in order.
    """

    def __init__(self, on_drop: Callable[[Drop], None] = lambda drop: None):
        self._on_drop = on_drop
        self.trajectories = 0
        self.kept = 0
        self.dropped: Counter[str] = Counter()
        self.samples: Counter[str] = Counter()
        self.samples_dropped: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.effective_steps: Counter[int] = Counter()
        self._sites: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._sources: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, trajectory: Trajectory) -> None:
        self.trajectories += 1
        self._groups(trajectory, "trajectories")

    def keep(self, trajectory: Trajectory) -> None:
        self.kept += 1
        self._groups(trajectory, "kept")

    def drop(self, trajectory: Trajectory, reason: str, detail: str = "") -> None:
        task = trajectory.task
        self.dropped[reason] += 1
        self._on_drop(Drop("trajectory", trajectory.trajectory_id, task.task_id, task.site, reason, detail))

    def keep_sample(self, sample: SftSample) -> None:
        self.samples[sample.kind] += 1
        self._sites[sample.site]["samples"] += 1

    def drop_sample(self, sample: SftSample, reason: str, detail: str = "") -> None:
        self.samples_dropped[reason] += 1
        self._on_drop(Drop("sample", sample.sample_id, sample.task_id, sample.site, reason, detail))

    def report(self) -> dict[str, Any]:
        """Returns all counts for `report.json`, including reasons that dropped nothing."""
        return {
            "trajectories": self.trajectories,
            "kept": self.kept,
            "dropped": {reason: self.dropped[reason] for reason in DROP_REASONS},
            "invalid_steps": dict(sorted(self.faults.items())),
            "effective_steps": {str(steps): count for steps, count in sorted(self.effective_steps.items())},
            "samples": {kind: self.samples[kind] for kind in KINDS},
            "samples_dropped": {reason: self.samples_dropped[reason] for reason in SAMPLE_DROP_REASONS},
            "sites": {
                site: counts["samples"] for site, counts in sorted(self._sites.items()) if counts["samples"]
            },
            "by_site": _plain(self._sites, ("trajectories", "kept", "samples")),
            "by_source": _plain(self._sources, ("trajectories", "kept")),
        }

    def _groups(self, trajectory: Trajectory, what: str) -> None:
        self._sites[trajectory.task.site][what] += 1
        self._sources[trajectory.source or OWN][what] += 1


def _plain(groups: dict[str, Counter[str]], keys: tuple[str, ...]) -> dict[str, dict[str, int]]:
    return {name: {key: counts[key] for key in keys} for name, counts in sorted(groups.items())}


PAPER_MIN_EFFECTIVE_STEPS = 3
# Successive repetitions of the same actions on the same page that make a loop; the paper gives no number.
STALL_REPEATS = 3


@dataclasses.dataclass(frozen=True)
class ParsedTrajectory:
    """A trajectory with its steps parsed."""

    trajectory: Trajectory
    steps: tuple[StepView[Step], ...]

    @property
    def effective(self) -> int:
        """Number of steps that changed something or produced output."""
        return sum(step.effective for step in self.steps)


def quality_filter(
    trajectories: Iterable[Trajectory], config: QualityConfig, counts: FilterCounts
) -> Iterator[ParsedTrajectory]:
    """Keeps complete successes without stalls, within the length bounds, each only once."""
    runs = successful(_parsed(trajectories, counts), counts)
    runs = complete(runs, counts)
    runs = unstalled(runs, counts)
    runs = of_length(runs, config, counts)
    for run in unique(runs, counts) if config.drop_duplicates else runs:
        counts.keep(run.trajectory)
        yield run


def successful(runs: Iterable[ParsedTrajectory], counts: FilterCounts) -> Iterator[ParsedTrajectory]:
    """Drops (`not_successful`) trajectories that no judge or reward passed, and right answers that say no."""
    for run in runs:
        if full_success(run.trajectory):
            yield run
        else:
            counts.drop(run.trajectory, "not_successful", run.trajectory.outcome)


def complete(runs: Iterable[ParsedTrajectory], counts: FilterCounts) -> Iterator[ParsedTrajectory]:
    """Drops (`invalid_step`) a trajectory with a step that is incomplete or was guided."""
    for run in runs:
        faults = list(_faults(run))
        if faults:
            counts.faults.update({fault for _, fault in faults})
            where, fault = faults[0]
            counts.drop(run.trajectory, "invalid_step", f"{where}: {fault}" if where else fault)
        else:
            yield run


def unstalled(runs: Iterable[ParsedTrajectory], counts: FilterCounts) -> Iterator[ParsedTrajectory]:
    """Drops (`stalled`) a trajectory that repeats the same actions on the same page."""
    for run in runs:
        at = stalled(run.steps, STALL_REPEATS)
        if at is None:
            yield run
        else:
            counts.drop(run.trajectory, "stalled", f"step {at}")


def of_length(
    runs: Iterable[ParsedTrajectory], config: QualityConfig, counts: FilterCounts
) -> Iterator[ParsedTrajectory]:
    """Drops (`too_short`, `too_long`) by the number of effective steps, whose distribution it counts."""
    for run in runs:
        effective = run.effective
        counts.effective_steps[effective] += 1
        if effective < config.min_effective_steps:
            counts.drop(run.trajectory, "too_short", f"{effective} effective steps")
        elif effective > config.max_effective_steps:
            counts.drop(run.trajectory, "too_long", f"{effective} effective steps")
        else:
            yield run


def unique(runs: Iterable[ParsedTrajectory], counts: FilterCounts) -> Iterator[ParsedTrajectory]:
    """Drops (`duplicate`) a trajectory with the same task, pages and actions as an earlier one."""
    seen: dict[bytes, str] = {}
    for run in runs:
        key, name = _fingerprint(run), run.trajectory.trajectory_id
        if key in seen:
            counts.drop(run.trajectory, "duplicate", f"of {seen[key]}")
        else:
            seen[key] = name
            yield run


def stalled(steps: Sequence[StepView[Step]], repeats: int) -> int | None:
    """Returns the step at which the same actions occur on the same page for the `repeats`th time in a row."""
    run, previous = 0, None
    for step in steps:
        now = (step.step.observation.fingerprint, step.composition)
        run = run + 1 if now == previous else 1
        if run >= repeats:
            return step.step.number
        previous = now
    return None


def make_samples(
    runs: Iterable[ParsedTrajectory],
    guidance: Guidance,
    sources: Sequence[ImageStore],
    counts: FilterCounts,
) -> Iterator[SftSample]:
    """Makes the samples of kept trajectories.

    Args:
      sources: of the screenshots.
      guidance: what the attempts were given; no sample may quote it.
    """
    samples = (
        sample for run in runs for sample in unquoted(flatten(run, counts), run.trajectory, guidance, counts)
    )
    samples = scorable(unguided(samples, counts), counts)
    for sample in with_images(samples, sources, counts):
        counts.keep_sample(sample)
        yield sample


def flatten(run: ParsedTrajectory, counts: FilterCounts) -> Iterator[tuple[SftSample, Step]]:
    """One `action` sample for each step, and one `extraction` sample for each page-reading call.

    Drops a call without a prompt (`no_messages`) or with an empty reply (`empty_reply`).
    """
    task = run.trajectory.task
    common = {"task_id": task.task_id, "site": task.site}
    for step in run.steps:
        name = f"{run.trajectory.trajectory_id}/{step.step.number}"
        yield (
            SftSample(
                sample_id=name, kind="action", messages=step.step.messages, response=step.target, **common
            ),
            step.step,
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
                counts.drop_sample(sample, "no_messages")
            elif not call.response.strip():
                counts.drop_sample(sample, "empty_reply")
            else:
                yield sample, step.step


def unquoted(
    samples: Iterable[tuple[SftSample, Step]],
    trajectory: Trajectory,
    guidance: Guidance,
    counts: FilterCounts,
) -> Iterator[SftSample]:
    """Drops (`quoted_guidance`) a sample of `trajectory` that quotes the guidance of its attempt."""
    given = guidance_for(guidance.get(trajectory.task.task_id, ()), trajectory.attempt)
    quotes = QuoteFinder(given, trajectory.task)
    for sample, step in samples:
        quotes.show_page(step.observation)
        if found := quotes.find(sample):
            counts.drop_sample(sample, "quoted_guidance", found)
        else:
            yield sample


def unguided(samples: Iterable[SftSample], counts: FilterCounts) -> Iterator[SftSample]:
    """Drops (`guidance`) a sample with reflection guidance in its prompt.

    The policy acts without guidance, and would learn to rely on text that it never gets.
    """
    for sample in samples:
        if guided(sample.messages):
            counts.drop_sample(sample, "guidance")
        else:
            yield sample


def scorable(samples: Iterable[SftSample], counts: FilterCounts) -> Iterator[SftSample]:
    """Drops (`unscorable_reply`) an action target that does not earn the full reward for itself."""
    for sample in samples:
        try:
            exact = sample.kind != "action" or score_response(sample.response, sample.response) == 1.0
            detail = ""
        except ReplyError as error:
            exact, detail = False, str(error)
        if exact:
            yield sample
        else:
            counts.drop_sample(sample, "unscorable_reply", detail)


def with_images(
    samples: Iterable[SftSample], sources: Sequence[ImageStore], counts: FilterCounts
) -> Iterator[SftSample]:
    """Drops (`no_screenshot`, `unreadable_image`) a sample whose images cannot be read.

    Args:
      sources: searched in this order.
    """
    for sample in samples:
        found = {name: holder(sources, name) for name in image_names(sample.messages)}
        faults = [(fault, name) for name, store in found.items() if (fault := image_fault(store, name))]
        if faults:
            counts.drop_sample(sample, *faults[0])
        else:
            yield sample


def image_fault(images: ImageStore | None, sha256: str) -> str:
    """Returns the reason why an image cannot be read: `no_screenshot`, `unreadable_image`, or empty."""
    if images is None:
        return "no_screenshot"
    try:
        with Image.open(io.BytesIO(images.get(sha256))) as image:
            image.verify()
    except (UserError, OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return "unreadable_image"
    return ""


def holder(stores: Sequence[ImageStore], sha256: str) -> ImageStore | None:
    """Returns the first store that has an image; None if there is none."""
    try:
        return next((store for store in stores if sha256 in store), None)
    except ValueError:  # The name is not a SHA-256.
        return None


def _parsed(trajectories: Iterable[Trajectory], counts: FilterCounts) -> Iterator[ParsedTrajectory]:
    for trajectory in trajectories:
        counts.add(trajectory)
        yield ParsedTrajectory(trajectory, tuple(view(step) for step in trajectory.steps))


def _faults(run: ParsedTrajectory) -> Iterator[tuple[str, str]]:
    """Yields the place and the kind of each fault."""
    if not run.steps:
        yield "", "no_steps"
    for step in run.steps:
        if fault := step.fault or ("guidance" if step.guided else ""):
            yield f"step {step.step.number}", fault
    # Imported runs have empty fields where their system recorded nothing: these would teach empty fields.
    for name in run.trajectory.missing:
        if name.startswith("steps.response."):
            yield name, "incomplete_reply"


def _fingerprint(run: ParsedTrajectory) -> bytes:
    digest = hashlib.sha256(run.trajectory.task.task_id.encode())
    for step in run.steps:
        digest.update(repr((step.step.observation.fingerprint, step.composition)).encode())
    return digest.digest()
