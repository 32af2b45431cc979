"""The eleven failure modes of RMSWeb's appendix, the flags that show each, and the cues that guess one.

Names and shares are the paper's, and explanations follow it. Flags and cues are this project's. A model names
the failure; cues do without one, and where it is not sure. docs/mine.md has their accuracy.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

from collection.mining.flags import BLOCKED, DATE, FILTER, LOGIN, flags_of
from collection.mining.runs import ParsedRun


@dataclasses.dataclass(frozen=True)
class FailureMode:
    """A failure mode.

    Attributes:
      title: the paper's.
      share: of the paper's corpus, in percent.
      explanation: description for the model, from the paper's appendix.
      closure: flags of the success's steps that resolve the matter.
      violation: flags of the localization's steps that leave it open.
    """

    title: str
    share: float
    explanation: str
    closure: tuple[str, ...]
    violation: tuple[str, ...]


# In the paper's order, which is that of the shares.
TAXONOMY: dict[str, FailureMode] = {
    "unverifiable_evidence": FailureMode(
        "Unverifiable evidence, source, or compliance failure",
        39.80,
        "the conclusion lacks evidence from a page, or rests on a source that does not satisfy the task",
        ("extracts", "acts"),
        ("finishes", "absent_in_success", "searches"),
    ),
    "endpoint_incomplete": FailureMode(
        "Critical action or task endpoint incomplete",
        18.73,
        "the target is found, but not added, booked, submitted or confirmed as the task wants; "
        "also an end that comes too early",
        ("acts", "submits"),
        ("finishes", "passive", "notes", "repeats", "fails"),
    ),
    "access_obstruction": FailureMode(
        "Access, anti-bot, or technical obstruction",
        9.98,
        "a captcha, a refusal such as 403, or a control that is not available",
        ("navigates", "acts"),
        ("blocked",),
    ),
    "ui_navigation": FailureMode(
        "UI interaction or navigation failure",
        8.53,
        "a detail page, tab, date picker, dropdown or field is not reached or not operated",
        ("acts",),
        ("fails", "no_effect", "repeats", "absent_in_success", "skips_ahead"),
    ),
    "runtime_evaluation": FailureMode(
        "Runtime or evaluation failure",
        7.38,
        "the run times out or crashes, or its actions cannot be interpreted",
        ("acts",),
        ("invalid", "fails"),
    ),
    "constraint_mismatch": FailureMode(
        "Hard constraint, target object, or numeric threshold mismatch",
        6.02,
        "what was chosen or typed violates a required attribute, object or number",
        ("on_target", "acts"),
        ("off_target", "absent_in_success", "passive"),
    ),
    "filter_context": FailureMode(
        "Filter/sort/search context not applied",
        4.53,
        "a filter, sort order or search is claimed to be active, but the page does not show it",
        ("filters",),
        ("finishes", "off_target", "passive", "absent_in_success", "skips_ahead"),
    ),
    "datetime_availability": FailureMode(
        "Date/time/availability closure",
        2.26,
        "a requested date, time, stock or recency is never verified",
        ("dates",),
        ("finishes", "off_target", "passive", "absent_in_success", "skips_ahead"),
    ),
    "target_discovery": FailureMode(
        "Target discovery or search-strategy failure",
        1.82,
        "repeated searching or navigating does not reach the page where the task is done",
        ("on_target", "navigates", "acts"),
        ("passive", "searches", "repeats", "absent_in_success"),
    ),
    "extraction_omission": FailureMode(
        "Information extraction, final calculation, or multi-field omission",
        0.64,
        "a required field, unit, comparison or computed number is missing or wrong",
        ("extracts", "opens"),
        ("finishes", "passive", "notes", "absent_in_success", "skips_ahead"),
    ),
    "login_payment_boundary": FailureMode(
        "Login, payment, or privacy-boundary error",
        0.31,
        "it stops at the wrong login, payment or privacy boundary, or gives sensitive data that "
        "nobody gave it",
        ("boundary", "submits"),
        ("finishes", "boundary", "login_wall", "skips_ahead"),
    ),
}
# Evidence for any failure, since the label is only a soft prior: an act, and what a run does in its place
# [ours].
ANY_CLOSURE = ("acts",)
ANY_VIOLATION = ("absent_in_success", "skips_ahead", "fails", "no_effect", "finishes")
# What shows the detour of a longer success, for any mode [ours].
DETOUR_VIOLATION = ("absent_in_success", "fails", "no_effect")

# Share of each failure mode in the paper's corpus, in percent.
PAPER_SHARES = {name: mode.share for name, mode in TAXONOMY.items()}


@dataclasses.dataclass(frozen=True)
class FailureLabel:
    """The failure mode of a pair of runs.

    Attributes:
      confidence: in [0, 1].
      source: the cues, a model, or the model's review of its first answer.
      cues: the modes that cues speak for, see `cues_of`.
    """

    category: str
    confidence: float
    source: Literal["rule", "judge", "review"]
    cues: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for the audit record."""
        return ()


