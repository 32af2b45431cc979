"""What mining hands on: prompts for training, and the audit trail for people."""

from __future__ import annotations

from collection.mining.branch import Branch
from collection.mining.select import Case
from rmsweb_jax.records.schema import AuditPair, RlPrompt, Step


def to_prompt(case: Case) -> RlPrompt:
    """The successful side's state and verified reply; nothing of the other side."""
    branch, at = case.pair.success, case.success_at
    if at is None:
        raise ValueError(f"{branch.run.task.task_id}: no divergence was chosen")
    step, task = branch.steps[at], branch.run.task
    return RlPrompt(
        prompt_id=f"{branch.run.trajectory_id}/{step.step.number}",
        task_id=task.task_id,
        site=task.site,
        category=case.label.category,
        messages=step.step.messages,
        target=step.target,
    )


def to_audit(case: Case, decision: str) -> AuditPair:
    """Both sides of a case with every score, whether it was kept or not."""
    success, localization = case.pair.success, case.pair.localization
    ours, theirs = _side(success, case.success_at), _side(localization, case.localization_at)
    notes = [f"{case.pair.kind} pair"]
    notes += [f"{name}={value:g}" for name, value in sorted(case.label.features.items())]
    return AuditPair(
        task_id=success.run.task.task_id,
        site=success.run.task.site,
        success_id=success.run.trajectory_id,
        localization_id=localization.run.trajectory_id,
        category=case.label.category,
        label_confidence=case.label.confidence,
        label_source=case.label.source,
        decision=decision,
        scores=case.scores,
        success_step=ours.number if ours else None,
        localization_step=theirs.number if theirs else None,
        success_response=ours.response if ours else "",
        localization_response=theirs.response if theirs else "",
        success_screenshot=ours.observation.screenshot if ours else None,
        localization_screenshot=theirs.observation.screenshot if theirs else None,
        notes=tuple(notes),
    )


def without_pair(runs: list[Branch]) -> AuditPair:
    """The record of a task that has nothing to compare."""
    task = runs[0].run.task
    success = next((run.run.trajectory_id for run in runs if run.run.success), "")
    return AuditPair(
        task_id=task.task_id,
        site=task.site,
        success_id=success,
        localization_id="",
        category="",
        label_confidence=0.0,
        label_source="rule",
        decision="no_contrast" if success else "no_success",
        notes=(f"{len(runs)} runs",),
    )


def explain(audit: AuditPair, objective: str) -> str:
    """One case in a few lines of text."""
    lines = [
        f"task          {audit.task_id}: {objective}",
        f"decision      {audit.decision}",
    ]
    if audit.localization_id:
        lines += [
            f"label         {audit.category} ({audit.label_confidence:.2f}, {audit.label_source}; "
            + f"{', '.join(audit.notes)})",
            f"success       {audit.success_id} step {audit.success_step}: {audit.success_response}",
            f"localization  {audit.localization_id} step {audit.localization_step}: "
            + audit.localization_response,
            "scores        "
            + ", ".join(f"{name} {value:.3f}" for name, value in sorted(audit.scores.items())),
        ]
    return "\n".join(lines)


def _side(branch: Branch, at: int | None) -> Step | None:
    return None if at is None else branch.steps[at].step
