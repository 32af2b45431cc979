"""Features of a pair of runs, each in [0, 1], from which the rule label is computed.

RMSWeb lists the cues (task constraints, action types, numeric and temporal cues, terminal behaviour, blocker
signatures) and no formula. The features and their constants are this project's: written by hand and tuned on
the tuned labelled cases and the generator's seeds 0-19. docs/results/mining.md has their accuracy on held-out
cases. Features are named in audit records and in the judge's prompt, so a renamed one changes both.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from collection.mining.run_diff import RunDiff, seen, thoughts
from collection.mining.runs import ParsedRun
from collection.mining.step_flags import BOUNDARY, DATE, refuses
from collection.tasks.websites import site_of

# English phrases, written by hand: an order or a filter; several things asked for; an answer from memory.
_FILTERED = re.compile(
    r"\b(filter|sort|newest|cheapest|lowest|highest|top[- ]rated|most \w+|only show)", re.IGNORECASE
)
_SEVERAL = re.compile(
    r"\b(and|both|all|each|every|list|compare|total|sum|average|difference|units?)\b|,", re.IGNORECASE
)
_TRUST = re.compile(
    r"\b(i know|from memory|usually|typically|i believe|as far as i|generally|likely|probably)\b",
    re.IGNORECASE,
)

# Tuned by hand. Factors on shares of steps: a feature reaches 1 if half of the replies are unusable, if two
# steps in five have trouble, or if the share of passive and search steps is 0.5 above the success's.
_INVALID_SCALE, _TROUBLE_SCALE, _WANDERING_SCALE = 2.0, 2.5, 2.0
# Weight of `stopped` for a run that claims success: in most tuned cases it found a way around the refusal.
_STOPPED_CLAIMED = 0.4
# Number of last steps to search for a refusal, because agents wait or retry before they give up.
_LAST_REFUSALS = 3
# Number of last steps to search for a login page: the final `done` may be on another page.
_LAST_LOGIN_WALLS = 2
# An answer with more wrong facts than this share counts as wrong, not as incomplete.
_MAX_WRONG = 0.4

Feature = Callable[[RunDiff], float]
# Every feature by its name. Which failure mode a feature counts for, and how much, is in
# `failure_modes.TAXONOMY`.
FEATURES: dict[str, Feature] = {}


def _feature(function: Feature) -> Feature:
    FEATURES[function.__name__] = function
    return function


# The end of the run.


@_feature
def crashed(diff: RunDiff) -> float:
    """The run crashed or ran out of time."""
    return float(diff.localization.record.outcome in ("crashed", "timeout"))


@_feature
def invalid(diff: RunDiff) -> float:
    """The share of steps with an unusable reply, scaled."""
    return min(1.0, _INVALID_SCALE * _mean(diff.localization_flags["invalid"]))


@_feature
def stopped(diff: RunDiff) -> float:
    """A site turned the run away at its end."""
    run = diff.localization.record
    blocked = diff.localization_flags["blocked"][-_LAST_REFUSALS:]
    refused = run.outcome in ("blocked", "captcha", "unreachable") or bool(blocked.any())
    refused |= run.declared_success is False and refuses(run.final_text)
    return (_STOPPED_CLAIMED if diff.claimed else 1.0) * refused


@_feature
def gave_up(diff: RunDiff) -> float:
    """The run ended by declaring failure."""
    run = diff.localization.record
    return float(diff.failed and run.outcome == "done" and run.declared_success is not True)


@_feature
def detour(diff: RunDiff) -> float:
    """The run is also a success, but a longer one."""
    return float(not diff.failed and len(diff.localization) > len(diff.success))


@_feature
def verdict_doubted(diff: RunDiff) -> float:
    """The run has the success's answer and acts, but was judged a failure."""
    # Only if no other feature explains the failure is the verdict itself in doubt.
    same = diff.claimed and bool(diff.given_facts) and diff.expected_facts <= diff.given_facts
    return float(same and not (act_missing(diff) or rival(diff) or page_missing(diff) or secret_strays(diff)))


# Trouble during the run.


def failing(diff: RunDiff) -> float:
    """The share of steps that failed, had no effect or were repeated, scaled."""
    flags = diff.localization_flags
    # Repeated scrolling is passive, not trouble.
    repeated = flags["repeats"] & ~flags["passive"] & ~flags["invalid"]
    # Unusable replies, refusals and notes have features of their own or are no trouble.
    trouble = (flags["fails"] & ~flags["invalid"]) | flags["no_effect"] | repeated
    return min(1.0, _TROUBLE_SCALE * _mean(trouble & ~flags["blocked"] & ~flags["notes"]))