# Verbs that ask for an act, at the head of a sentence or of one of its parts. A task without any of them,
# such as to find or to compare, is fulfilled by an answer.
_ORDER = re.compile(
    r"(?:^|[.;:,!?]\s+|\b(?:and|then|to|please)\s+)(add|apply|book|buy|cancel|change|check ?out|click"
    r"|complete|create|delete|download|edit|enter|expand|fill|focus|join|log ?in|mark|order|pay|place|post"
    r"|press|register|remove|rename|reserve|save|schedule|select|send|set|sign up|submit|subscribe|tick"
    r"|type|update|upload|write)\b",
    re.IGNORECASE,
)
# The facts of an answer: numbers, and words with a capital letter.
_FACT = re.compile(r"\d[\d,.:/-]*\d|\d|\b[A-Z][\w'-]{2,}")
# These are right in 31 of 31 labelled cases, the others in 42 of 112 (tests/mining/cases).
_SURE = ("runtime_evaluation", "access_obstruction", "login_payment_boundary", "extraction_omission")
_SURE_CONFIDENCE, _CONFIDENCE = 0.9, 0.7


def rule_label(success: ParsedRun, localization: ParsedRun) -> FailureLabel:
    """The failure mode of the first cue; where no cue says anything the target was not found."""
    cues = cues_of(success, localization)
    category = cues[0] if cues else "target_discovery"
    return FailureLabel(category, _SURE_CONFIDENCE if category in _SURE else _CONFIDENCE, "rule", cues)


def cues_of(success: ParsedRun, localization: ParsedRun) -> tuple[str, ...]:
    """The failure modes that a cue speaks for, the one that decides first.

    RMSWeb lists what the cues come from (task constraints, action types, numeric and temporal cues, terminal
    behaviour, blocker signatures) and no formula.
    """
    run, task = localization.record, success.record.task
    if run.success:  # A detour.
        return ()
    asked = ". ".join((task.objective, *task.constraints))
    ordered, said = bool(_ORDER.search(asked)), run.final_text or ""
    claimed = run.outcome == "done" and run.declared_success is True
    unusable = sum(step.reply is None for step in localization.steps)
    end = localization.steps[-1].step.observation if localization.steps else None
    shown = f"{end.title} {end.page_text[:4000]} {said}" if end else said
    missing = [at for at, acts in enumerate(success.acts) if acts - localization.all_acts]
    did = [at for at, step in enumerate(success.steps) if not step.is_done]
    last_missing = ordered and bool(did) and did[-1] in missing
    close = not claimed or len(missing) <= 1 or len(localization) < len(success)
    missed = " ".join(success.action_texts[at] for at in missing)
    wanted, given = (set(_FACT.findall(text)) for text in (success.record.final_text or "", said))
    cues = {
        "runtime_evaluation": run.outcome in ("crashed", "timeout") or 2 * unusable > len(localization),
        "access_obstruction": run.outcome in ("blocked", "captcha", "unreachable")
        or (not claimed and BLOCKED.search(shown)),
        "login_payment_boundary": not claimed and LOGIN.search(said),
        # The answer has some of the facts, and no other ones.
        "extraction_omission": claimed and not ordered and given and given < wanted,
        "datetime_availability": DATE.search(missed),
        "filter_context": FILTER.search(asked) or FILTER.search(missed),
        "endpoint_incomplete": last_missing and close,
        "constraint_mismatch": claimed and ordered,
        "unverifiable_evidence": claimed,
        "ui_navigation": any(step.failed for step in localization.steps),
        "target_discovery": bool(flags_of(localization)["searches"].any()),
    }
    return tuple(name for name, speaks in cues.items() if speaks)
