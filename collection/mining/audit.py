"""What mining hands on: prompts for training, and the audit trail for people."""

from __future__ import annotations

from collections.abc import Sequence

from collection.mining.branch import Branch
from collection.mining.select import Case
from collection.sites import site_of
from rmsweb_jax.records.lean import Step
from rmsweb_jax.records.schema import AuditPair, RlPrompt


def to_prompt(case: Case) -> RlPrompt:
    """The successful side's state and verified reply; nothing of the other side."""
    branch, at = case.pair.success, case.success_at
    if at is None:
        raise ValueError(f"{branch.run.task.task_id}: no divergence was chosen")
    step, task = branch.steps[at], branch.run.task
    return RlPrompt(
        prompt_id=f"{branch.run.trajectory_id}/{step.step.number}",
        task_id=task.task_id,
        site=_site(branch),
        category=case.label.category,
        messages=step.step.messages,
        target=step.target,
    )


def to_audit(case: Case, tried: Sequence[Case]) -> AuditPair:
    """Both sides of the best case with every score, and a line for each pair that was tried."""
    success, localization = case.pair.success, case.pair.localization
    ours, theirs = _side(success, case.success_at), _side(localization, case.localization_at)
    notes = [f"{case.pair.kind} pair"]
    notes += [f"{name}={value:g}" for name, value in sorted(case.label.features.items())]
    notes += case.label.notes
    return AuditPair(
        task_id=success.run.task.task_id,
        site=_site(success),
        success_id=success.run.trajectory_id,
        localization_id=localization.run.trajectory_id,
        category=case.label.category,
        label_confidence=case.label.confidence,
        label_source=case.label.source,
        decision=case.decision,
        scores=case.scores,
        success_step=ours.number if ours else None,
        localization_step=theirs.number if theirs else None,
        success_response=ours.response if ours else "",
        localization_response=theirs.response if theirs else "",
        success_screenshot=ours.observation.screenshot if ours else None,
        localization_screenshot=theirs.observation.screenshot if theirs else None,
        notes=(*notes, *map(_tried, tried)),
    )


def without_pair(runs: Sequence[Branch]) -> AuditPair:
    """The record of a task that has nothing to compare."""
    success = next((run.run.trajectory_id for run in runs if run.run.success), "")
    return AuditPair(
        task_id=runs[0].run.task.task_id,
        site=_site(runs[0]),
        success_id=success,
        localization_id="",
        category="",
        label_confidence=0.0,
        label_source="rule",
        decision="no_contrast" if success else "no_success",
        notes=(f"{len(runs)} runs",),
    )


def explain(audit: AuditPair, objective: str) -> str:
    """One case, readably: what was decided and why, who said so, and every pair that was tried."""
    lines = [
        f"task          {audit.task_id}: {objective}",
        f"decision      {audit.decision}",
    ]
    if audit.localization_id:
        lines += [
            f"label         {audit.category} ({audit.label_confidence:.2f}, by {audit.label_source})",
            f"success       {audit.success_id} step {audit.success_step}: {audit.success_response}",
            f"localization  {audit.localization_id} step {audit.localization_step}: "
            + audit.localization_response,
            "scores        "
            + ", ".join(f"{name} {value:.3f}" for name, value in sorted(audit.scores.items())),
        ]
    return "\n".join([*lines, *(f"note          {note}" for note in audit.notes)])


def _tried(case: Case) -> str:
    """One pair of the task: who met whom, under which label, and how far its best candidate came."""
    ours, theirs = case.pair.success.run, case.pair.localization.run
    best = ""
    if case.success_at is not None and case.localization_at is not None:
        steps = case.pair.success.steps[case.success_at], case.pair.localization.steps[case.localization_at]
        best = f" (steps {steps[0].step.number} and {steps[1].step.number}, total {case.scores['total']:.3f})"
    who = f"{ours.trajectory_id} with {theirs.trajectory_id}"
    return f"tried {who}: {case.label.category}, {case.decision}{best}"


def _site(branch: Branch) -> str:
    return branch.run.task.site or site_of(branch.run.task.website)


def _side(branch: Branch, at: int | None) -> Step | None:
    return None if at is None else branch.steps[at].step
