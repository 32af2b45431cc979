"""Which of the eleven failure modes a pair of runs shows: the rule prior (RMSWeb, section 3.3)."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from collection.mining.branch import Branch
from collection.mining.features import signal_table, task_has_dates

# Share of each category in the paper's corpus, in percent.
PAPER_SHARES: dict[str, float] = {
    "unverifiable_evidence": 39.80,
    "endpoint_incomplete": 18.73,
    "access_obstruction": 9.98,
    "ui_navigation": 8.53,
    "runtime_evaluation": 7.38,
    "constraint_mismatch": 6.02,
    "filter_context": 4.53,
    "datetime_availability": 2.26,
    "target_discovery": 1.82,
    "extraction_omission": 0.64,
    "login_payment_boundary": 0.31,
}

# How strongly each pair feature speaks for each category. [ours]: the paper names the features only.
RULES: dict[str, dict[str, float]] = {
    "unverifiable_evidence": {"evidence_gap": 0.8, "answer_differs": 0.4, "false_claim": 0.35},
    "endpoint_incomplete": {"premature_end": 1.0, "missing_closure": 0.35, "gave_up": 0.2},
    "access_obstruction": {"blocked": 1.5},
    "ui_navigation": {"failing": 1.0},
    "runtime_evaluation": {"crashed": 1.5, "invalid": 1.6},
    "constraint_mismatch": {"wrong_target": 0.9},
    "filter_context": {"filter_gap": 0.95},
    "datetime_availability": {"date_gap": 1.0},
    "target_discovery": {"wandering": 0.9, "detour": 0.6},
    "extraction_omission": {"answer_shorter": 0.9},
    "login_payment_boundary": {"stopped_at_secret": 0.9},
}
# Rare categories need some evidence; this much speaks for the common ones without any.
_BASE_RATE = 0.05


@dataclasses.dataclass(frozen=True)
class Label:
    """A failure mode.

    Attributes:
      confidence: in [0, 1]: the category's share of the evidence.
      source: who decided.
      features: the pair features that were not zero.
    """

    category: str
    confidence: float
    source: Literal["rule", "judge", "review"]
    features: dict[str, float]


def rule_label(success: Branch, localization: Branch) -> Label:
    """The category for which the rule features speak most; ties go to the paper's more frequent one."""
    features = pair_features(success, localization)
    scores = np.array(
        [
            sum(weight * features[name] for name, weight in RULES[category].items())
            + _BASE_RATE * PAPER_SHARES[category] / 100
            for category in PAPER_SHARES
        ]
    )
    # Squared, so that one strong feature is not drowned by many weak ones.
    shares = scores**2 / (scores**2).sum()
    best = int(shares.argmax())
    found = {name: round(value, 4) for name, value in features.items() if value}
    return Label(list(PAPER_SHARES)[best], float(shares[best]), "rule", found)


def pair_features(success: Branch, localization: Branch) -> dict[str, float]:
    """How the localization run differs from the success, each in [0, 1]."""
    good, bad = signal_table(success), signal_table(localization)
    return (
        _ending_features(success, localization, good, bad)
        | _trouble_features(localization, good, bad)
        | _content_features(success, localization, good, bad)
    )


Table = dict[str, np.ndarray]


def _ending_features(success: Branch, localization: Branch, good: Table, bad: Table) -> dict[str, float]:
    run = localization.run
    finished = run.outcome == "done"
    needed, did = int(good["acts"].sum()), int(bad["acts"].sum())
    early = max(0.0, (needed - did) / needed) if needed else 0.0
    failed = not run.success
    closure = [success.signatures[at] for at in np.flatnonzero(good["acts"])][-1:]
    return {
        "premature_end": float(failed and finished and early > 0) * (0.5 + 0.5 * early),
        "missing_closure": float(failed and any(step not in localization.signatures for step in closure)),
        "gave_up": float(
            failed and (run.declared_success is False or run.outcome in ("max_steps", "failures"))
        ),
        "false_claim": float(failed and run.declared_success is True),
        "crashed": float(run.outcome in ("crashed", "timeout")),
        "detour": float(run.success and len(localization) > len(success)),
    }


def _trouble_features(localization: Branch, good: Table, bad: Table) -> dict[str, float]:
    steps = max(len(localization), 1)
    # Scrolling the same page again is looking around, not trouble.
    repeated = bad["repeats"] & ~bad["passive"] & ~bad["invalid"]
    trouble = (bad["fails"] & ~bad["invalid"]) | bad["no_effect"] | repeated
    refused = localization.run.outcome in ("blocked", "captcha") or bool(bad["blocked"][-3:].any())
    looking = _mean(bad["passive"] | bad["searches"]) - _mean(good["passive"] | good["searches"])
    return {
        "invalid": min(1.0, 2 * int(bad["invalid"].sum()) / steps),
        "failing": min(1.0, 2 * int(trouble.sum()) / steps),
        "blocked": float(refused),
        "wandering": min(1.0, 2 * max(0.0, looking)),
    }


def _content_features(success: Branch, localization: Branch, good: Table, bad: Table) -> dict[str, float]:
    run = localization.run
    failed = not run.success
    answer, wanted = run.final_text.strip(), success.run.final_text.strip()
    ours, theirs = set(success.signatures), set(localization.signatures)

    def replaced(signal: str) -> bool:
        """A step of the success is missing, and the localization run did something else of its kind."""
        missing = any(success.signatures[at] not in theirs for at in np.flatnonzero(good["acts"]))
        strange = any(localization.signatures[at] not in ours for at in np.flatnonzero(bad[signal]))
        return missing and strange

    def lacks(signal: str) -> bool:
        return any(success.signatures[at] not in theirs for at in np.flatnonzero(good[signal] & good["acts"]))

    return {
        "wrong_target": float(failed and replaced("acts")),
        "filter_gap": float(failed and lacks("filters")),
        "date_gap": float(failed and task_has_dates(success) and lacks("dates")),
        "evidence_gap": float(failed and bool(good["extracts"].any()) and not bad["extracts"].any()),
        "answer_differs": float(failed and bool(answer) and bool(wanted) and answer != wanted),
        "answer_shorter": float(failed and len(wanted) > 20 and 2 * len(answer) < len(wanted)),
        "stopped_at_secret": float(failed and lacks("sensitive") and run.declared_success is False),
    }


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else 0.0
