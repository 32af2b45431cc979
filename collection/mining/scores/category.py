"""S_category: does the neighbourhood of the two steps show the labelled failure?"""

from __future__ import annotations

import numpy as np

from collection.mining.branch import Branch
from collection.mining.features import signal_table
from collection.mining.labels import PAPER_SHARES, Label

RADIUS = 2

# Signals that show a category's closure on the success side, and its violation on the other.
CLOSURE: dict[str, tuple[str, ...]] = {
    "unverifiable_evidence": ("extracts", "acts"),
    "endpoint_incomplete": ("acts", "submits"),
    "access_obstruction": ("navigates", "acts"),
    "ui_navigation": ("acts",),
    "runtime_evaluation": ("acts",),
    "constraint_mismatch": ("on_target", "acts"),
    "filter_context": ("filters",),
    "datetime_availability": ("dates",),
    "target_discovery": ("on_target", "navigates", "acts"),
    "extraction_omission": ("extracts",),
    "login_payment_boundary": ("sensitive", "submits"),
}
VIOLATION: dict[str, tuple[str, ...]] = {
    "unverifiable_evidence": ("claims_success",),
    "endpoint_incomplete": ("finishes", "passive", "repeats", "fails"),
    "access_obstruction": ("blocked",),
    "ui_navigation": ("fails", "no_effect", "repeats"),
    "runtime_evaluation": ("invalid",),
    "constraint_mismatch": ("off_target", "strays"),
    "filter_context": ("finishes", "off_target", "passive", "strays"),
    "datetime_availability": ("finishes", "off_target", "passive", "strays"),
    "target_discovery": ("passive", "searches", "repeats", "strays"),
    "extraction_omission": ("finishes",),
    "login_payment_boundary": ("finishes", "sensitive"),
}
assert CLOSURE.keys() == VIOLATION.keys() == PAPER_SHARES.keys()

# [ours] Evidence counts less the farther it is from the step. One side alone stays below the gate.
_BY_DISTANCE = (1.0, 0.7, 0.5)
_ONE_SIDE, _BOTH_SIDES, _ALREADY_THERE = 0.4, 0.2, 0.3
_PRIOR_FLOOR = 0.8


def category_scores(success: Branch, localization: Branch, label: Label) -> dict[str, np.ndarray]:
    """`category` and its parts `closure`, `violation`, `already_there`.

    Returns:
      float arrays [num_success_steps, num_localization_steps] in [0, 1].
    """
    good, bad = signal_table(success), dict(signal_table(localization))
    # Something that no step of the success did.
    ours = set(success.signatures)
    strange = np.array([step not in ours for step in localization.signatures], bool)
    bad["strays"] = strange & bad["acts"]
    closing, violating = CLOSURE[label.category], VIOLATION[label.category]
    closure = window(_any(good, closing))[:, None]
    violation = window(_any(bad, violating))[None, :]
    already = _already_there(success, localization, _any(good, closing))
    local = _ONE_SIDE * (closure + violation) + _BOTH_SIDES * np.minimum(closure, violation)
    local = np.clip(local - _ALREADY_THERE * already, 0.0, 1.0)
    shape = (len(success), len(localization))
    return {
        "category": local * (_PRIOR_FLOOR + (1 - _PRIOR_FLOOR) * label.confidence),
        "closure": np.broadcast_to(closure, shape),
        "violation": np.broadcast_to(violation, shape),
        "already_there": already,
    }


def _already_there(success: Branch, localization: Branch, closing: np.ndarray) -> np.ndarray:
    """How near to each localization step its branch does what the success step closes with: [n, m]."""
    rows = [
        window(np.array([closes and step == other for other in localization.signatures], bool))
        for step, closes in zip(success.signatures, closing, strict=True)
    ]
    return np.array(rows).reshape(len(success), len(localization))


def window(signal: np.ndarray) -> np.ndarray:
    """The strongest evidence at most `RADIUS` steps away: bool [n] -> float [n]."""
    evidence = np.zeros(len(signal))
    for offset in range(-RADIUS, RADIUS + 1):
        weight = _BY_DISTANCE[abs(offset)]
        for position in range(max(0, -offset), min(len(signal), len(signal) - offset)):
            if signal[position + offset]:
                evidence[position] = max(evidence[position], weight)
    return evidence


def _any(table: dict[str, np.ndarray], names: tuple[str, ...]) -> np.ndarray:
    return np.logical_or.reduce([table[name] for name in names])
