"""S_action and S_category of pairs of steps, and which pairs may be a divergence (RMSWeb, section 3.3)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from collection.corpus.steps import StepView
from collection.mining.failure_modes import TAXONOMY, FailureLabel, FailureMode
from collection.mining.runs import ParsedRun
from collection.mining.state_score import equal_pages
from collection.mining.step_flags import step_flags
from rmsweb_jax.actions import explain_actions

# S_action. RMSWeb names what raises and lowers it; the weights are this project's, chosen by hand: for the
# difference of the actions, for at least one operation, and for two operations.
CONTRAST_WEIGHT, OPERATION_WEIGHT, BOTH_WEIGHT = 0.5, 0.3, 0.2
# Factor on the contrast of a success action that the other run took at another step. Not in the paper.
_TAKEN_ELSEWHERE = 0.5
# Factor on the score of two passive or repeated-search actions; RMSWeb lowers it without a figure.
_LOW_INFORMATION = 0.5

# S_category. Steps around each side in which its evidence counts: RMSWeb's radius.
RADIUS = 2
# Weight of evidence 0, 1 and 2 steps away. Chosen by hand.
_BY_DISTANCE = (1.0, 0.7, 0.5)
# Evidence of one side alone gives at most 0.4, below the gate of 0.45; of both sides 0.9. Chosen by hand.
_ONE_SIDE, _BOTH_SIDES = 0.4, 0.1
# Subtracted if the other run recovered from the divergence. RMSWeb only says that the score decreases if the
# other run also shows the positive evidence. Tuned on the generator's seeds 0-19.
_RECOVERED = 0.6
# Certainty of a state, or of a recovery, that is likely but not proven. Chosen by hand.
_LIKELY = 0.5
# A label of no confidence halves the score: RMSWeb calls the label a soft prior. Chosen by hand.
_PRIOR_FLOOR = 0.5
# Violations of a longer success, whose detour has these flags for any label.
_DETOUR_VIOLATION = ("absent_in_success", "fails", "no_effect")
# Flags of almost every effective step. The other flags of a closure are specific to the category.
GENERAL = frozenset(("acts", "submits", "navigates", "opens", "on_target"))


def action_scores(success: ParsedRun, localization: ParsedRun, where: np.ndarray | None = None) -> np.ndarray:
    """S_action: how different the actions of two steps are, and how much they matter.

    Args:
      where: bool [num_success_steps, num_localization_steps], the pairs to score, since comparing actions is
        slow; None for all. The score is 0 elsewhere.

    Returns:
      float [num_success_steps, num_localization_steps] in [0, 1].
    """
    if where is None:
        where = np.ones((len(success), len(localization)), bool)
    contrast = np.zeros(where.shape)
    for i, j in zip(*np.nonzero(where), strict=True):
        contrast[i, j] = _contrast(success.steps[i], localization.steps[j])
    elsewhere = set(localization.signatures)
    taken = np.array([step in elsewhere for step in success.signatures], bool)
    contrast *= np.where(taken, _TAKEN_ELSEWHERE, 1.0)[:, None]
    ours, theirs = _operations(success)[:, None], _operations(localization)[None, :]
    low = ~(ours | theirs)
    # A `done` of the other run does not count as a second operation.
    both = ours & theirs & ~step_flags(localization)["finishes"][None, :]
    scores = CONTRAST_WEIGHT * contrast + OPERATION_WEIGHT * (ours | theirs) + BOTH_WEIGHT * both
    return np.where(where, np.where(low, _LOW_INFORMATION * scores, scores), 0.0)


def _contrast(ours: StepView, theirs: StepView) -> float:
    """One minus the RL reward of the localization's actions with the success's actions as the target."""
    # An unusable reply has no action in common with any other.
    if ours.reply is None or theirs.reply is None:
        return 1.0
    return 1.0 - explain_actions(theirs.reply.executable, ours.reply.executable).score


def _operations(run: ParsedRun) -> np.ndarray:
    """Steps that click, type, select, navigate, extract or finish: bool [num_steps]."""
    flags = step_flags(run)
    return ~(flags["passive"] | flags["searches"] | flags["notes"] | flags["invalid"])


def eligible(success: ParsedRun, localization: ParsedRun) -> np.ndarray:
    """Pairs of steps that may be a divergence.

    Left out are terminal steps (see `ParsedRun.candidates`), equal actions, and pairs whose actions together
    are only searches or only waiting, scrolling and going back.

    Returns:
      bool [num_success_steps, num_localization_steps].
    """
    allowed = np.zeros((len(success), len(localization)), bool)
    allowed[np.ix_(success.candidates, localization.candidates)] = True
    ours, theirs = step_flags(success), step_flags(localization)
    for name in ("searches", "trivial"):
        # An unusable reply adds no action to the pair's.
        first, second = ours[name] | ours["invalid"], theirs[name] | theirs["invalid"]
        allowed &= ~(first[:, None] & second[None, :])
    # Element indices distinguish actions on one page. Between pages only the elements' texts do.
    same = _equal(success.signatures, localization.signatures)
    same_target = _equal(success.target_indices, localization.target_indices)
    return allowed & ~(same & (same_target | ~equal_pages(success, localization)))


def _equal(ours: Iterable[object], theirs: Iterable[object]) -> np.ndarray:
    """Marks equal members of two lists: bool [len(ours), len(theirs)]."""
    numbers: dict[object, int] = {}
    first = np.array([numbers.setdefault(one, len(numbers)) for one in ours], int)
    second = np.array([numbers.setdefault(one, len(numbers)) for one in theirs], int)
    return first[:, None] == second[None, :]


def category_scores(
    success: ParsedRun, localization: ParsedRun, label: FailureLabel, same_states: np.ndarray
) -> dict[str, np.ndarray]:
    """S_category: evidence for the labelled failure in the steps around a pair.

    The evidence is the label's closure around the success step and its violation around the localization
    step. It counts less where the localization run later recovered.

    Args:
      same_states: `StateAlignment.same_states` of the two runs.

    Returns:
      `category` and its parts `closure`, `violation`, `recovered`:
      float [num_success_steps, num_localization_steps] in [0, 1].
    """
    ours, theirs = step_flags(success), step_flags(localization)
    same_states = _hold_states(same_states, theirs["acts"], localization.pages)
    mode = TAXONOMY[label.category]
    violating = _DETOUR_VIOLATION if localization.record.success else mode.violation
    closure = window(_any(ours, mode.closure))[:, None]
    violation = window(_any(theirs | _relative_flags(success, localization, same_states), violating))[None, :]
    recovered = _recovered(success, localization, mode, same_states)
    local = _ONE_SIDE * (closure + violation) + _BOTH_SIDES * np.minimum(closure, violation)
    # Squared, so that a likely recovery takes off only a quarter of what a certain one does.
    local = np.clip(local - _RECOVERED * recovered**2, 0.0, 1.0)
    return {
        "category": local * (_PRIOR_FLOOR + (1 - _PRIOR_FLOOR) * label.confidence),
        "closure": np.broadcast_to(closure, recovered.shape),
        "violation": np.broadcast_to(violation, recovered.shape),
        "recovered": recovered,
    }


def window(flags: np.ndarray) -> np.ndarray:
    """The strongest evidence at most `RADIUS` steps away: bool [n] -> float [n]."""
    evidence = np.zeros(len(flags))
    for offset in range(-RADIUS, RADIUS + 1):
        weight = _BY_DISTANCE[abs(offset)]
        for position in range(max(0, -offset), min(len(flags), len(flags) - offset)):
            if flags[position + offset]:
                evidence[position] = max(evidence[position], weight)
    return evidence


def _any(flags: dict[str, np.ndarray], names: Iterable[str]) -> np.ndarray:
    """Steps with at least one of some flags: bool [num_steps]."""
    nothing = np.zeros(len(flags["acts"]), bool)
    return np.logical_or.reduce([nothing, *(flags[name] for name in names)])


def _relative_flags(
    success: ParsedRun, localization: ParsedRun, same_states: np.ndarray
) -> dict[str, np.ndarray]:
    """Flags of the localization's steps that depend on the success: name -> bool [m].

    `absent_in_success`: an act that the success never did. `skips_ahead`: does at once what the success did
    only after further acts. `aborted`: the last step of a run that crashed or timed out, all that is left of
    its cause.
    """
    ours = set(success.signatures)
    absent = np.array([step not in ours for step in localization.signatures], bool)
    aborted = np.zeros(len(localization), bool)
    aborted[-1:] = localization.record.outcome in ("crashed", "timeout")
    done = _acts_before(success)
    skips = np.zeros(len(localization), bool)
    for j, step in enumerate(zip(localization.pages, localization.signatures, strict=True)):
        here = same_states[:, j] > 0
        took = [
            done[i]
            for i, other in enumerate(zip(success.pages, success.signatures, strict=True))
            if step == other
        ]
        # The earliest place of this step in the success is behind every state that the run can be at.
        skips[j] = bool(took) and here.any() and min(took) > done[here].max()
    return {
        "absent_in_success": absent & step_flags(localization)["acts"],
        "skips_ahead": skips,
        "aborted": aborted,
    }


def _recovered(
    success: ParsedRun, localization: ParsedRun, mode: FailureMode, same_states: np.ndarray
) -> np.ndarray:
    """The certainty that a pair is no cause of the failure: float [n, m] in [0, 1].

    Either the localization took the success's step as well, or it later came to a state behind that step, or
    the two steps are at different states of the site.
    """
    taken_by_now = _taken(success, localization)
    if localization.record.success:
        # A detour is open until the success's step is taken.
        recovered = taken_by_now
    else:
        taken = np.any(taken_by_now, axis=1)
        reached = _reached_later(success, same_states)
        # A run can reach the end without the category's checks, or with another text in a field.
        unseen = _any(step_flags(success), set(mode.closure) - GENERAL) | _fills_in_place(success)
        reached = np.where((unseen & ~taken)[:, None], np.minimum(reached, _LIKELY), reached)
        recovered = np.maximum(reached, taken[:, None])
    # Steps at different states are no alternatives, so they cannot be a divergence.
    return np.maximum(recovered, ~_at_same_state(success, same_states))


def _taken(success: ParsedRun, localization: ParsedRun) -> np.ndarray:
    """Marks the success steps that the localization took up to each of its steps: bool [n, m].

    A step is taken by the same actions on the same page, with an effect.
    """
    acts = step_flags(localization)["acts"]
    taken = np.zeros((len(success), len(localization)), bool)
    for j, step in enumerate(zip(localization.pages, localization.signatures, strict=True)):
        if acts[j]:
            taken[:, j] = [step == other for other in zip(success.pages, success.signatures, strict=True)]
    return np.logical_or.accumulate(taken, axis=1)


def _fills_in_place(run: ParsedRun) -> np.ndarray:
    """Steps that fill in a field and stay on the page, which may show nothing of it: bool [n]."""
    fills = np.array(
        [bool({"input_text", "select_dropdown_option"} & set(step.action_names)) for step in run.steps],
        bool,
    )
    stays = np.array([one == other for one, other in itertools.pairwise((*run.pages, ""))], bool)
    return fills & stays


def _hold_states(same_states: np.ndarray, acts: np.ndarray, pages: Sequence[str]) -> np.ndarray:
    """Keeps the state of a localization step until the next act: a scroll leads to no new state."""
    held = same_states.copy()
    for j in range(1, len(pages)):
        if not acts[j - 1] and pages[j] == pages[j - 1] and held[:, j - 1].any():
            held[:, j] = held[:, j - 1]
    return held


def _acts_before(run: ParsedRun) -> np.ndarray:
    """The number of acts before each step: int [num_steps]. Steps of equal number are at one state."""
    acts = step_flags(run)["acts"]
    return np.cumsum(acts) - acts


def _at_same_state(success: ParsedRun, same_states: np.ndarray) -> np.ndarray:
    """Marks pairs of steps at the same state, with as many acts before: bool [n, m].

    True for localization steps that are at no state of the success; S_state judges those.
    """
    done = _acts_before(success)
    here = (same_states > 0).T @ (done[:, None] == done[None, :])
    return here.T | ~(same_states > 0).any(0)


def _reached_later(success: ParsedRun, same_states: np.ndarray) -> np.ndarray:
    """The certainty that the localization later reached a state behind the success step: float [n, m].

    It is certain if that state is the next one, to which the success step led.
    """
    done = _acts_before(success)
    result = np.zeros(same_states.shape)
    # By number of acts: how certain it is that the localization is at that state of the success later on. The
    # success's last state is weak evidence, because failed runs also reach it.
    reached = np.zeros(int(done.max(initial=0)) + 2)
    certainty = np.where(done == done.max(initial=0), _LIKELY, 1.0)
    for j in reversed(range(same_states.shape[1])):
        further = np.maximum.accumulate(reached[::-1])[::-1]
        # A later state counts with its certainty; the next state counts fully, even if only likely.
        result[:, j] = np.maximum(further[done + 1], reached[done + 1] > 0)
        here = same_states[:, j] > 0
        if here.any():
            # Of several equal states only the earliest is certain.
            first = done[here].min()
            reached[first] = max(reached[first], (certainty * same_states[:, j])[here].max())
    return result
