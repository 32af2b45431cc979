"""How a run differs from a success of its task: small named features in [0, 1], of which labels are made.

Which feature speaks for which failure mode, and how strongly, stands in `collection.mining.taxonomy`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from collection.mining.branch import Branch
from collection.mining.contrast import Contrast, said, seen
from collection.mining.signals import BOUNDARY, DATE, refuses, task_has_dates
from collection.sites import site_of

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

Feature = Callable[[Contrast], float]


# How the run ended.


def crashed(pair: Contrast) -> float:
    """The run broke off."""
    return float(pair.localization.run.outcome in ("crashed", "timeout"))


def invalid(pair: Contrast) -> float:
    """Replies could not be used; 1 from every second step on."""
    return min(1.0, 2 * _mean(pair.bad["invalid"]))


def stopped(pair: Contrast) -> float:
    """A site turned the run away at its end. Who claims success all the same had got by."""
    run = pair.localization.run
    refused = run.outcome in ("blocked", "captcha", "unreachable") or bool(pair.bad["blocked"][-3:].any())
    refused |= run.declared_success is False and refuses(run.final_text)
    return (0.4 if pair.claimed else 1.0) * refused


def gave_up(pair: Contrast) -> float:
    """The run itself said that it had failed."""
    run = pair.localization.run
    return float(pair.failed and run.outcome == "done" and run.declared_success is not True)


def detour(pair: Contrast) -> float:
    """A success too, and a longer one."""
    return float(not pair.failed and len(pair.localization) > len(pair.success))


def verdict_doubted(pair: Contrast) -> float:
    """The same answer in the same way, and yet failed."""
    same = pair.claimed and bool(pair.given) and pair.wanted <= pair.given
    return float(same and not (act_missing(pair) or rival(pair) or page_missing(pair) or secret_strays(pair)))


# Trouble on the way.


def failing(pair: Contrast) -> float:
    """Acts failed, had no effect or were repeated; 1 from two in five steps on."""
    bad = pair.bad
    # Scrolling the same page again is looking around, not trouble.
    repeated = bad["repeats"] & ~bad["passive"] & ~bad["invalid"]
    trouble = (bad["fails"] & ~bad["invalid"]) | bad["no_effect"] | repeated
    return min(1.0, 2.5 * _mean(trouble & ~bad["blocked"] & ~bad["notes"]))


def failing_claimed(pair: Contrast) -> float:
    """Acts had no effect, and the answer is given as if they had."""
    return failing(pair) * (pair.claimed and not pair.ordered)


def failing_unclaimed(pair: Contrast) -> float:
    return failing(pair) * (not pair.claimed)


def wandering(pair: Contrast) -> float:
    """More looking and searching than the success needed."""
    share = [_mean(table["passive"] | table["searches"]) for table in (pair.bad, pair.good)]
    return min(1.0, 2 * max(0.0, share[0] - share[1]))


# What the success did and this run did not.


def act_missing(pair: Contrast) -> float:
    """Something was to be done, and the success's last act is missing from a run that could have done it."""
    return (pair.failed and pair.ordered and pair.last_act in pair.missing) * _whole(pair)


def act_untried(pair: Contrast) -> float:
    """`act_missing`, though the run stood at that page and met no trouble there."""
    at = pair.last_act
    in_reach = at is not None and pair.success.pages[at] in pair.localization.pages
    return act_missing(pair) * in_reach * (1 - failing(pair))


def early(pair: Contrast) -> float:
    """The share of acts that were left when the run declared itself done."""
    needed, did = int(pair.good["acts"].sum()), int(pair.bad["acts"].sum())
    finished = pair.failed and pair.localization.run.outcome == "done"
    return max(0.0, (needed - did) / needed) if finished and needed else 0.0


def page_missing(pair: Contrast) -> float:
    """The page on which the success ended was never reached."""
    known = pair.failed and pair.last_act is not None
    return float(known and pair.success.pages[-1] not in pair.localization.pages)


def page_claimed(pair: Contrast) -> float:
    """`page_missing`, and yet there is an answer."""
    return page_missing(pair) * (pair.claimed and not pair.ordered)


def page_unclaimed(pair: Contrast) -> float:
    """`page_missing`, and neither a control nor an account explains it."""
    return page_missing(pair) * (not (pair.claimed or control_unused(pair) or boundary_stop(pair)))


def control_unused(pair: Contrast) -> float:
    """The success used a control of a page (a tab, a box, a list) at which this run stood, too."""
    here = set(pair.localization.pages)
    return float(
        pair.failed
        and any(pair.good["adjusts"][at] and pair.success.pages[at] in here for at in pair.missing)
    )


def control_claimed(pair: Contrast) -> float:
    return control_unused(pair) * pair.claimed


def control_unclaimed(pair: Contrast) -> float:
    return control_unused(pair) * (not pair.claimed)


def filter_gap(pair: Contrast) -> float:
    """The success filtered or sorted, this run did not."""
    return float(pair.lacks("filters"))


def filter_claimed(pair: Contrast) -> float:
    """`filter_gap`, and the run speaks as if it had."""
    return filter_gap(pair) * bool(_FILTERED.search(pair.said))


def filter_asked(pair: Contrast) -> float:
    """The task asks for a filter or an order."""
    return float(pair.failed and bool(_FILTERED.search(pair.request)))


def filter_decided(pair: Contrast) -> float:
    """The success spoke of a filter or an order when it did what this run did not."""
    return float(pair.failed and bool(_FILTERED.search(pair.goals_missing)))


