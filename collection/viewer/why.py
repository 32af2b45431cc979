"""Why an episode failed: its failure mode, its first bad step, and where that is known from."""

from __future__ import annotations

import dataclasses

from collection.corpus.lean import Run
from collection.mining.flags import flags_of
from collection.mining.runs import ParsedRun, RunPair, parse_run
from collection.mining.score import KEPT, MiningConfig, find_divergence
from collection.mining.taxonomy import cues_of, rule_label

# Where a failure mode is known from.
SOURCES = {
    "judge": "a mined pair, whose failure a model named",
    "rule": "a mined pair, whose failure cues named",
    "cues": "cues, next to a run that solved the task",
    "alone": "cues of this run alone",
}
# A failure in which no cue says anything.
UNCLEAR = "unclear"
# Gates that only ask whether a decision can be trained on.
_FOUND = frozenset((KEPT, "invalid_model_io", "no_screenshot"))
# Flag of a step that went wrong -> what happened there.
_FAULTS = {
    "invalid": "its reply could not be used",
    "fails": "its actions failed",
    "blocked": "its page refuses the visitor",
    "no_effect": "its actions changed nothing",
    "repeats": "it does what the step before did, on the same page",
}


@dataclasses.dataclass(frozen=True)
class Why:
    """The failure of an episode.

    Attributes:
      mode: of `mining.taxonomy.TAXONOMY`, or `UNCLEAR`.
      step: number of the first bad step, from 1; 0 if none stands out.
      source: of `SOURCES`.
      what: what happened at the step.
      success: id of the run that it was compared with; "" for none.
    """

    mode: str
    step: int
    source: str
    what: str
    success: str = ""


@dataclasses.dataclass(frozen=True)
class Mined:
    """A mined pair of a failed run: failure mode, who named it, and the step of each run."""

    category: str
    label_source: str
    step: int
    success_step: int


def why(failed: Run, success: Run | None = None, mined: Mined | None = None) -> Why:
    """Explains a failure by its mined pair; else next to a run that solved the task; else by itself.

    The step is the one at which the two runs critically part. Where they do not, or there is one run alone,
    it is the first one that went wrong by itself.

    Args:
      success: the run of the pair, or any that may be training data.
    """
    run, other = parse_run(failed), parse_run(success) if success and success.steps else None
    compared = success.trajectory_id if success else ""
    if mined:
        at, did = _place(run, mined.step), _place(other, mined.success_step) if other else None
        source = "rule" if mined.label_source == "rule" else "judge"
        return Why(mined.category, mined.step, source, _parting(run, at, other, did), compared)
    at, what = _first_fault(run)
    if other is None or not run.steps:
        # Next to a run without steps only the cues of the failed run itself speak.
        cues = cues_of(ParsedRun(failed, ()), run)
        return Why(cues[0] if cues else UNCLEAR, _number(run, at), "alone", what)
    found = find_divergence(RunPair("primary", other, run), MiningConfig())
    if found.decision in _FOUND:
        at, what = found.localization_at, _parting(run, found.localization_at, other, found.success_at)
    return Why(rule_label(other, run).category, _number(run, at), "cues", what, compared)


def _parting(run: ParsedRun, at: int | None, other: ParsedRun | None, did: int | None) -> str:
    """What happened at a step, and what a run that solved the task did in its place."""
    what = (_fault(run, at) if at is not None else "") or "it parts from the run that solved the task"
    acts = " and ".join(sorted(other.acts[did])) if other and did is not None else ""
    return f"{what}; that one did here: {acts}" if acts else what


def _place(run: ParsedRun, number: int) -> int | None:
    return next((at for at, step in enumerate(run.steps) if step.step.number == number), None)


def _first_fault(run: ParsedRun) -> tuple[int | None, str]:
    """The first step that went wrong, or that ended the episode too early, and what happened there."""
    for at in range(len(run)):
        if fault := _fault(run, at):
            return at, fault
    last = len(run) - 1
    if last >= 0 and run.steps[last].is_done:
        return last, "it ends the episode, and the task was not solved"
    if last >= 0 and run.record.outcome not in ("done", "max_steps"):
        return last, f"the episode ended here: {run.record.outcome}"
    return None, "no step stands out"


def _fault(run: ParsedRun, at: int) -> str:
    return next((text for name, text in _FAULTS.items() if flags_of(run)[name][at]), "")


def _number(run: ParsedRun, at: int | None) -> int:
    return 0 if at is None else run.steps[at].step.number
