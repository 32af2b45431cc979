"""Records that mining writes: RL prompts for training, and audit records for manual inspection."""

from __future__ import annotations

from collections.abc import Sequence

from collection.corpus.lean import LeanStep
from collection.mining.runs import ParsedRun
from collection.mining.score import Divergence
from collection.tasks.websites import site_of
from rmsweb_jax.records.schema import AuditPair, ReplayVerdict, RlPrompt


def to_prompt(divergence: Divergence) -> RlPrompt:
    """Makes the RL prompt from the success step and its verified reply, without the localization run."""
    run, at = divergence.pair.success, divergence.success_at
    task = run.record.task
    if at is None:
        raise ValueError(f"{task.task_id}: no divergence was chosen")
    step = run.steps[at]
    return RlPrompt(
        prompt_id=f"{run.record.trajectory_id}/{step.step.number}",
        task_id=task.task_id,
        site=_site(run, at),
        category=divergence.label.category,
        messages=step.step.messages,
        target=step.target,
    )


def to_audit(best: Divergence, tried: Sequence[Divergence]) -> AuditPair:
    """Makes the audit record of a task's best divergence: both sides, scores, a note per pair tried."""
    success, localization = best.pair.success, best.pair.localization
    ours, theirs = _side(success, best.success_at), _side(localization, best.localization_at)
    notes = [f"{best.pair.kind} pair", *(f"cue: {name}" for name in best.label.cues), *best.label.notes]
    return AuditPair(
        task_id=success.record.task.task_id,
        site=_site(success, best.success_at),
        success_id=success.record.trajectory_id,
        localization_id=localization.record.trajectory_id,
        category=best.label.category,
        label_confidence=best.label.confidence,
        label_source=best.label.source,
        decision=best.decision,
        scores=best.scores,
        success_step=ours.number if ours else None,
        localization_step=theirs.number if theirs else None,
        success_response=ours.response if ours else "",
        localization_response=theirs.response if theirs else "",
        success_screenshot=ours.observation.screenshot if ours else None,
        localization_screenshot=theirs.observation.screenshot if theirs else None,
        notes=(*notes, *map(_tried, tried)),
        replay=best.replay,
    )


def without_pair(runs: Sequence[ParsedRun]) -> AuditPair:
    """Makes the audit record of a task without a pair of runs to compare."""
    success = next((run.record.trajectory_id for run in runs if run.record.success), "")
    return AuditPair(
        task_id=runs[0].record.task.task_id,
        site=_site(runs[0], None),
        success_id=success,
        localization_id="",
        category="",
        label_confidence=0.0,
        label_source="rule",
        decision="no_contrast" if success else "no_success",
        notes=(f"{len(runs)} runs",),
    )


def explain(audit: AuditPair, objective: str) -> str:
    """Formats an audit record: the decision, the label and its source, the scores, all pairs tried."""
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
    if audit.replay:
        lines.append(f"replay        {_replay_line(audit.replay)}")
    return "\n".join([*lines, *(f"note          {note}" for note in audit.notes)])


def _replay_line(verdict: ReplayVerdict) -> str:
    """Formats a verdict: `critical (with the success's action 8 of 8, with the other 1 of 8)`."""
    ours, theirs = verdict.with_success, verdict.with_failure
    if ours is None or theirs is None:
        return verdict.verdict
    counts = f"with the success's action {ours.successes} of {ours.trials}"
    return f"{verdict.verdict} ({counts}, with the other {theirs.successes} of {theirs.trials})"


def _tried(divergence: Divergence) -> str:
    """Formats one pair that was tried: its runs, its label, its decision and its best candidate."""
    pair, i, j = divergence.pair, divergence.success_at, divergence.localization_at
    ours, theirs = pair.success.record, pair.localization.record
    best = ""
    if i is not None and j is not None:
        steps = f"steps {ours.steps[i].number} and {theirs.steps[j].number}"
        best = f" ({steps}, total {divergence.scores['total']:.3f})"
    who = f"{ours.trajectory_id} with {theirs.trajectory_id}"
    return f"tried {who}: {divergence.label.category}, {divergence.decision}{best}"


def _site(run: ParsedRun, at: int | None) -> str:
    """The site of a step's page; without a step, or on pages made for a task, the task's."""
    task = run.record.task
    page = site_of(run.steps[at].step.observation.url) if at is not None and task.environment == "web" else ""
    return page or task.site or site_of(task.website)


def _side(run: ParsedRun, at: int | None) -> LeanStep | None:
    return None if at is None else run.steps[at].step