def date_gap(pair: Contrast) -> float:
    """The success acted on a date, a time or availability, this run did not."""
    return float(pair.lacks("dates"))


def date_asked(pair: Contrast) -> float:
    """The task names a date, a time or availability."""
    return float(pair.failed and task_has_dates(pair.success))


def date_decided(pair: Contrast) -> float:
    """The success spoke of a date or availability when it did what this run did not."""
    return float(pair.failed and bool(DATE.search(pair.goals_missing)))


# What this run did and the success did not.


def rival(pair: Contrast) -> float:
    """At one page the success chose one thing, and this run another."""
    theirs = {pair.localization.pages[at] for at in pair.extra}
    return float(pair.failed and any(pair.success.pages[at] in theirs for at in pair.missing))


def rival_claimed(pair: Contrast) -> float:
    """`rival`, taken for the right one; no field is only missing, and no line overstepped."""
    return rival(pair) * (pair.claimed and not (omits(pair) or overstepped(pair)))


def constraint_decided(pair: Contrast) -> float:
    """The success's missing acts name what the task demands, this run never does."""
    return float(pair.failed and bool(pair.demands_missed))


def foreign_source(pair: Contrast) -> float:
    """The run ended on a site where the success never was."""
    if not pair.failed or not pair.localization.steps:
        return 0.0
    home = {site_of(step.step.observation.url) for step in pair.success.steps}
    return float(site_of(pair.localization.steps[-1].step.observation.url) not in home)


# Accounts, money, personal data.


def at_login(pair: Contrast) -> float:
    """The run ended before a page that wants an account."""
    return float(bool(pair.bad["login_wall"][-2:].any()))


def boundary_stop(pair: Contrast) -> float:
    """The run ended without success, speaking of accounts, money or personal data."""
    branch = pair.localization
    if not pair.failed or not branch.steps or branch.run.declared_success is True:
        return 0.0
    return float(bool(BOUNDARY.search(f"{branch.run.final_text} {said(branch, len(branch) - 1)}")))


def boundary_shunned(pair: Contrast) -> float:
    """The success spoke of such things when it did what this run did not."""
    shunned = pair.failed and not pair.claimed and bool(BOUNDARY.search(pair.goals_missing))
    return shunned * _whole(pair)


def overstepped(pair: Contrast) -> float:
    """All that the success did, and then more."""
    needed = {
        pair.success.signatures[at] for at in np.flatnonzero(pair.good["acts"] & ~pair.good["extracts"])
    }
    return float(pair.failed and bool(pair.extra) and needed <= set(pair.localization.signatures))


def secret_withheld(pair: Contrast) -> float:
    """The success gave a secret or a payment, this run did not."""
    return (pair.lacks("sensitive") and not pair.claimed) * _whole(pair)


def secret_strays(pair: Contrast) -> float:
    """This run gave a secret or a payment, the success none at all."""
    return float(pair.failed and bool(pair.bad["sensitive"].any()) and not pair.good["sensitive"].any())


# The answers, fact by fact.


def answer_wrong(pair: Contrast) -> float:
    """The share of the answer's facts that the success's does not hold."""
    return len(pair.given - pair.wanted) / len(pair.given) if pair.given else 0.0


def answer_short(pair: Contrast) -> float:
    """The share of the success's facts that the answer lacks, the less the more of it is wrong."""
    return len(pair.wanted - pair.given) / len(pair.wanted) * (1 - answer_wrong(pair)) if pair.given else 0.0


def omits(pair: Contrast) -> float:
    """Of several things asked for, some are missing, and what there is is mostly right."""
    lacking = bool(pair.given) and bool(pair.wanted - pair.given) and answer_wrong(pair) < 0.4
    return float(lacking and bool(_SEVERAL.search(pair.request)))


def unseen(pair: Contrast) -> float:
    """The share of the answer's numbers that stood nowhere."""
    numbers = [fact for fact in pair.given if any(sign.isdigit() for sign in fact)]
    return sum(not seen(pair.localization, fact) for fact in numbers) / len(numbers) if numbers else 0.0


def from_memory(pair: Contrast) -> float:
    """The answer rests on what the model believes to know."""
    return float(bool(pair.given) and bool(_TRUST.search(pair.said)))


FEATURES: dict[str, Feature] = {
    function.__name__: function
    for function in (
        *(crashed, invalid, stopped, gave_up, detour, verdict_doubted),
        *(failing_claimed, failing_unclaimed, wandering),
        *(act_missing, act_untried, early, page_claimed, page_unclaimed, control_claimed, control_unclaimed),
        *(filter_gap, filter_claimed, filter_asked, filter_decided, date_gap, date_asked, date_decided),
        *(rival_claimed, constraint_decided, foreign_source),
        *(at_login, boundary_stop, boundary_shunned, overstepped, secret_withheld, secret_strays),
        *(answer_wrong, answer_short, omits, unseen, from_memory),
    )
}


def pair_features(success: Branch, localization: Branch) -> dict[str, float]:
    """Every feature of a pair, in [0, 1]."""
    pair = Contrast(success, localization)
    return {name: float(feature(pair)) for name, feature in FEATURES.items()}


def _whole(pair: Contrast) -> float:
    """How far the run went on as an agent's: what a broken one did not do explains nothing."""
    return 1 - max(crashed(pair), invalid(pair))


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else 0.0