@_feature
def failing_claimed(diff: RunDiff) -> float:
    """`failing`, and the run answers as if its acts had worked."""
    return failing(diff) * (diff.claimed and not diff.asks_for_action)


@_feature
def failing_unclaimed(diff: RunDiff) -> float:
    """`failing`, and the run does not claim success."""
    return failing(diff) * (not diff.claimed)


@_feature
def wandering(diff: RunDiff) -> float:
    """By how much the share of passive and search steps exceeds the success's, scaled."""
    ours, theirs = (
        _mean(flags["passive"] | flags["searches"]) for flags in (diff.success_flags, diff.localization_flags)
    )
    return min(1.0, _WANDERING_SCALE * max(0.0, theirs - ours))


# Acts of the success that the other run lacks.


@_feature
def act_missing(diff: RunDiff) -> float:
    """The task asks for an act, and the success's last act is missing; scaled by `_completeness`."""
    return (diff.failed and diff.asks_for_action and diff.last_act in diff.missing_acts) * _completeness(diff)


@_feature
def act_untried(diff: RunDiff) -> float:
    """`act_missing`, although the run visited the page of that act; less the more trouble it had."""
    at = diff.last_act
    in_reach = at is not None and diff.success.pages[at] in diff.localization.pages
    return act_missing(diff) * in_reach * (1 - failing(diff))


@_feature
def early(diff: RunDiff) -> float:
    """The share of the success's number of acts that the run lacks when it declares itself done."""
    needed, did = int(diff.success_flags["acts"].sum()), int(diff.localization_flags["acts"].sum())
    finished = diff.failed and diff.localization.record.outcome == "done"
    return max(0.0, (needed - did) / needed) if finished and needed else 0.0


def page_missing(diff: RunDiff) -> float:
    """The run never reached the page on which the success ended."""
    known = diff.failed and diff.last_act is not None
    return float(known and diff.success.pages[-1] not in diff.localization.pages)


@_feature
def page_claimed(diff: RunDiff) -> float:
    """`page_missing`, but the run answers and claims success."""
    return page_missing(diff) * (diff.claimed and not diff.asks_for_action)


@_feature
def page_unclaimed(diff: RunDiff) -> float:
    """`page_missing`, explained neither by an unused control nor by an account."""
    return page_missing(diff) * (not (diff.claimed or control_unused(diff) or boundary_stop(diff)))


def control_unused(diff: RunDiff) -> float:
    """The success used a control (a tab, a box, a list) on a page that the run also visited."""
    here = set(diff.localization.pages)
    adjusts = diff.success_flags["adjusts"]
    unused = any(adjusts[at] and diff.success.pages[at] in here for at in diff.missing_acts)
    return float(diff.failed and unused)


@_feature
def control_claimed(diff: RunDiff) -> float:
    """`control_unused`, and the run claims success."""
    return control_unused(diff) * diff.claimed


@_feature
def control_unclaimed(diff: RunDiff) -> float:
    """`control_unused`, and the run does not claim success."""
    return control_unused(diff) * (not diff.claimed)


@_feature
def filter_gap(diff: RunDiff) -> float:
    """The success filtered or sorted in a step that the run lacks."""
    return float(diff.missing_act_has("filters"))


@_feature
def filter_claimed(diff: RunDiff) -> float:
    """`filter_gap`, but the run mentions a filter or an order."""
    return filter_gap(diff) * bool(_FILTERED.search(diff.statements))


@_feature
def filter_asked(diff: RunDiff) -> float:
    """The task asks for a filter or an order, and the run failed."""
    return float(diff.failed and bool(_FILTERED.search(diff.request)))


@_feature
def filter_decided(diff: RunDiff) -> float:
    """The success mentions a filter or an order in the memory or goal of a missing act."""
    return float(diff.failed and bool(_FILTERED.search(diff.missing_goals)))


@_feature
def date_gap(diff: RunDiff) -> float:
    """The success acted on a date, a time or availability in a step that the run lacks."""
    return float(diff.missing_act_has("dates"))


@_feature
def date_asked(diff: RunDiff) -> float:
    """The task names a date, a time or availability, and the run failed."""
    task = diff.success.record.task
    return float(diff.failed and bool(DATE.search(" ".join((task.objective, *task.constraints)))))


@_feature
def date_decided(diff: RunDiff) -> float:
    """The success mentions a date or availability in the memory or goal of a missing act."""
    return float(diff.failed and bool(DATE.search(diff.missing_goals)))


# Acts of the other run that the success lacks.


def rival(diff: RunDiff) -> float:
    """On one page the two runs did different acts, neither of which the other run has."""
    theirs = {diff.localization.pages[at] for at in diff.extra_acts}
    return float(diff.failed and any(diff.success.pages[at] in theirs for at in diff.missing_acts))


