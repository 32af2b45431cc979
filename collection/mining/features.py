"""How a run differs from a success of the same task: the features of which labels are made."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from collection.mining.branch import Branch, words
from collection.mining.signals import BOUNDARY, DATE, refuses, signal_table, task_has_dates
from collection.sites import site_of

Table = dict[str, np.ndarray]

# Verbs that ask for something to be done, at the head of a sentence or of one of its parts; whoever is
# asked to find or compare something is done with an answer.
_ORDER = re.compile(
    r"(?:^|[.;:,!?]\s+|\b(?:and|then|(?<!how )to|please)\s+)"
    r"(add|apply (?:for|to)|book|buy|cancel|change|check ?out|complete|contact|create|delete|donate|download|edit|enrol+"
    r"|fill|follow|join|like|log ?in|make|mark|message|order|pay|pin|place|post|publish|purchase|rate|register"
    r"|remove|rename|renew|rent|report an?|request|reserve|rsvp|save|schedule|send|set|share|sign ?(?:in|up)|star"
    r"|submit|subscribe|turn|unsubscribe|update|upload|vote|write)\b",
    re.IGNORECASE,
)
_FACT = re.compile(r"\d[\d,.:/-]*\d|\d|\b[A-Z][\w'-]{2,}")
_COMMON = frozenset(
    "the this that there these they its you your from with and for not are was none all".split()
)
_SMALL = _COMMON | frozenset("a an in of on at to by or be as is it no any at most least must only".split())
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


def pair_features(success: Branch, localization: Branch) -> dict[str, float]:
    """How the localization run differs from the success, each in [0, 1]."""
    good, bad = signal_table(success), signal_table(localization)
    return _joined(
        _ending(success, localization)
        | _trouble(localization, good, bad)
        | _closure(success, localization, good, bad)
        | _choices(success, localization, good, bad)
        | _answer(success, localization)
    )


def _joined(found: dict[str, float]) -> dict[str, float]:
    """Adds what only says something together: the same trouble, with and without a claim of success."""
    claimed = found["false_claim"]
    return found | {
        "stopped": found["blocked"] * (1 - 0.6 * claimed),
        "failing_claimed": found["failing"] * claimed * (1 - found["ordered"]),
        "failing_unclaimed": found["failing"] * (1 - claimed),
        "control_claimed": found["control_unused"] * claimed,
        "control_unclaimed": found["control_unused"] * (1 - claimed),
        "rival_claimed": found["rival_choice"] * claimed * (1 - found["omits"]) * (1 - found["overstepped"]),
        "page_claimed": found["page_missing"] * claimed * (1 - found["ordered"]),
        "page_unclaimed": found["page_missing"]
        * (1 - claimed)
        * (1 - max(found["control_unused"], found["boundary_stop"])),
        "verdict_doubted": found["answer_same"]
        * claimed
        * (1 - max(found[name] for name in ("act_missing", "rival_choice", "page_missing", "secret_strays"))),
        "boundary_shunned": found["boundary_decided"] * (1 - claimed),
        "act_untried": found["act_in_reach"] * (1 - max(found["failing"], found["invalid"])),
        "secret_withheld": found["secret_gap"] * (1 - claimed),
    }


def _ending(success: Branch, localization: Branch) -> dict[str, float]:
    run = localization.run
    failed = not run.success and bool(localization.steps)
    return {
        "boundary_stop": float(
            failed
            and run.declared_success is not True
            and bool(BOUNDARY.search(run.final_text + " " + _said(localization, len(localization) - 1)))
        ),
        "crashed": float(run.outcome in ("crashed", "timeout")),
        "gave_up": float(failed and run.outcome == "done" and run.declared_success is not True),
        "out_of_steps": float(run.outcome in ("max_steps", "failures")),
        "false_claim": float(failed and run.outcome == "done" and run.declared_success is True),
        "detour": float(run.success and len(localization) > len(success)),
    }


def _trouble(localization: Branch, good: Table, bad: Table) -> dict[str, float]:
    steps = max(len(localization), 1)
    # Scrolling the same page again is looking around, not trouble.
    repeated = bad["repeats"] & ~bad["passive"] & ~bad["invalid"]
    trouble = (bad["fails"] & ~bad["invalid"]) | bad["no_effect"] | repeated
    trouble &= ~bad["blocked"] & ~bad["notes"]
    run = localization.run
    refused = run.outcome in ("blocked", "captcha", "unreachable") or bool(bad["blocked"][-3:].any())
    # Who says so at the end was stopped by it, and had no reason to claim success.
    refused |= run.declared_success is False and refuses(run.final_text)
    looking = _mean(bad["passive"] | bad["searches"]) - _mean(good["passive"] | good["searches"])
    return {
        "invalid": min(1.0, 2 * int(bad["invalid"].sum()) / steps),
        "failing": min(1.0, 2.5 * int(trouble.sum()) / steps),
        "blocked": float(refused),
        "wandering": min(1.0, 2 * max(0.0, looking)),
        "at_login": float(bool(bad["login_wall"][-2:].any())),
    }


def _closure(success: Branch, localization: Branch, good: Table, bad: Table) -> dict[str, float]:
    """What the success did last, and how near the other run came to it."""
    acting = np.flatnonzero(good["acts"])
    failed = not localization.run.success
    task = success.run.task
    ordered = bool(_ORDER.search(". ".join((task.objective, *task.constraints))))
    if not failed or not len(acting):
        return dict.fromkeys(
            ("ordered", "act_missing", "act_in_reach", "page_missing", "control_unused", "early"), 0.0
        )
    last = int(acting[-1])
    missing = success.signatures[last] not in localization.signatures
    stood_there = success.pages[last] in localization.pages
    evidence = success.pages[-1]
    needed, did = len(acting), int(bad["acts"].sum())
    unused = any(
        success.signatures[at] not in localization.signatures and success.pages[at] in localization.pages
        for at in np.flatnonzero(good["adjusts"])
    )
    return {
        "ordered": float(ordered),
        "control_unused": float(unused),
        "act_missing": float(ordered and missing),
        "act_in_reach": float(ordered and missing and stood_there),
        "page_missing": float(evidence not in localization.pages),
        "early": max(0.0, (needed - did) / needed) if localization.run.outcome == "done" else 0.0,
    }


def _choices(success: Branch, localization: Branch, good: Table, bad: Table) -> dict[str, float]:
    """What the success chose and the other run did not, or chose otherwise."""
    failed = not localization.run.success
    ours, theirs = set(success.signatures), set(localization.signatures)

    def lacks(signal: str) -> bool:
        return any(success.signatures[at] not in theirs for at in np.flatnonzero(good[signal] & good["acts"]))

    strayed = [
        at
        for at in np.flatnonzero(bad["acts"] & ~bad["extracts"])
        if localization.signatures[at] not in ours and localization.pages[at] in success.pages
    ]
    # At one page the success did one thing, and this run another.
    rivals = any(
        success.pages[i] == localization.pages[j] and good["acts"][i] and success.signatures[i] not in theirs
        for j in strayed
        for i in range(len(success))
    )
    said = " ".join(_said(localization, at) for at in range(len(localization)))
    missing_acts = [at for at in np.flatnonzero(good["acts"]) if success.signatures[at] not in theirs]
    missing = " ".join(_said(success, at) for at in missing_acts)
    # What the task demands, and which of it this run ever named.
    demands = words(" ".join(success.run.task.constraints)) - _SMALL
    heeded = _named_by(localization, range(len(localization)))
    extra = [
        at for at in np.flatnonzero(bad["acts"] & ~bad["extracts"]) if localization.signatures[at] not in ours
    ]
    needed = {success.signatures[at] for at in np.flatnonzero(good["acts"] & ~good["extracts"])}
    wanted = " ".join((success.run.task.objective, *success.run.task.constraints))
    filter_gap = failed and lacks("filters")
    home = {site_of(step.step.observation.url) for step in success.steps}
    return {
        "rival_choice": float(failed and rivals),
        "filter_gap": float(filter_gap),
        "filter_claimed": float(filter_gap and bool(_FILTERED.search(said + localization.run.final_text))),
        "filter_asked": float(failed and bool(_FILTERED.search(wanted))),
        "date_gap": float(failed and lacks("dates")),
        "date_asked": float(failed and task_has_dates(success)),
        "date_decided": float(failed and bool(DATE.search(missing))),
        "constraint_decided": float(failed and bool(_named_by(success, missing_acts) & demands - heeded)),
        "filter_decided": float(failed and bool(_FILTERED.search(missing))),
        "boundary_decided": float(failed and bool(BOUNDARY.search(missing))),
        "overstepped": float(failed and bool(extra) and needed <= theirs),
        "secret_gap": float(failed and lacks("sensitive")),
        "secret_strays": float(failed and bool(bad["sensitive"].any()) and not good["sensitive"].any()),
        "foreign_source": float(
            failed
            and bool(localization.steps)
            and site_of(localization.steps[-1].step.observation.url) not in home
        ),
    }


def _answer(success: Branch, localization: Branch) -> dict[str, float]:
    """What the answers hold, fact by fact."""
    wanted, given = facts(success.run.final_text), facts(localization.run.final_text)
    failed = not localization.run.success
    if not failed or not given or not wanted:
        return dict.fromkeys(
            ("omits", "answer_same", "answer_wrong", "answer_short", "unseen", "from_memory"), 0.0
        )
    unseen = [
        fact for fact in given if any(sign.isdigit() for sign in fact) and not _seen(localization, fact)
    ]
    numbers = [fact for fact in given if any(sign.isdigit() for sign in fact)]
    said = " ".join(_said(localization, at) for at in range(len(localization)))
    task = success.run.task
    several = bool(_SEVERAL.search(" ".join((task.objective, *task.constraints))))
    wrong = len(given - wanted) / len(given)
    return {
        "omits": float(several and wanted != given and bool(wanted - given) and wrong < 0.4),
        "answer_same": float(wanted <= given),
        "answer_wrong": wrong,
        "answer_short": len(wanted - given) / len(wanted) * (1 - wrong),
        "unseen": len(unseen) / len(numbers) if numbers else 0.0,
        "from_memory": float(bool(_TRUST.search(said + " " + localization.run.final_text))),
    }


def _named_by(branch: Branch, steps: Iterable[int]) -> frozenset[str]:
    """The words that some steps act on or type."""
    return words(" ".join(branch.named[at] for at in steps if not branch.steps[at].is_done))


def _said(branch: Branch, at: int) -> str:
    reply = branch.steps[at].reply
    return f"{reply.memory} {reply.next_goal}" if reply else ""


def facts(text: str) -> frozenset[str]:
    """The numbers and names of an answer, in lower case and without commas."""
    found = (fact.replace(",", "").strip(".:/-").casefold() for fact in _FACT.findall(text))
    return frozenset(fact for fact in found if fact and fact not in _COMMON)


def _seen(branch: Branch, fact: str) -> bool:
    """Whether a number stood on a page, in what was read from one, or in the task."""
    if fact in branch.task_words:
        return True
    for step in branch.steps:
        if fact in step.step.observation.page_text.replace(",", ""):
            return True
        if any(fact in result.output.replace(",", "") for result in step.step.results):
            return True
    return False


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else 0.0
