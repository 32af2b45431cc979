"""Turns trajectories into supervised samples: quality filter and flattening (RMSWeb, section 3.2).

`quality_filter` keeps trajectories, `make_samples` the samples of these. The rest is reported to
`FilterCounts`, each with its first reason. One trajectory is in memory at a time; only digests and names of
kept ones stay, to find duplicates.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from PIL import Image

from collection.config import QualityConfig
from collection.corpus.guidance import Guidance, QuoteFinder, guidance_for
from collection.corpus.screenshots import with_window
from collection.corpus.steps import StepView, full_success, guided, view
from rmsweb_jax.actions import ReplyError, score_response
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore, image_names
from rmsweb_jax.records.schema import Observation, SftSample, Step, Trajectory

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
KINDS = ("action", "text")
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

    @functools.cached_property
    def effective(self) -> int:
        """Number of steps that changed something or produced output; all if the files do not say so."""
        unknown = not {"steps.results", "steps.results.changed"}.isdisjoint(self.trajectory.missing)
        return len(self.steps) if unknown else sum(step.effective for step in self.steps)


def quality_filter(
    trajectories: Iterable[Trajectory],
    config: QualityConfig,
    counts: FilterCounts,
    incomplete: bool = False,
) -> Iterator[ParsedTrajectory]:
    """Keeps complete successes without stalls, within the length bounds, each only once.

    Args:
      incomplete: accepts runs whose files, as `missing` says, hold no results or lack parts of the reply.
    """
    seen: dict[bytes, str] = {}
    for trajectory in trajectories:
        counts.add(trajectory)
        run = ParsedTrajectory(trajectory, tuple(view(step) for step in trajectory.steps))
        if fault := _fault(run, config, counts, seen, incomplete):
            counts.drop(trajectory, *fault)
        else:
            counts.keep(trajectory)
            yield run


def _fault(
    run: ParsedTrajectory,
    config: QualityConfig,
    counts: FilterCounts,
    seen: dict[bytes, str],
    incomplete: bool,
) -> tuple[str, str] | None:
    """Returns why a trajectory is dropped, and the detail; None if it is kept.

    Args:
      seen: names of the kept trajectories, by task, pages and actions; this one is added.
    """
    # No judge or reward passed it, or it is a right answer that says no.
    if not full_success(run.trajectory):
        return "not_successful", run.trajectory.outcome
    if faults := list(_step_faults(run, incomplete)):
        counts.faults.update({fault for _, fault in faults})
        where, fault = faults[0]
        return "invalid_step", f"{where}: {fault}" if where else fault
    if (at := stalled(run.steps, STALL_REPEATS)) is not None:
        return "stalled", f"step {at}"
    counts.effective_steps[run.effective] += 1
    if run.effective < config.min_effective_steps:
        return "too_short", f"{run.effective} effective steps"
    if run.effective > config.max_effective_steps:
        return "too_long", f"{run.effective} effective steps"
    if config.drop_duplicates:
        if (key := _fingerprint(run)) in seen:
            return "duplicate", f"of {seen[key]}"
        seen[key] = run.trajectory.trajectory_id
    return None


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
      sources: of the screenshots; searched in this order.
      guidance: what the attempts were given; no sample may quote it.
    """
    for run in runs:
        task = run.trajectory.task
        quotes = QuoteFinder(guidance_for(guidance.get(task.task_id, ()), run.trajectory.attempt), task)
        for sample, step in flatten(run):
            quotes.show_page(step.observation)
            if fault := _sample_fault(sample, quotes, sources):
                counts.drop_sample(sample, *fault)
            else:
                counts.keep_sample(sample)
                yield _windowed(sample, step.observation, sources)


def _windowed(sample: SftSample, page: Observation, sources: Sequence[ImageStore]) -> SftSample:
    images = holder(sources, page.screenshot) if page.screenshot and sample.kind == "action" else None
    return sample if images is None else with_window(sample, page, images)


def flatten(run: ParsedTrajectory) -> Iterator[tuple[SftSample, Step]]:
    """One `action` sample for each step, and one `text` sample for each page-reading call."""
    task = run.trajectory.task
    common: dict[str, Any] = {"task_id": task.task_id, "site": task.site}
    for one in run.steps:
        step, name = one.step, f"{run.trajectory.trajectory_id}/{one.step.number}"
        yield (
            SftSample(sample_id=name, kind="action", messages=step.messages, response=one.target, **common),
            step,
        )
        for number, call in enumerate(step.extractions):
            sample = SftSample(
                sample_id=f"{name}/extraction-{number}",
                kind="text",
                messages=call.messages,
                response=call.response,
                **common,
            )
            yield sample, step


def _sample_fault(
    sample: SftSample, quotes: QuoteFinder, sources: Sequence[ImageStore]
) -> tuple[str, str] | None:
    """Returns why a sample is dropped, and the detail; None if it is kept."""
    if sample.kind == "text" and not sample.messages:
        return "no_messages", ""
    if sample.kind == "text" and not sample.response.strip():
        return "empty_reply", ""
    if found := quotes.find(sample):
        return "quoted_guidance", found
    # The policy acts without guidance, and would learn to rely on text that it never gets.
    if guided(sample.messages):
        return "guidance", ""
    if sample.kind == "action" and (why := unscorable(sample.response)) is not None:
        return "unscorable_reply", why
    for name in image_names(sample.messages):
        if fault := image_fault(holder(sources, name), name):
            return fault, name
    return None


def unscorable(response: str) -> str | None:
    """Returns why an action target does not earn the full reward for itself; None if it does."""
    try:
        return None if score_response(response, response) == 1.0 else ""
    except ReplyError as error:
        return str(error)


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


def _step_faults(run: ParsedTrajectory, incomplete: bool) -> Iterator[tuple[str, str]]:
    """Yields the place and the kind of each fault."""
    if not run.steps:
        yield "", "no_steps"
    missing = run.trajectory.missing
    for step in run.steps:
        fault = step.fault or ("guidance" if step.guided else "")
        if fault and not (incomplete and fault == "no_results" and "steps.results" in missing):
            yield f"step {step.step.number}", fault
    # Imported runs have empty fields where their system recorded nothing: these would teach empty fields.
    for name in missing:
        if name.startswith("steps.response.") and not incomplete:
            yield name, "incomplete_reply"


def _fingerprint(run: ParsedTrajectory) -> bytes:
    digest = hashlib.sha256(run.trajectory.task.task_id.encode())
    for step in run.steps:
        digest.update(repr((step.step.observation.fingerprint, step.composition)).encode())
    return digest.digest()
