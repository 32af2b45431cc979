"""S_category: does the neighbourhood of the two steps show the labelled failure?"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from collection.mining.branch import Branch
from collection.mining.labels import Label
from collection.mining.signals import signal_table
from collection.mining.taxonomy import TAXONOMY

RADIUS = 2

# [ours] Evidence counts less the farther it is from the step. One side alone stays below the gate.
_BY_DISTANCE = (1.0, 0.7, 0.5)
_ONE_SIDE, _BOTH_SIDES, _SETTLED = 0.4, 0.1, 0.6
_PRIOR_FLOOR = 0.5
# Signals of nearly every step that does something.
GENERAL = frozenset(("acts", "submits", "navigates", "opens", "on_target"))


def category_scores(
    success: Branch, localization: Branch, label: Label, same_states: np.ndarray
) -> dict[str, np.ndarray]:
    """`category` and its parts `closure`, `violation`, `settled`.

    Args:
      same_states: `StateAlignment.same_states` of the two.

    Returns:
      float arrays [num_success_steps, num_localization_steps] in [0, 1].
    """
    good, bad = signal_table(success), dict(signal_table(localization))
    # Something that no step of the success did.
    ours = set(success.signatures)
    strange = np.array([step not in ours for step in localization.signatures], bool)
    bad["strays"] = strange & bad["acts"]
    # Where a run broke off, its last step is all there is to see of it.
    bad["broke_off"] = np.zeros(len(localization), bool)
    bad["broke_off"][-1:] = localization.run.outcome in ("crashed", "timeout")
    same_states = _held(same_states, bad["acts"], localization.pages)
    bad["skips"] = _skips(success, localization, same_states)
    category = TAXONOMY[label.category]
    violating = category.violation
    if localization.run.success:
        # Who got there all the same is not blamed for having looked around.
        violating = ("strays", "fails", "no_effect")
        settled = _taken_by(success, localization)
    else:
        taken = np.any(_taken_by(success, localization), axis=1)
        passed = _passed(good["acts"], same_states)
        # Whoever leaves out a check, or fills in something else, may well get to the end with it.
        unseen = _any(good, tuple(set(category.closure) - GENERAL)) | _fills_in_place(success)
        passed = np.where((unseen & ~taken)[:, None], np.minimum(passed, 0.5), passed)
        settled = np.maximum(passed, taken[:, None])
    settled = np.maximum(settled, ~_at_same_state(good["acts"], same_states))
    closure = window(_any(good, category.closure))[:, None]
    violation = window(_any(bad, violating))[None, :]
    local = _ONE_SIDE * (closure + violation) + _BOTH_SIDES * np.minimum(closure, violation)
    # Squared: what is only likely made good counts little.
    local = np.clip(local - _SETTLED * settled**2, 0.0, 1.0)
    shape = (len(success), len(localization))
    return {
        "category": local * (_PRIOR_FLOOR + (1 - _PRIOR_FLOOR) * label.confidence),
        "closure": np.broadcast_to(closure, shape),
        "violation": np.broadcast_to(violation, shape),
        "settled": settled,
    }


def _taken_by(success: Branch, localization: Branch) -> np.ndarray:
    """Which success steps the localization took up to each of its steps: bool [n, m].

    It did the same, with effect and on the same page.
    """
    acts = signal_table(localization)["acts"]
    taken = np.zeros((len(success), len(localization)), bool)
    for j, step in enumerate(zip(localization.pages, localization.signatures, strict=True)):
        if acts[j]:
            taken[:, j] = [step == other for other in zip(success.pages, success.signatures, strict=True)]
    return np.logical_or.accumulate(taken, axis=1)


def _fills_in_place(branch: Branch) -> np.ndarray:
    """Steps that fill in a field and stay on the page, which may show nothing of it: bool [n]."""
    fills = np.array(
        [bool({"input_text", "select_dropdown_option"} & set(step.action_names)) for step in branch.steps],
        bool,
    )
    stays = np.array([one == other for one, other in itertools.pairwise((*branch.pages, ""))], bool)
    return fills & stays


def _skips(success: Branch, localization: Branch, same_states: np.ndarray) -> np.ndarray:
    """Which localization steps do at once what the success did only after more acts: bool [m]."""
    done = _acts_before(signal_table(success)["acts"])
    skips = np.zeros(len(localization), bool)
    for j, step in enumerate(zip(localization.pages, localization.signatures, strict=True)):
        here = same_states[:, j] > 0
        took = [
            done[i]
            for i, other in enumerate(zip(success.pages, success.signatures, strict=True))
            if step == other
        ]
        skips[j] = bool(took) and here.any() and min(took) > done[here].max()
    return skips


def _held(same_states: np.ndarray, acts: np.ndarray, pages: Sequence[str]) -> np.ndarray:
    """Lets the localization stand where it stood as long as it does nothing: a scroll is no new state."""
    held = same_states.copy()
    for j in range(1, len(pages)):
        if not acts[j - 1] and pages[j] == pages[j - 1] and held[:, j - 1].any():
            held[:, j] = held[:, j - 1]
    return held


def _acts_before(acts: np.ndarray) -> np.ndarray:
    """How many acts the success had done before each of its steps: steps without any stand still."""
    return np.cumsum(acts) - acts


def _at_same_state(acts: np.ndarray, same_states: np.ndarray) -> np.ndarray:
    """Whether the localization stands where the success stood, and not some acts before or after: [n, m].

    Where it stands at no state of the success, that is for S_state to say.
    """
    done = _acts_before(acts)
    here = (same_states > 0).T @ (done[:, None] == done[None, :])
    return here.T | ~(same_states > 0).any(0)


def _passed(acts: np.ndarray, same_states: np.ndarray) -> np.ndarray:
    """How sure it is that a divergence was made good later: float [n, m].

    It was where the localization comes to a state that lies behind the success step, after all; surely so
    where that is the very next state, to which the success step led.
    """
    done = _acts_before(acts)
    passed = np.zeros(same_states.shape)
    # How sure it is that the localization later stands where the success had done so many acts. Where the
    # success ended says little: the run that failed came there too.
    reached = np.zeros(int(done.max(initial=0)) + 2)
    sure = np.where(done == done.max(initial=0), 0.5, 1.0)
    for j in reversed(range(same_states.shape[1])):
        further = np.maximum.accumulate(reached[::-1])[::-1]
        passed[:, j] = np.maximum(further[done + 1], reached[done + 1] > 0)
        here = same_states[:, j] > 0
        if here.any():
            # The earliest of several equal states: no more is certain.
            first = done[here].min()
            reached[first] = max(reached[first], (sure * same_states[:, j])[here].max())
    return passed


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
    nothing = np.zeros(len(table["acts"]), bool)
    return np.logical_or.reduce([nothing, *(table[name] for name in names)])
