"""From trajectories to supervised samples: the quality filter and the flattening (RMSWeb, section 3.2)."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from collection.steps import StepView, view
from rmsweb_jax.records.schema import SftSample, Trajectory

PAPER_MIN_EFFECTIVE_STEPS = 3
DROP_REASONS = ("not_successful", "invalid_step", "stalled", "too_short", "too_long", "duplicate")


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


def quality_filter(
    trajectories: Iterable[Trajectory], config: QualityConfig, counts: Counter[str]
) -> Iterator[tuple[Trajectory, list[StepView]]]:
    """Keeps complete, unstalled successes of the right length, each only once.

    Args:
      counts: grows by one for each trajectory: `kept` or its drop reason.

    Yields:
      The trajectory and its steps, parsed.
    """
    seen: set[bytes] = set()
    for trajectory in trajectories:
        steps = [view(step) for step in trajectory.steps]
        reason = drop_reason(trajectory, steps, config)
        key = _fingerprint(trajectory, steps)
        if not reason and key in seen:
            reason = "duplicate"
        counts[reason or "kept"] += 1
        if not reason:
            seen.add(key)
            yield trajectory, steps


def drop_reason(trajectory: Trajectory, steps: Sequence[StepView], config: QualityConfig) -> str:
    """Why a trajectory is not learned from (one of `DROP_REASONS` but the last), or nothing."""
    if not trajectory.success:
        return "not_successful"
    if not steps or not all(step.complete for step in steps):
        return "invalid_step"
    if stalled(steps, config.stall_repeats):
        return "stalled"
    effective = sum(step.effective for step in steps)
    if effective < config.min_effective_steps:
        return "too_short"
    return "too_long" if effective > config.max_effective_steps else ""


def stalled(steps: Sequence[StepView], repeats: int) -> bool:
    """Whether the same actions were tried on the same page `repeats` times in a row."""
    run, previous = 0, None
    for step in steps:
        now = (step.step.observation.fingerprint, step.composition)
        run = run + 1 if now == previous else 1
        if run >= repeats:
            return True
        previous = now
    return False


def flatten(trajectory: Trajectory, steps: Sequence[StepView]) -> Iterator[SftSample]:
    """One `action` sample a step, and one `extraction` sample for each page-reading call."""
    common = {"task_id": trajectory.task.task_id, "site": trajectory.task.site}
    for step in steps:
        name = f"{trajectory.trajectory_id}/{step.step.number}"
        yield SftSample(
            sample_id=name, kind="action", messages=step.step.messages, response=step.target, **common
        )
        for number, call in enumerate(step.step.extractions):
            if call.response:
                yield SftSample(
                    sample_id=f"{name}/extraction-{number}",
                    kind="extraction",
                    messages=call.messages,
                    response=call.response,
                    **common,
                )


def _fingerprint(trajectory: Trajectory, steps: Sequence[StepView]) -> bytes:
    digest = hashlib.sha256(trajectory.task.task_id.encode())
    for step in steps:
        digest.update(repr((step.step.observation.fingerprint, step.composition)).encode())
    return digest.digest()