@_feature
def rival_claimed(diff: RunDiff) -> float:
    """`rival` and claimed success, explained neither by `omits` nor by `overstepped`."""
    return rival(diff) * (diff.claimed and not (omits(diff) or overstepped(diff)))


@_feature
def constraint_decided(diff: RunDiff) -> float:
    """A missing act contains a word of the constraints that the run never acts on or types."""
    return float(diff.failed and bool(diff.missed_constraint_words))


@_feature
def foreign_source(diff: RunDiff) -> float:
    """The run ended on a site that the success never visited."""
    if not diff.failed or not diff.localization.steps:
        return 0.0
    home = {site_of(step.step.observation.url) for step in diff.success.steps}
    return float(site_of(diff.localization.steps[-1].step.observation.url) not in home)


# Accounts, money, personal data.


@_feature
def at_login(diff: RunDiff) -> float:
    """One of the run's last pages demands an account."""
    return float(bool(diff.localization_flags["login_wall"][-_LAST_LOGIN_WALLS:].any()))


@_feature
def boundary_stop(diff: RunDiff) -> float:
    """The run declared no success; its last words mention accounts, money or personal data."""
    run = diff.localization
    if not diff.failed or not run.steps or run.record.declared_success is True:
        return 0.0
    return float(bool(BOUNDARY.search(f"{run.record.final_text} {thoughts(run, len(run) - 1)}")))


@_feature
def boundary_shunned(diff: RunDiff) -> float:
    """The success mentions such matters in a missing act; scaled by `_completeness`."""
    avoided = diff.failed and not diff.claimed and bool(BOUNDARY.search(diff.missing_goals))
    return avoided * _completeness(diff)


@_feature
def overstepped(diff: RunDiff) -> float:
    """The run did all acts of the success, and others."""
    acts = np.flatnonzero(diff.success_flags["acts"] & ~diff.success_flags["extracts"])
    needed = frozenset().union(*(diff.success.acts[at] for at in acts))
    return float(diff.failed and bool(diff.extra_acts) and needed <= diff.localization.all_acts)


@_feature
def secret_withheld(diff: RunDiff) -> float:
    """The success gave a secret or a payment in a step that the run lacks; scaled by `_completeness`."""
    return (diff.missing_act_has("sensitive") and not diff.claimed) * _completeness(diff)


@_feature
def secret_strays(diff: RunDiff) -> float:
    """The run gave a secret or a payment, the success gave none."""
    given, needed = (flags["sensitive"].any() for flags in (diff.localization_flags, diff.success_flags))
    return float(diff.failed and bool(given) and not needed)


# Facts of the answers.


@_feature
def answer_wrong(diff: RunDiff) -> float:
    """The share of the answer's facts that are not in the success's answer."""
    return len(diff.given_facts - diff.expected_facts) / len(diff.given_facts) if diff.given_facts else 0.0


@_feature
def answer_short(diff: RunDiff) -> float:
    """The share of the success's facts that the answer lacks, times the share of it that is right."""
    if not diff.given_facts:
        return 0.0
    lacking = len(diff.expected_facts - diff.given_facts) / len(diff.expected_facts)
    return lacking * (1 - answer_wrong(diff))


@_feature
def omits(diff: RunDiff) -> float:
    """The answer lacks some of several things asked for; the rest of it is mostly right."""
    lacking = bool(diff.given_facts) and bool(diff.expected_facts - diff.given_facts)
    mostly_right = answer_wrong(diff) < _MAX_WRONG
    return float(lacking and mostly_right and bool(_SEVERAL.search(diff.request)))


@_feature
def unseen(diff: RunDiff) -> float:
    """The share of the answer's numbers that the run never saw."""
    numbers = [fact for fact in diff.given_facts if any(sign.isdigit() for sign in fact)]
    return sum(not seen(diff.localization, fact) for fact in numbers) / len(numbers) if numbers else 0.0


@_feature
def from_memory(diff: RunDiff) -> float:
    """The run answers, and mentions its own knowledge or a guess."""
    return float(bool(diff.given_facts) and bool(_TRUST.search(diff.statements)))


def pair_features(success: ParsedRun, localization: ParsedRun) -> dict[str, float]:
    """Every feature of a pair: name -> value in [0, 1]."""
    diff = RunDiff(success, localization)
    return {name: float(feature(diff)) for name, feature in FEATURES.items()}


def _completeness(diff: RunDiff) -> float:
    """1 unless the run crashed or had unusable replies; what such a run did not do explains little."""
    return 1 - max(crashed(diff), invalid(diff))


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else 0.0
